"""The joint model on the driver: one state a shard, moved by the method.

Where a shard's numbers come from and go to is not decided here (`cycle.py`), nor what the equations are (`algorithm`),
nor how the flat vector maps to a model's own `state_dict` (`storage.layout`).
"""

from __future__ import annotations

import numpy as np

from mpca.algorithm.joint import JointShard
from mpca.errors import BackupError
from mpca.methods.base import Method
from mpca.storage.layout import ModelLayout
from mpca.wire.messages import Hello

__all__ = ["JointModel"]


class JointModel:
    """States by shard, in the layout that the first agent's Hello described."""

    def __init__(self, method: Method, hello: Hello) -> None:
        self.method = method
        self.bounds = list(hello.bounds)
        self.parameters = hello.parameters
        self.layout = ModelLayout.of(hello.layout, hello.parameters, hello.local, hello.tied)
        self.states: list[JointShard | None] = [None] * (len(self.bounds) - 1)

    @property
    def complete(self) -> bool:
        return all(state is not None for state in self.states)

    def in_parameters(self, shard: int) -> int:
        """How many elements of the shard are parameters; the rest are buffers."""
        start, end = self.bounds[shard], self.bounds[shard + 1]
        return max(0, min(end, self.parameters) - start)

    def adopt(self, shard: int, x0: np.ndarray) -> None:
        self.states[shard] = self.method.start(x0, self.in_parameters(shard))

    def merge(self, shard: int, mean: np.ndarray) -> JointShard:
        """Take a weighted mean in (eq. 8, eq. 4) and return the new state."""
        state = self.states[shard]
        assert state is not None, f"shard {shard} has no state yet"
        state = self.method.merge(state, mean)
        self.states[shard] = state
        return state

    def state(self, shard: int) -> JointShard:
        state = self.states[shard]
        assert state is not None, f"shard {shard} has no state yet"
        return state

    def vector(self) -> np.ndarray:
        """The whole flat vector, float32[N], a copy."""
        return np.concatenate([self.state(s).x for s in range(len(self.states))])

    def trajectory(self) -> np.ndarray:
        """The trajectories of all shards, float32[parameters], a copy."""
        return np.concatenate([self.state(s).v for s in range(len(self.states))])

    def versions(self) -> list[int]:
        return [self.state(s).k for s in range(len(self.states))]

    def restore(self, vector: np.ndarray, trajectory: np.ndarray, versions: list[int]) -> None:
        """Take up the states of a backup, whatever its number of agents or shards was.

        Raises:
            BackupError: the backup is of another model.
        """
        if vector.size != self.bounds[-1] or trajectory.size != self.parameters:
            raise BackupError(
                f"the backup is of another model: it has {vector.size} elements ({trajectory.size} in parameters), "
                f"this model has {self.bounds[-1]} ({self.parameters})"
            )
        # another number of shards: every shard takes the position of the least advanced one
        same = len(versions) == len(self.states)
        position = 0
        for s in range(len(self.states)):
            start, end = self.bounds[s], self.bounds[s + 1]
            p = self.in_parameters(s)
            k = versions[s] if same else min(versions)
            self.states[s] = JointShard(vector[start:end].copy(), trajectory[position : position + p].copy(), k)
            position += p
