"""The base class of methods. A method makes a few decisions for the driver and the agent, but never moves bytes.

A method is a frozen dataclass of its numbers, so that it travels to the agents as a plain map. The defaults here are those of a
method that exchanges one shard in one phase, without pull and without projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

from mpca.algorithm import JointShard, Outer, init
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide

__all__ = ["Method", "Served", "check_outer"]


class Served(NamedTuple):
    """What a method makes of what an agent sent of a shard."""

    state: JointShard  # the new joint state
    answer: Vector  # for that agent alone, float32[n]; read-only
    share: float  # of the answer that the agent takes (`How.MIX`), or of what it sent that was taken in


@dataclass(frozen=True)
class Method(ABC):
    """One method of training together. Vectors are float32 and belong to one shard: parameters first, then buffers."""

    name: ClassVar[str]
    simulated: ClassVar[bool] = False
    """Whether it is in the simulator alone (`sim.gossip`), and refused on Spark."""

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
    def auto_shards(self) -> bool:
        """Whether the driver decides S before the first step, by `algorithm.shards_for`. `shards` is where it begins."""
        return False

    @property
    def phases(self) -> int:
        """P: the number of stages (reduce, prepare, broadcast) that run at once, 1 <= P <= min(S, 3)."""
        return 1

    @property
    def layer_aligned(self) -> bool:
        """Whether shards end at tensor edges (`ShardPlan.layer_aligned`) instead of being equal in bytes."""
        return False

    def cut(self, shards: int) -> Method:
        """This method with a number of shards that the driver has decided. Only with `auto_shards`."""
        raise NotImplementedError(f"method {self.name} has its own number of shards")

    # ---- driver ----

    @property
    def exchanges(self) -> bool:
        """Whether joint states are broadcast; if not, the driver only reads the agents."""
        return True

    @property
    def asks(self) -> bool:
        """Whether agents ask by themselves, so that the driver serves them (`serve`) and makes no mean (`merge`)."""
        return self.agent_side.asks

    @property
    def weighted(self) -> bool:
        """Whether a contribution counts by its updates (eq. 9); if not, all with any update count alike."""
        return True

    def agents(self, wanted: int) -> int:
        """Number of agents to start when the user wants `wanted`."""
        return wanted

    def start(self, x0: Vector, parameters: int) -> JointShard:
        """Joint state of a shard before its first exchange, with x0 itself; `parameters` of its elements are parameters."""
        return init(x0, parameters)

    @abstractmethod
    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        """The joint state after an exchange. `mean` is the average of the contributions (eq. 9).

        Not called when the weights sum to 0: then there is no mean, and no new version.

        Args:
            state: the joint state before; its arrays stay as they are, but for `v_into`.
            mean: float32[n]; this may change it, and it may become the new state's x.
            v_into: float32[p], where the new state's v may go; it may be the old one. None: into a new array.
        """

    def serve(self, state: JointShard, sent: Vector, staleness: int, agents: int) -> Served:
        """Take in what one agent sent of a shard, and answer it. Only with `asks`.

        Args:
            state: the joint state; nobody writes to its arrays.
            sent: float32[n], as `agent_side.sends` says; this may change it.
            staleness: exchanges of the shard since the joint state that the agent took last.
            agents: of the run.
        """
        raise NotImplementedError(f"agents of method {self.name} do not ask by themselves")

    @property
    def outer(self) -> Outer | None:
        """The outer optimiser with which `merge` moves the joint state (`algorithm.outer`); None: eq. 8 with `beta_at`."""
        return None

    @property
    def direction(self) -> str:
        """What v of a joint state is. A run that resumes takes the v of its backup from a method with the same word only."""
        return f"the momentum of {self.name}" if self.outer is not None else "unused"

    def outgoing(self, state: JointShard, into: Vector | None = None) -> Vector:
        """The vector to broadcast for a joint state, float32[n]; read-only.

        Args:
            state: the joint state.
            into: float32[n], where a projection goes; None: into a new array.

        Returns:
            `state.x` without a projection, else the projection.
        """
        return state.x

    # ---- agent ----

    @property
    def agent_side(self) -> AgentSide:
        """How and when an agent applies a joint state."""
        return AgentSide()

    @property
    def takes_gradients(self) -> bool:
        """Whether it takes an agent's update for a gradient. Then the agents' optimisers must be plain SGD."""
        return False

    # ---- ledger: the numbers in force, as `records.Cycle` shows them ----

    def alpha_for(self, tau: float, agents: int) -> float:
        """alpha for a joint state; 0: no pull.

        Args:
            tau: updates of the shard in its last exchange, mean of those who contributed.
            agents: how many these were.
        """
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


def check_outer(rate: float, momentum: float) -> None:
    """Check the keys outer_lr and outer_momentum of a method with an outer optimiser.

    Raises:
        ConfigError: the rate is outside (0, 2], where it would diverge even without momentum, or the momentum outside [0, 1).
    """
    if not 0 < rate <= 2:
        raise refused("method.outer_lr", rate, "must be above 0, and at most 2")
    if not 0 <= momentum < 1:
        raise refused("method.outer_momentum", momentum, "must lie in [0, 1)")
