"""The port to whatever holds the agents: Spark executors (`spark.cluster`) or a simulated network (`sim.cluster`).

Calls return at once; their results arrive as events from `poll`. Nothing here assumes that the joint model is one array:
there is one sum and one broadcast for each shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mpca.driver.events import ClusterEvent
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.orders import Order

__all__ = ["AgentSpec", "Cluster", "Outgoing"]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What an agent process is started with. `start` is the packed Start message, without agent and incarnation."""

    python: str  # interpreter
    env: dict[str, str]
    start: dict[str, Any]  # fields of wire.messages.Start
    preload: bool = True  # whether executors fork agents from a process that has imported torch


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Which joint state a vector is that goes out, for a cluster whose codec takes differences from it."""

    shard: int
    version: int
    parameters: int  # of the shard; the elements behind them are buffers
    replaces: bool  # it goes to agents that join, and not into an exchange


class Cluster(Protocol):
    """See the module's text."""

    def start_agent(self, who: AgentRef, spec: AgentSpec) -> None:
        """Submit the holding job of one agent, pinned to one executor. Events: AgentHello, AgentDied, HoldEnded, ...

        Args:
            who: the process; when it lives, the job takes hold of it.
            spec: what the process is started with.
        """
        ...

    def submit(self, order: Order) -> None:
        """Run an order as a job. Events: OrderDone, or OrderFailed at the first failed task; Acknowledged for its downloads."""
        ...

    def cancel(self, order: int, reason: str) -> None:
        """End a job that is over its deadline; OrderFailed follows.

        Args:
            order: number of the order.
            reason: why, for the event.
        """
        ...

    def room(self, elements: int) -> np.ndarray:
        """Memory for a vector that comes from the cluster and goes to it, float32[elements], with anything in it.

        It is not copied on its way to the cluster. It is freed like any other array.

        Raises:
            OSError: there is not that much memory.
        """
        ...

    def take_sum(self, order: int, length: int, into: np.ndarray | None = None) -> np.ndarray:
        """Take the sum that a finished order's reduce made, and free it in the cluster.

        Args:
            order: number of the order.
            length: bytes of the shard.
            into: float32[length / 4], of `room`, where it may be put; None: it is put into a new array.

        Returns:
            float32[length / 4], the caller's.
        """
        ...

    def publish(self, vector: np.ndarray, joint: Outgoing | None = None) -> int:
        """Make a broadcast ready for download.

        Args:
            vector: float32, one shard.
            joint: what it is; None: nothing that a codec may know.

        Returns:
            Its number, unique in the run.
        """
        ...

    def withdraw(self, broadcast: int) -> None:
        """Free a broadcast on the driver; executors drop it by `Order.forget_broadcasts`."""
        ...

    def take_sent(self, who: AgentId, number: int, length: int) -> np.ndarray:
        """Take what an agent sent by an Exchange (`ExchangeArrived`), and free it on the driver.

        Args:
            who: the process.
            number: of its exchange.
            length: bytes of the shard.

        Returns:
            float32[length / 4], a copy.
        """
        ...

    def answer(self, who: AgentId, number: int, vector: np.ndarray, version: int, mode: str, share: float) -> None:
        """Answer an Exchange: the agent's executor fetches the vector and installs it. The agent goes on then.

        What was sent is freed on the driver, if it was not taken. The next Exchange may arrive then.

        Args:
            who: the process.
            number: of its exchange.
            vector: float32, the shard for this agent alone.
            version: of the joint state.
            mode: for `Install.mode`: "install", or "replace".
            share: for `Install.alpha`.
        """
        ...

    def rediscover(self, executors: list[str]) -> None:
        """Ask the registries of these executors which agents live. Events: AgentsFound, from each that can be reached."""
        ...

    def poll(self, timeout_s: float) -> list[ClusterEvent]:
        """Take the events since the last call; wait up to `timeout_s` seconds for the first.

        Returns:
            Events, oldest first.
        """
        ...

    def close(self) -> None:
        """Kill what is left and free everything. It is safe to call this twice."""
        ...
