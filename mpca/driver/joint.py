"""The joint model on the driver: one state a shard, moved by the method.

Beside x and v of all shards there is room for one shard more: for a sum, which becomes the new x, and then for what goes out,
which lies in what was the old x. So a merge overwrites the state before it, but for an x that was lent (`lend`).

Other files decide where a shard's numbers come from and go to (`exchange.py`), what the equations are (`algorithm`), and how
the flat vector maps to a model's own `state_dict` (`storage.layout`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from mpca.algorithm.joint import JointShard
from mpca.algorithm.sharding import ShardPlan
from mpca.errors import BackupError
from mpca.methods.base import Method, Served
from mpca.storage.layout import ModelLayout
from mpca.wire.messages import Hello

__all__ = ["JointModel"]


class JointModel:
    """States by shard, in the layout that the first agent's Hello described.

    Args:
        method: moves the states.
        hello: of the first agent.
        empty: makes the arrays of joint states and of what goes out, float32[elements]; None: numpy does.
    """

    def __init__(self, method: Method, hello: Hello, empty: Callable[[int], np.ndarray] | None = None) -> None:
        self.method = method
        self._empty = empty or _empty
        shards = method.shards
        self.bounds = list(hello.bounds[: shards + 1])
        self.plan = ShardPlan(self.bounds[-1], hello.parameters, shards, tuple(self.bounds))
        self.layout = ModelLayout.of(hello.layout, hello.parameters, hello.local, hello.tied)
        self.states: list[JointShard | None] = [None] * shards
        # Local tensors lie in shards behind the model's: their edges in words, and the words that have come so far.
        self._local_edges = [edge - hello.bounds[shards] for edge in hello.bounds[shards:]]
        self._local = np.zeros(self._local_edges[-1], np.float32)
        self._spare = np.empty(0, np.float32)
        self._lent: set[int] = set()  # shards whose x somebody keeps

    @property
    def complete(self) -> bool:
        """Whether every shard has a state."""
        return all(state is not None for state in self.states)

    def adopt(self, shard: int, x0: np.ndarray) -> None:
        """Take x_0 of a shard, or a shard of local tensors. Local tensors count once the last of their shards is there.

        Args:
            shard: its number; those of local tensors lie behind the model's.
            x0: float32[length of the shard]; it is the joint model's from now on.
        """
        piece = shard - len(self.states)
        if piece >= 0:
            self._local[self._local_edges[piece] : self._local_edges[piece + 1]] = x0
            if piece + 2 == len(self._local_edges):
                self.layout = self.layout.with_words(self._local)
            return
        x = x0 if _whole(x0) is x0 else x0.copy()
        self.states[shard] = self.method.start(x, self.plan.parameters_in(shard))

    def room(self, shard: int) -> np.ndarray:
        """Where a mean of a shard may lie, float32[length of the shard]; valid until the next call here."""
        size = self.bounds[shard + 1] - self.bounds[shard]
        # Shards that are equal but for an element share one array. It is kept: fresh pages cost more than what is computed.
        if not size <= self._spare.size <= size + size // 64 + 1:
            largest = max(b - a for a, b in pairwise(self.bounds))
            self._spare = np.empty(0, np.float32)  # first: its memory may have room for the next
            self._spare = self._empty(min(largest, size + size // 64 + 1))
        return self._spare[:size]

    def merge(self, shard: int, mean: np.ndarray) -> JointShard:
        """Take a weighted mean into the joint state of a shard (eq. 8, eq. 4).

        Args:
            shard: its number.
            mean: R of eq. 8, float32[length of the shard]; it is the joint model's from now on.

        Returns:
            The new state. The x of the old one stays as it is until the next call of `outgoing` or `room`; its v may be
            overwritten.
        """
        before = self.state(shard)
        state = self.method.merge(before, mean, before.v)
        if _whole(state.x) is self._spare:  # not all methods make the mean's array their own
            self._spare = np.empty(0, np.float32) if shard in self._lent else _whole(before.x)
        self._lent.discard(shard)
        self.states[shard] = state
        return state

    def lend(self) -> list[np.ndarray]:
        """The flat vector as it is, in a piece for each shard, for who keeps it: nobody writes to these arrays any more."""
        self._lent.update(range(len(self.states)))
        return [self.state(shard).x for shard in range(len(self.states))]

    def outgoing(self, shard: int) -> np.ndarray:
        """The vector to broadcast for a shard, float32[length of the shard]; valid until the next call here."""
        return self.method.outgoing(self.state(shard), self.room(shard))

    def serve(self, shard: int, sent: np.ndarray, staleness: int, agents: int) -> Served | None:
        """Take in what one agent sent of a shard.

        Args:
            shard: its number.
            sent: float32[length of the shard].
            staleness: as in `Method.serve`.
            agents: of the run.

        Returns:
            What the method made of it; None: the joint state would not be finite, so it stays.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            served = self.method.serve(self.state(shard), sent, staleness, agents)
        if not np.isfinite(served.state.x).all():
            return None
        self.states[shard] = served.state
        return served

    def state(self, shard: int) -> JointShard:
        """The state of a shard, which must have one."""
        state = self.states[shard]
        assert state is not None, f"shard {shard} has no state yet"
        return state

    def vector(self) -> np.ndarray:
        """The whole flat vector, float32[N], a copy."""
        return np.concatenate([self.state(s).x for s in range(len(self.states))])

    def local_parts(self) -> list[tuple[int, np.ndarray]]:
        """The local tensors, for agents that take the joint model as their own.

        Returns:
            (shard, words as float32) of each of their shards.
        """
        words, edges = self.layout.words(), self._local_edges
        return [(len(self.states) + j, words[a:b]) for j, (a, b) in enumerate(pairwise(edges))]

    def trajectory(self) -> np.ndarray:
        """The trajectories of all shards, float32[parameters], a copy."""
        return np.concatenate([self.state(s).v for s in range(len(self.states))])

    def versions(self) -> list[int]:
        """Exchanges of each shard so far."""
        return [self.state(s).k for s in range(len(self.states))]

    def begin_again(self, other: JointModel) -> None:
        """Hand x_0 and the local tensors over to the joint model of the same layout in other shards, and keep no copy."""
        other.layout = self.layout
        vector, trajectory, self.states = self.vector(), self.trajectory(), []
        other.restore(vector, trajectory, [0] * len(other.states))

    def restore(self, vector: np.ndarray, trajectory: np.ndarray, versions: list[int]) -> None:
        """Take up the states of a backup, whatever its number of agents or shards was.

        Args:
            vector: the flat vector of all shards, float32[N].
            trajectory: of the parameters, float32[parameters].
            versions: exchanges of each shard of the backup.

        Raises:
            BackupError: the backup is of another model.
        """
        if vector.size != self.bounds[-1] or trajectory.size != self.plan.parameters:
            raise BackupError(
                f"the backup is of another model: it has {vector.size} elements ({trajectory.size} in parameters), "
                f"this model has {self.bounds[-1]} ({self.plan.parameters})"
            )
        # another number of shards: every shard takes the position of the least advanced one
        same = len(versions) == len(self.states)
        position = 0
        for s in range(len(self.states)):
            start, end = self.bounds[s], self.bounds[s + 1]
            p = self.plan.parameters_in(s)
            k = versions[s] if same else min(versions)
            x = self._empty(end - start)
            x[:] = vector[start:end]
            self.states[s] = JointShard(x, trajectory[position : position + p].copy(), k)
            position += p


def _empty(elements: int) -> np.ndarray:
    return np.empty(elements, np.float32)


def _whole(vector: np.ndarray) -> np.ndarray:
    """The array that a vector is a piece of."""
    return vector.base if isinstance(vector.base, np.ndarray) else vector
