"""What all trackers have in common: how a run begins there, gets numbers, and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mpca.track.scalars import Scalar

__all__ = ["Begin", "Tracker"]


@dataclass(frozen=True)
class Begin:
    """What a tracker is told first. Plain values: they travel as JSON."""

    name: str  # of the run
    project: str  # that the run belongs to
    folder: str  # of the run, on this machine
    where: str  # the same for people: a path, or a URL on HDFS
    parameters: Mapping[str, str]  # the configuration by "section.key", without secrets
    wall: float  # seconds since 1970 at t = 0
    attempt: int = 1
    run: str = ""  # what an earlier attempt is called there; empty: there is none
    uri: str = ""  # of the server; empty: as the client's own variables say
    in_parts: bool = False  # whether a growing file cannot be copied to where the run lies


class Tracker(Protocol):
    """Each call may raise anything, and is then repeated with the same arguments."""

    def begin(self, run: Begin) -> tuple[str, str]:
        """Begin, or go on with `run.run`.

        Returns:
            What the run is called there, and its URL; empty: it has none.
        """
        ...

    def log(self, scalars: Sequence[Scalar]) -> None:
        """Take numbers, oldest first."""
        ...

    def end(self, status: str, reason: str, files: Sequence[str]) -> None:
        """Take the run's files: report, summary, configuration and model; and how it ended."""
        ...
