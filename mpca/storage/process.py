"""Identifies the process that wrote a lock, even if another process gets its id later, or has it on another machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Process"]

_START = 19  # index of the start time among the fields after the name in /proc/PID/stat


@dataclass(frozen=True)
class Process:
    """One process. Its id alone is not enough: it holds for one pid namespace, one start of the machine, and one process."""

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
        """The reverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: the values are not those of a process.
        """
        return cls(str(values["boot"]), str(values["namespace"]), int(values["pid"]), int(values["start"]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lives(self, proc: Path = Path("/proc")) -> bool | None:
        """Whether the process still runs; None when this cannot be seen: on another machine or in another container."""
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
    except ProcessLookupError:  # the process ended between opening and reading
        raise FileNotFoundError(pid) from None
    return int(text.rpartition(")")[2].split()[_START])
