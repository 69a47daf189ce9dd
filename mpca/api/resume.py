"""Going on from a backup: which backup it is, and what the new attempt takes from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpca.algorithm.sharding import LEAST_SHARDS
from mpca.driver.joint import JointModel
from mpca.driver.reader_tracker import ReaderTracker
from mpca.errors import BackupError, ConfigError
from mpca.methods import Method, from_dict, to_dict
from mpca.storage import Backups, BackupState, Location, ModelLayout, Store

__all__ = ["Resumed", "check_position", "find_backup", "other_model", "refuse_weights"]

log = logging.getLogger("mpca.backup")

_TAKEN = np.empty(0, np.float32)
#: How files of weights are called.
_WEIGHTS = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".safetensors", ".npz")


@dataclass
class Resumed:
    """A backup that a run goes on from. Its vectors, two models, are let go once a joint model was filled from them."""

    path: str
    state: BackupState
    passed_over: tuple[str, ...] = ()  # what is wrong with newer backups

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
        """Seconds since the run began, at which the records of the new attempt go on."""
        return float(self.state.progress.get("t", 0.0))

    @property
    def progress(self) -> dict[str, Any]:
        return self.state.progress

    def method(self, method: Method) -> Method:
        """The method, with the backup's number of shards in place of an "auto" one: a run that goes on reads no x_0."""
        return method.cut(max(LEAST_SHARDS, len(self.state.exchanges))) if method.auto_shards else method

    def agent_states(self, agents: int, method: Method) -> dict[int, dict[str, Any]]:
        """`Start.state` of each agent, if the backup has all of them: url, bytes, sha256.

        Args:
            agents: how many this attempt has.
            method: of this attempt.
        """
        held, before = self.state.agents, self._method_before()
        if not held:
            return {}
        why = f"it was of {len(held)} agents, and this run has {agents}" if len(held) != agents else ""
        # An "auto" number of shards that was decided to be the least one still says "auto" in the backup.
        if not why and (before is None or to_dict(self.method(before)) != to_dict(method)):
            name = self.state.method.get("name")
            why = f"method {name} had other settings" if method.name == name else "another method made it"
        if why:
            log.warning("agents begin at the joint model of %s, with new optimizers: %s", self.path, why)
            return {}
        folder = Location.parse(self.path).url
        return {
            int(agent): {"url": f"{folder}/{one['file']}", "bytes": one["bytes"], "sha256": one["sha256"]}
            for agent, one in held.items()
        }

    def restore(self, joint: JointModel) -> None:
        """Fill the joint model from the backup, once.

        The backup's trajectory or momentum is taken if it is that of this run's method; else it begins at 0. So it is with the
        optimisers' state that this run's method exchanges: it is taken from a backup that has the same tensors of it.

        Raises:
            BackupError: the train function builds another model than the backup's.
        """
        mine, theirs = joint.layout, self.state.layout
        if mine.digest != theirs.digest:
            raise other_model(self.path, theirs.model, mine.model)
        if not mine.same_local(theirs):
            ours, others = ([(name, shape) for name, (_, shape, _) in layout.local.items()] for layout in (mine, theirs))
            raise other_model(self.path, others, ours)
        joint.layout = replace(mine, local=theirs.local)
        vector, trajectory = self.state.vector, self.state.trajectory
        if mine.tensors != theirs.tensors:
            vector = self._other_updater(mine)
        elif mine.orders != theirs.orders:  # the same tensors, but this model has them in another order in memory
            vector = mine.flat(theirs.model_tensors(vector) | theirs.updater_tensors(vector))
        if mine.orders != theirs.orders:
            trajectory = mine.flat_parameters(theirs.trajectory_tensors(trajectory))
        if not self._same_direction(joint.method):
            trajectory = np.zeros_like(trajectory)
        joint.restore(vector, trajectory, self.state.exchanges)
        self.state = replace(self.state, vector=_TAKEN, trajectory=_TAKEN)

    def _other_updater(self, mine: ModelLayout) -> np.ndarray:
        """The backup's model, with zeros for the optimisers' state: the backup has none of it, or that of other optimisers."""
        if mine.updater:
            log.warning("the backup has not the state of these optimizers: path=%s; their state begins anew", self.path)
        theirs, vector = self.state.layout, self.state.vector
        nothing = mine.updater_tensors(np.zeros(mine.total, np.float32))
        return mine.flat(theirs.model_tensors(vector) | nothing)

    def _same_direction(self, method: Method) -> bool:
        """Whether the backup's v means to this method what it meant to the one that made it."""
        before = self._method_before()
        same = before is not None and before.direction == method.direction
        if not same:
            log.warning(
                "method %s goes on from a backup of method %s: its trajectory or momentum begins at 0",
                method.name,
                self.state.method.get("name"),
            )
        return same

    def _method_before(self) -> Method | None:
        """The method that made the backup, unless this version does not know it."""
        try:
            return from_dict(self.state.method)
        except (ConfigError, TypeError):
            return None


def other_model(path: str, theirs: Sequence[Sequence[Any]], mine: Sequence[Sequence[Any]]) -> BackupError:
    """The error for a backup of another model, with the first tensor that differs.

    Args:
        path: of the backup.
        theirs: (name, shape, ...) of its tensors.
        mine: the same of the model that is trained here.
    """
    for one, other in zip(mine, theirs, strict=False):
        if (one[0], list(one[1])) != (other[0], list(other[1])):
            return BackupError(
                f"the backup is of another model: path={path}, it has {other[0]} {list(other[1])} where this model has "
                f"{one[0]} {list(one[1])}"
            )
    return BackupError(f"the backup is of another model: path={path}, it has {len(theirs)} tensors and this model {len(mine)}")


def find_backup(
    asked: str | None, folder: Location, open_at: Callable[[Location], Store], again: bool = False
) -> Resumed | None:
    """The backup to go on from; None for a run that begins.

    Args:
        asked: "auto" for the newest valid backup in `folder`, the path or URL of a backup, or None.
        folder: of this run's backups.
        open_at: opens the store of a location.
        again: whether this driver was started again. Then it goes on from the newest backup in `folder`, if there is any,
            whatever was asked.

    Raises:
        BackupError: there is no backup, or the named one is damaged; says what is wrong with it.
    """
    if not asked and not again:
        return None
    backups = Backups(open_at(folder.parent), folder.name)
    if asked == "auto" or (again and backups.found()):
        if again and not backups.found():
            return None
        found = backups.newest(check_position)
        return Resumed(found.info.path, found.state, tuple(found.passed_over))
    if not asked:
        return None
    refuse_weights(asked)
    at = Location.parse(asked)
    if not open_at(at.parent).exists(at.name):
        raise BackupError(f"no such backup: --resume {asked}; name the folder of a backup, or auto for the newest of --run-dir")
    return Resumed(at.text, Backups(open_at(at.parent.parent), at.parent.name).read(at.name, check_position))


def refuse_weights(asked: str) -> None:
    """Refuse a file of weights where a backup must be named. mpca unpickles no file; the user's own function may.

    Raises:
        ConfigError: it is one by its name.
    """
    if asked.lower().endswith(_WEIGHTS):
        raise ConfigError(
            f"--resume {asked}: a file of weights is no backup, which is a folder; to begin with weights, load them in the "
            "train function before mpca.attach: model.load_state_dict(torch.load(path, weights_only=True))"
        )


def check_position(state: BackupState) -> None:
    """Check that a run can go on from the backup's position in the data.

    Raises:
        BackupError: it cannot.
    """
    ReaderTracker(1, state.data)
