"""Which process wrote a lock, told apart from every other that has its number later, or on another machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Process"]

_START = 19  # of the fields behind the name in /proc/PID/stat


@dataclass(frozen=True)
class Process:
    """A number means something in its pid namespace, until the machine starts again, and for one start of a process."""

    boot: str  # id of the machine's last start
    namespace: str  # "pid:[4026531836]"
    pid: int
    start: int  # clock ticks from the machine's start to the process's

    @classmethod
    def here(cls, proc: Path = Path("/proc")) -> Process:
        """This process."""
        pid = os.getpid()
        return cls(_boot(proc), _namespace(proc), pid, _start(proc, pid))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Process:
        """Raises KeyError, TypeError or ValueError when they are not those of a process."""
        return cls(str(values["boot"]), str(values["namespace"]), int(values["pid"]), int(values["start"]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lives(self, proc: Path = Path("/proc")) -> bool | None:
        """Whether it still runs; None when it cannot be seen from here: another machine or container, or another start."""
        if (self.boot, self.namespace) != (_boot(proc), _namespace(proc)):
            return None
        try:
            return _start(proc, self.pid) == self.start
        except FileNotFoundError:
            return False


def _boot(proc: Path) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def _namespace(proc: Path) -> str:
    return os.readlink(proc / "self/ns/pid")


def _start(proc: Path, pid: int) -> int:
    try:
        text = (proc / str(pid) / "stat").read_text()
    except ProcessLookupError:  # it ended between opening and reading
        raise FileNotFoundError(pid) from None
    return int(text.rpartition(")")[2].split()[_START])
