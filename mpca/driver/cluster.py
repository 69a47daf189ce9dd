"""The port to whatever holds the agents: Spark executors (`spark.cluster`) or a simulated network (`sim.cluster`).

Calls return at once; what comes of them arrives as events from `poll`. Nothing here assumes that the joint model is one array:
sums and broadcasts go by shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mpca.driver.events import ClusterEvent
from mpca.wire.orders import Order

__all__ = ["AgentSpec", "Cluster"]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What an agent process is started with. `start` is the packed Start message but for agent and incarnation."""

    python: str  # interpreter
    env: dict[str, str]
    start: dict[str, Any]  # fields of wire.messages.Start


class Cluster(Protocol):
    """See the module's text."""

    def start_agent(self, agent: int, incarnation: int, executor: str, spec: AgentSpec) -> None:
        """Submit the holding job of one agent, pinned to `executor`. Events: AgentHello, AgentDied, HoldEnded, ..."""
        ...

    def submit(self, order: Order) -> None:
        """Events: OrderDone, or OrderFailed at the first failed task; Acknowledged for its downloads."""
        ...

    def cancel(self, order: int, reason: str) -> None:
        """End a job that is over its deadline; OrderFailed follows."""
        ...

    def take_sum(self, order: int, length: int) -> np.ndarray:
        """The sum that a finished order's reduce made: float32, a copy. Frees it in the cluster."""
        ...

    def publish(self, vector: np.ndarray) -> int:
        """Make a broadcast of float32 `vector` ready for download; returns its id (unique in the run)."""
        ...

    def withdraw(self, broadcast: int) -> None:
        """Free a broadcast on the driver; executors drop it by `Order.forget_broadcasts`."""
        ...

    def rediscover(self, executors: list[str]) -> None:
        """Ask the registries of these executors which agents live. Events: AgentsFound, from each that can be reached."""
        ...

    def poll(self, timeout_s: float) -> list[ClusterEvent]:
        """Events since the last call, oldest first; waits up to `timeout_s` for the first."""
        ...

    def close(self) -> None:
        """Kill what is left and free everything; safe to call twice."""
        ...
