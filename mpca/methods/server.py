"""What the methods on a server share: agents ask by themselves, and the driver answers one at a time (`driver/server.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.methods.base import Method

__all__ = ["Server", "with_buffers"]


@dataclass(frozen=True)
class Server(Method):
    """A method without cycles: the whole model is one shard, and `serve` stands for `merge`."""

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        raise NotImplementedError(f"agents of method {self.name} ask by themselves: there is no mean")


def with_buffers(parameters: Vector, state: JointShard, sent: Vector, agents: int) -> Vector:
    """New parameters of a shard, and its buffers moved 1/K of the way to the agent's: they are statistics, and no sums.

    Args:
        parameters: float32[p].
        state: the joint state before.
        sent: of the agent, float32[n]; buffers come as they are.
        agents: K.

    Returns:
        float32[n], a new array.
    """
    x = state.x.copy()
    p = parameters.size
    x[:p] = parameters
    x[p:] += (sent[p:] - x[p:]) * (1 / agents)
    return x
