"""Where a run lies: in a folder of this machine or on HDFS. Both have the same files and names, and one owner at a time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from mpca.api.location.hdfs import HdfsRunLocation
from mpca.api.location.local import LocalRunLocation
from mpca.records import RunFolder
from mpca.storage import Location

__all__ = ["HdfsRunLocation", "LocalRunLocation", "RunLocation", "choose_location"]

RunLocation = LocalRunLocation | HdfsRunLocation


def choose_location(chosen: Path | str, name: str, wall: float, stack: ExitStack) -> RunLocation:
    """The location of a run that is to lie at `chosen`; empty: ``runs/<name>-<time>``.

    Raises:
        ConfigError: there is no store for it.
    """
    if not chosen:
        return LocalRunLocation(RunFolder.named(name, wall).path, stack)
    location = Location.parse(chosen)
    if not location.is_local:
        return HdfsRunLocation(location, stack)
    return LocalRunLocation(Path(location.path if "://" in str(chosen) else chosen), stack)
