"""Going on from a backup: which one, and what of it the new attempt takes up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpca.driver.joint import JointModel
from mpca.errors import BackupError
from mpca.storage import Backups, BackupState, Location, Store

__all__ = ["Resumed", "find_backup"]

log = logging.getLogger("mpca.backup")


@dataclass(frozen=True)
class Resumed:
    """A backup that a run goes on from."""

    path: str
    state: BackupState
    passed_over: tuple[str, ...] = ()  # what is wrong with newer ones

    @property
    def told(self) -> list[str]:
        """Lines for the person who watches the run."""
        return [f"going on from {self.path}, cycle {self.cycle}", *(f"passed over: {one}" for one in self.passed_over)]

    @property
    def cycle(self) -> int:
        """The first cycle of the new attempt."""
        return self.state.cycle

    @property
    def trained_s(self) -> float:
        return float(self.state.progress.get("trained_s", 0.0))

    @property
    def t(self) -> float:
        """Where the records of the new attempt go on."""
        return float(self.state.progress.get("t", 0.0))

    @property
    def progress(self) -> dict[str, Any]:
        return self.state.progress

    def restore(self, joint: JointModel) -> None:
        """Raises BackupError when the train function builds another model than the backup's."""
        mine, theirs = joint.layout, self.state.layout
        if mine.digest != theirs.digest:
            for one, other in zip(mine.tensors, theirs.tensors, strict=False):
                if one[:2] != other[:2]:
                    raise BackupError(
                        f"the backup is of another model: path={self.path}, it has {other[0]} {list(other[1])} "
                        f"where this model has {one[0]} {list(one[1])}"
                    )
            raise BackupError(
                f"the backup is of another model: path={self.path}, tensors={len(theirs.tensors)}, here={len(mine.tensors)}"
            )
        joint.restore(self.state.vector, self.state.trajectory, self.state.exchanges)


def find_backup(
    asked: str | None, folder: Location, open_at: Callable[[Location], Store], again: bool = False
) -> Resumed | None:
    """The backup to go on from; None for a run that begins.

    Args:
        asked: "auto" for the newest valid one of `folder`, the path or URL of one, or None.
        folder: of this run's backups.
        open_at: opens the store of a location.
        again: a driver that was started again goes on from the newest of `folder`, if there is any, whatever was asked.

    Raises:
        BackupError: there is none, or the one that was named is damaged; says what is wrong with it.
    """
    if not asked and not again:
        return None
    backups = Backups(open_at(folder.parent), folder.name)
    if asked == "auto" or (again and backups.found()):
        if again and not backups.found():
            return None
        found = backups.newest()
        return Resumed(found.info.path, found.state, tuple(found.passed_over))
    if not asked:
        return None
    at = Location.parse(asked)
    if not open_at(at.parent).exists(at.name):
        raise BackupError(f"no such backup: --resume {asked}; name the folder of a backup, or auto for the newest of --run-dir")
    return Resumed(at.text, Backups(open_at(at.parent.parent), at.parent.name).read(at.name))
