"""What a run of `make bench` was measured on: the machine, versions, the commit; and the file that holds it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from mpca.cli.bench.load import cpu_idle_share, cpu_ticks
from mpca.cli.bench.suite.comparison import QUIET_IDLE
from mpca.environment import environment

__all__ = ["at_rest", "commit", "last_committed", "machine", "versions", "write"]

_PACKAGES = ("mpca", "numpy", "torch", "torchvision", "simplejpeg", "pyspark", "msgpack")
_REST_S, _LOOKS = 2.0, 3


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, memory in GiB, kernel."""
    cpu = platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30)),
        "kernel": platform.release(),
    }


def at_rest() -> dict[str, float]:
    """What others do here while this process waits: the share of the CPU that is idle, and the load average of a minute.

    What has just ended may still be cleared away, so a busy machine is looked at three times.
    """
    idle = 0.0
    for _ in range(_LOOKS):
        start = cpu_ticks()
        time.sleep(_REST_S)
        idle = max(idle, cpu_idle_share(start, cpu_ticks()))
        if idle >= QUIET_IDLE:
            break
    return {"idle": round(idle, 3), "load_1min": round(os.getloadavg()[0], 2)}


def versions() -> dict[str, str]:
    """Of Python and the packages that figures depend on, and Java's as it says it."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    with suppress(OSError):
        home = environment("JAVA_HOME")
        java = Path(home, "bin", "java") if home else "java"
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
        found["java"] = said.partition("\n")[0]
    return found


def commit(root: Path) -> str:
    """The commit of a checkout; with changes that are not committed, their hash stands behind it."""
    changes = _git(root, "diff", "HEAD")
    return _git(root, "rev-parse", "HEAD").strip() + (f"+{sha256(changes.encode()).hexdigest()[:8]}" if changes else "")


def last_committed(root: Path, folder: str, prefixes: Sequence[str]) -> tuple[str, str] | None:
    """Name and text of the newest committed run, as it was committed; names sort by time. None: there is none.

    Args:
        root: the checkout.
        folder: of the runs, in it.
        prefixes: of their names; one of the first, if there is any.
    """
    names = sorted(_git(root, "ls-tree", "-r", "--name-only", "HEAD", "--", f"{folder}/").split())
    for prefix in prefixes:
        runs = [name for name in names if Path(name).name.startswith(prefix) and name.endswith(".json")]
        if runs:
            return runs[-1], _git(root, "show", f"HEAD:{runs[-1]}")
    return None


def write(path: Path, run: dict[str, Any]) -> None:
    """Write a run whole: one that is interrupted leaves the version before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=60).stdout
