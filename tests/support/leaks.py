"""What this process holds: children, descriptors, and files of ours in /dev/shm."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Held", "wait_until_gone"]

#: Opened once by libraries and kept on purpose.
_KEPT = ("/dev/urandom", "/dev/null", "/proc/", "/sys/", "/dev/nvidia")


@dataclass(frozen=True)
class Held:
    """A look at one moment. Processes are told apart by pid and start, descriptors by number and target."""

    processes: frozenset[tuple[int, float, str]]
    descriptors: frozenset[tuple[int, str]]
    shared: frozenset[str]

    @classmethod
    def now(cls) -> Held:
        processes = set()
        for child in psutil.Process().children(recursive=True) if _may_have_children() else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                processes.add((child.pid, child.create_time(), " ".join(child.cmdline())[:120] or child.name()))
        descriptors = set()
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
                target = os.readlink(f"/proc/self/fd/{name}")
                if not target.startswith(_KEPT):
                    descriptors.add((int(name), target))
        shared = {path.name for path in Path("/dev/shm").iterdir() if "mpca" in path.name}
        return cls(frozenset(processes), frozenset(descriptors), frozenset(shared))

    def beyond(self, before: Held) -> list[str]:
        """What there is now and was not before, one line each."""
        known = {(pid, started) for pid, started, _ in before.processes}
        return [
            *(f"process {pid} ({what})" for pid, started, what in sorted(self.processes) if (pid, started) not in known),
            *(f"descriptor {fd} -> {target}" for fd, target in sorted(self.descriptors - before.descriptors)),
            *(f"/dev/shm/{name}" for name in sorted(self.shared - before.shared)),
        ]


def _may_have_children() -> bool:
    """The kernel knows at once; psutil reads about every process of the machine, which is half the time of a short test."""
    try:
        return any(Path(f"/proc/self/task/{task}/children").read_bytes() for task in os.listdir("/proc/self/task"))
    except OSError:  # a thread has just ended, or this kernel keeps no such list
        return True


def wait_until_gone(before: Held, seconds: float = 5.0) -> list[str]:
    """What is left beyond `before` once everything that is about to end has had the time to."""
    deadline = time.monotonic() + seconds
    while left := Held.now().beyond(before):
        gc.collect()
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []
