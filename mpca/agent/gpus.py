"""Which GPU is this agent's: one of those that its executor was given, and no other agent's of this user on this machine.

Spark hands addresses to an executor, not to an agent in it, and where YARN does not isolate GPUs two executors of a machine are
told the same ones. So an agent takes a lock a GPU, which is free again in the moment that its process ends: `flock` on an empty
folder. It lies in a folder of this user's that nobody else could have made before or gets into; a fixed name in /tmp, or in the
kernel's abstract namespace, any user could hold. Imports nothing slow: torch comes after it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from mpca.config import environment
from mpca.errors import EnvironmentRefused
from mpca.timeouts import GPU_FREE_S

__all__ = ["DEVICES", "candidates", "take", "uuids"]

#: Set by the executor for its agents: addresses of its GPUs, with commas between them.
DEVICES = "MPCA_DEVICES"
_LOOK_S = 0.1
#: Not TMPDIR, which may be another for each container.
_PLACE = "/tmp"


def candidates(device: str) -> list[str]:
    """GPUs that this agent may choose from; empty: none are needed, or nobody can tell which there are."""
    given = environment(DEVICES) or (environment("CUDA_VISIBLE_DEVICES") if device.startswith("cuda") else "")
    if given:
        return uuids(given.split(","))
    return uuids(None) if device == "cuda" else []


def uuids(addresses: Sequence[str] | None) -> list[str]:
    """The same GPUs by UUID, since numbers differ between containers; None: all of this machine or container."""
    if addresses is not None and not any(one.strip().isdigit() for one in addresses):
        return [one.strip() for one in addresses if one.strip()]
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return [one.strip() for one in addresses or () if one.strip()]
    if addresses is None:
        return said
    numbered = {str(number): uuid for number, uuid in enumerate(said)}
    return [numbered.get(one.strip(), one.strip()) for one in addresses if one.strip()]


def take(
    devices: Sequence[str],
    patience_s: float = GPU_FREE_S,
    now: Callable[[], float] = time.monotonic,
    base: str = _PLACE,
) -> tuple[str, ExitStack]:
    """The first of these GPUs that no agent of this user has, and its lock, which holds until it is closed.

    Args:
        devices: GPUs, the best first.
        patience_s: how long to wait for one of them.
        now: seconds, monotonic.
        base: the folder, of this machine and open to all users, in which locks are kept.

    Raises:
        EnvironmentRefused: every one is taken.
    """
    until = now() + patience_s
    while True:
        for one in devices:
            lock = _lock(one, base)
            if lock is not None:
                return one, lock
        if now() >= until:
            raise EnvironmentRefused(
                f"every GPU of this executor is another agent's of this user: gpus={','.join(devices)}, uid={os.geteuid()}; "
                "ask for as many as there are agents in an executor (spark.executor.resource.gpu.amount), or run fewer agents "
                "on a host"
            )
        time.sleep(_LOOK_S)


def _lock(device: str, base: str) -> ExitStack | None:
    """The lock of one GPU in every folder of this user's: two that begin at once may make one each, and each sees the
    folder that was there before its own."""
    with ExitStack() as held:
        for folder in _folders(base):
            path = folder / device.replace("/", "_")
            path.mkdir(mode=0o700, exist_ok=True)
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            held.callback(os.close, opened)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
        return held.pop_all()


def _folders(base: str) -> list[Path]:
    """Folders for locks that are this user's alone, in an order that all agents share; one is made if there is none."""
    start = f"mpca-gpus-{os.geteuid()}-"
    found = _own(base, start)
    if not found:
        tempfile.mkdtemp(prefix=start, dir=base)
        found = _own(base, start)
    return found


def _own(base: str, start: str) -> list[Path]:
    found = []
    for path in sorted(Path(base).glob(f"{start}*")):
        state = path.lstat()
        if stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077:
            found.append(path)
    return found
