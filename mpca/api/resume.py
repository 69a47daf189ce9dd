"""Going on from a backup: which one, and what of it the new attempt takes up."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpca.driver.joint import JointModel
from mpca.errors import BackupError
from mpca.storage import Backups, BackupState, LocalStore

__all__ = ["Resumed", "find_backup"]

log = logging.getLogger("mpca.backup")


@dataclass(frozen=True)
class Resumed:
    """A backup that a run goes on from."""

    path: str
    state: BackupState

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


def find_backup(asked: str, folder: Path) -> Resumed:
    """ "auto": the newest valid backup of `folder`; else the folder of one backup.

    Raises:
        BackupError: there is none, or the one that was named is damaged; says what is wrong with it.
    """
    if asked == "auto":
        found = Backups(LocalStore(folder.parent), folder.name).newest()
        return Resumed(found.info.path, found.state)
    path = Path(asked)
    if not path.is_dir():
        raise BackupError(f"no such backup: --resume {asked}; name the folder of a backup, or auto for the newest of --run-dir")
    return Resumed(str(path), Backups(LocalStore(path.parent.parent), path.parent.name).read(path.name))
