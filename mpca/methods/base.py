"""The base class of methods. A method makes a few decisions for the driver and the agent, but never moves bytes.

A method is a frozen dataclass of its numbers, so that it travels to the agents as a plain map. The defaults here are those of a
method that exchanges one shard in one phase, without pull and without projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mpca.algorithm import JointShard, init
from mpca.algorithm.averaging import Vector

__all__ = ["ARRIVALS", "INSTALLS", "Method"]

#: What an agent does with an arrival: make it the target of the penalty; take it as its own state, buffers included;
#: or add to its parameters what the arrival has beyond the snapshot that it answers (`algorithm.penalty.correct`).
ARRIVALS = ("target", "replace", "correct")
#: When an agent takes an arrival in: at its next interruption for that shard, or between any two batches.
INSTALLS = ("exchange", "arrival")


@dataclass(frozen=True)
class Method(ABC):
    """One method of training together. Vectors are float32 and belong to one shard: parameters first, then buffers."""

    name: ClassVar[str]

    # ---- both sides ----

    def to_dict(self) -> dict[str, Any]:
        """``{"name": ..., its numbers}``; `table.from_dict` reads it back as an equal method."""
        return {"name": self.name, **asdict(self)}

    def for_agents(self) -> dict[str, Any]:
        """As `to_dict`, without alpha: `alpha_for` decides it, and it comes to the agents with every joint state."""
        return {key: value for key, value in self.to_dict().items() if key != "alpha"}

    @property
    def shards(self) -> int:
        """S: the number of the model's shards."""
        return 1

    @property
    def phases(self) -> int:
        """P: the number of stages (reduce, prepare, broadcast) that run at once, 1 <= P <= min(S, 3)."""
        return 1

    @property
    def layer_aligned(self) -> bool:
        """Whether shards end at tensor edges (`ShardPlan.layer_aligned`) instead of being equal in bytes."""
        return False

    # ---- driver ----

    @property
    def exchanges(self) -> bool:
        """Whether joint states are broadcast; if not, the driver only reads the agents."""
        return True

    def agents(self, wanted: int) -> int:
        """Number of agents to start when the user wants `wanted`."""
        return wanted

    def start(self, x0: Vector, parameters: int) -> JointShard:
        """Joint state of a shard before its first exchange; `parameters` of its elements are parameters."""
        return init(x0, parameters)

    @abstractmethod
    def merge(self, state: JointShard, mean: Vector) -> JointShard:
        """The joint state after an exchange. `mean` is the average of the contributions (eq. 9); this may change it.

        Not called when the weights sum to 0: then there is no mean, and no new version.
        """

    def outgoing(self, state: JointShard) -> Vector:
        """The vector to broadcast for a joint state, float32[n]; read-only. It is `state.x` without a projection."""
        return state.x

    # ---- agent ----

    @property
    def arrival(self) -> str:
        """One of `ARRIVALS`."""
        return "target"

    @property
    def install(self) -> str:
        """One of `INSTALLS`."""
        return "exchange"

    @property
    def install_first(self) -> bool:
        """Whether an interruption installs a waiting joint state before it takes the snapshot."""
        return False

    @property
    def hold_after(self) -> int:
        """0: the agent never waits. n: it exchanges after every n updates, in step with the others.

        The agent answers a SnapshotRequest when it has done exactly n updates since its last install (or since x_0), then takes
        no further step until the answering joint state is installed.
        """
        return 0

    def penalty(self, alpha: float, updates: int | None) -> float:
        """alpha of eq. 7 before the next gradient of an agent.

        Args:
            alpha: the driver's `alpha_for`, which came with the installed joint state.
            updates: this agent's updates since it installed version 1 of the shard; None: it began at a later version.
        """
        return alpha

    # ---- ledger: the numbers in force, as `records.Cycle` shows them ----

    def alpha_for(self, tau: float) -> float:
        """alpha for a joint state whose shard had `tau` updates on average in its last exchange; 0: no pull."""
        return 0.0

    def beta_at(self, exchange: int) -> float:
        """beta of exchange `exchange` of a shard, counted from 0."""
        return 1.0

    def gamma_at(self, exchange: int) -> float:
        """gamma of the joint state that exchange `exchange` makes."""
        return 0.0

    def numbers(self, version: int) -> tuple[float, float]:
        """beta and gamma of the joint state of this version, which exchange ``version - 1`` made."""
        exchange = max(0, version - 1)
        return self.beta_at(exchange), self.gamma_at(exchange)
