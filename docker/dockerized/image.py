"""The image of all six hosts: Debian with Java and tools for the network. Hadoop, Python and mpca are mounted, not copied."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from dockerized.engine import Engine, cache, install
from mpca.errors import EnvironmentRefused

__all__ = ["SUITE", "image"]

SUITE = "bookworm"
_PUBLIC = f"debian:{SUITE}-slim"
_FOLDER = Path(__file__).resolve().parents[1]
_MIRROR = "http://deb.debian.org/debian"
_PULL_S = 60.0


def image(engine: Engine, say: Callable[[str], None]) -> str:
    """Its name; built when it is not there.

    Raises:
        EnvironmentRefused: neither a base image nor debootstrap is to be had.
    """
    files = [_FOLDER / name for name in ("Dockerfile", "packages")]
    key = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    name = f"mpca-hadoop:{key}"
    if _there(engine, name):
        return name
    base = _base(engine, say)
    say(f"building the image {name}")
    # the folder holds nothing large, and nothing that changes without the key
    engine("build", "--quiet", "--build-arg", f"BASE={base}", "--tag", name, str(_FOLDER))
    return name


def _base(engine: Engine, say: Callable[[str], None]) -> str:
    if _there(engine, _PUBLIC):
        return _PUBLIC
    packages = (_FOLDER / "packages").read_text().split()
    archive = cache() / f"docker-{SUITE}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}.tar"
    if not archive.is_file():
        say(f"pulling {_PUBLIC}")
        try:
            pulled = engine.call("docker", "pull", "--quiet", _PUBLIC, timeout_s=_PULL_S)
        except subprocess.TimeoutExpired:
            pulled = None
        if pulled and pulled.returncode == 0:
            return _PUBLIC
        why = (
            pulled.stderr.strip().splitlines()[-1][-160:]
            if pulled and pulled.stderr.strip()
            else f"no answer in {_PULL_S:.0f} s"
        )
        say(f"it is not to be had here ({why})")
        _bootstrap(archive, packages, say)
    name = f"mpca-base:{archive.stem.rpartition('-')[2]}"
    engine("import", str(archive), name)
    return name


def _bootstrap(archive: Path, packages: list[str], say: Callable[[str], None]) -> None:
    """Make the archive, which whoever finds it finds whole."""
    if os.geteuid() != 0:
        raise EnvironmentRefused(f"making a base image takes root: run this as root, or `docker load` an image {_PUBLIC}")
    install(say, "debootstrap", "debootstrap")
    say(f"making a base image of Debian {SUITE} by debootstrap, about a minute; kept as {archive}")
    root, unfinished = archive.with_suffix(".new"), archive.with_suffix(".part")
    shutil.rmtree(root, ignore_errors=True)
    archive.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", SUITE, str(root), _mirror()]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-8:])
        raise EnvironmentRefused(f"debootstrap failed: exit code {done.returncode}\n{tail}")
    for leftover in ("var/cache/apt/archives", "var/lib/apt/lists", "var/log"):
        for path in (root / leftover).rglob("*"):
            if path.is_file():
                path.unlink()
    subprocess.run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(unfinished), "."], check=True)
    unfinished.rename(archive)
    shutil.rmtree(root)


def _mirror() -> str:
    """The mirror that this machine itself uses for that suite, if it does."""
    for path in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        line = re.search(rf"(?m)^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{SUITE}\s+main", text)
        stanza = re.search(rf"(?ms)^URIs:\s*(\S+).*?^Suites:.*?\b{SUITE}\b", text)
        if line or stanza:
            return (line or stanza)[1]
    return _MIRROR


def _there(engine: Engine, name: str) -> bool:
    return engine.call("docker", "image", "inspect", name).returncode == 0
