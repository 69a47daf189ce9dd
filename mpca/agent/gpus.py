"""Chooses this agent's GPU: one of its executor's, which no other agent of this user on this machine has.

Spark gives addresses to an executor, not to its agents; and where YARN does not isolate GPUs, two executors of a machine get
the same ones. So an agent locks its GPU by `flock` on an empty folder; the lock is free as soon as its process ends. That
folder is in a folder that only this user can make or enter. Any user could hold a lock with a fixed name in /tmp, or in the
kernel's abstract namespace. Imports nothing slow: torch is imported later.
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

from mpca.environment import environment
from mpca.errors import EnvironmentRefused
from mpca.timeouts import GPU_FREE_S

__all__ = ["DEVICES", "candidates", "take", "uuids"]

#: The executor sets it for its agents: addresses of its GPUs, separated by commas.
DEVICES = "MPCA_DEVICES"
_LOOK_S = 0.1
#: Not TMPDIR, which may differ between containers.
_PLACE = "/tmp"  # noqa: S108 - a file there is opened without following links, and its owner is looked at


def candidates(device: str) -> list[str]:
    """GPUs that this agent may choose from; empty when it needs none, or when they cannot be found out."""
    given = environment(DEVICES) or (environment("CUDA_VISIBLE_DEVICES") if device.startswith("cuda") else "")
    if given:
        return uuids(given.split(","))
    return uuids(None) if device == "cuda" else []


def uuids(addresses: Sequence[str] | None) -> list[str]:
    """UUIDs of these GPUs, since numbers differ between containers; None: of all GPUs of this machine or container."""
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
        devices: UUIDs of GPUs, the best first.
        patience_s: how long to wait for a free GPU, in seconds.
        now: the clock, in seconds, monotonic.
        base: a folder of this machine, open to all users, for the locks.

    Raises:
        EnvironmentRefused: all GPUs are taken.
    """
    until = now() + patience_s
    while True:
        for one in devices:
            lock = _lock(one, base)
            if lock is not None:
                return one, lock
        if now() >= until:
            raise EnvironmentRefused(
                f"other agents of this user have all GPUs of this executor: gpus={','.join(devices)}, uid={os.geteuid()}; "
                "ask for as many as there are agents in an executor (spark.executor.resource.gpu.amount), or run fewer agents "
                "on a host"
            )
        time.sleep(_LOOK_S)


def _lock(device: str, base: str) -> ExitStack | None:
    """The lock of one GPU, taken in each of this user's folders. Two agents that begin at once may make a folder each, but
    each then sees the folder that was made before its own."""
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
    """This user's private folders for locks, in an order that is equal for all agents. Makes one if there is none."""
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
