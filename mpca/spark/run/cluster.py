"""The cluster port over Spark executors: the driver's decisions go to the JVM, and its answers become events.

This file is thin on purpose. Decisions are in `mpca.driver`, jobs and bytes in the JVM (``org.mpca.rdd``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpca.driver.cluster import AgentSpec, Outgoing
from mpca.driver.coding import Coding
from mpca.driver.events import ClusterEvent
from mpca.spark.jvm.bridge import MpcaBridge
from mpca.spark.jvm.driver_vectors import DriverVectors
from mpca.spark.jvm.events import unpack
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.codec import encode
from mpca.wire.messages import Start
from mpca.wire.orders import Order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AGENT_COMMAND", "SparkCluster"]

#: Arguments of the interpreter that make it an agent, and a preloaded parent of agents.
AGENT_COMMAND = ("-m", "mpca.agent.main")
_PARENT_COMMAND = ("-m", "mpca.agent.parent")
_FRAME_HEADER = 4  # the length in front of a frame's body


class SparkCluster:
    """A `Cluster` over a Spark session that has our jar and plug-in. Each run makes one."""

    def __init__(
        self,
        spark: SparkSession,
        run: str,
        *,
        term: int = 0,
        reducer: str = "ranges",
        broadcast: str = "relay",
        chunk_bytes: int = 256 << 10,
        coding: Coding | None = None,
        agent_command: Sequence[str] = AGENT_COMMAND,
    ) -> None:
        self._coding = coding
        self._agent_command = list(agent_command)
        self._preloads = tuple(agent_command) == AGENT_COMMAND  # a parent forks no other program
        self._vectors = DriverVectors()
        self._closed = False
        try:
            self._bridge = MpcaBridge(
                spark,
                run,
                term=term,
                reducer=reducer,
                broadcast=broadcast,
                chunk_bytes=chunk_bytes,
                owner_path=self._vectors.path,
            )
        except BaseException:
            self._vectors.close()
            raise

    def start_agent(self, who: AgentRef, spec: AgentSpec) -> None:
        message = Start(**{**spec.start, "agent": who.agent, "incarnation": who.incarnation})
        self._bridge.start_agent(
            who,
            command=[spec.python, *self._agent_command],
            parent=[spec.python, *_PARENT_COMMAND] if spec.preload and self._preloads else [],
            env=spec.env,
            start=encode(message)[_FRAME_HEADER:],
        )

    def submit(self, order: Order) -> None:
        if self._coding is not None:
            order = self._coding.ordered(order)
        self._bridge.submit(order.pack())

    def cancel(self, order: int, reason: str) -> None:
        self._bridge.cancel(order, reason)

    def room(self, elements: int) -> npt.NDArray[np.float32]:
        return self._vectors.empty(elements)

    def take_sum(self, order: int, length: int, into: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        vector = into if into is not None and self._vectors.has(into) else self._vectors.empty(length // 4)
        self._bridge.take_sum(order, length, self._vectors.path_of(vector))
        if self._coding is not None:
            self._coding.took(order)
        return vector

    def publish(self, vector: npt.NDArray[np.float32], joint: Outgoing | None = None) -> int:
        lying, path = self._vectors.lying(_float32(vector))
        length, coding = lying.nbytes, self._coding
        if coding is None or joint is None or not coding.concerns(joint):
            return self._bridge.publish(path, length)
        base = coding.base_for(joint)
        broadcast, crc = self._bridge.publish_joint(path, length, joint, coding.codec, base)
        coding.sent(broadcast, joint, length, base, crc)
        return broadcast

    def withdraw(self, broadcast: int) -> None:
        if self._coding is not None:
            self._coding.withdrawn(broadcast)
        self._bridge.withdraw(broadcast)

    def take_sent(self, who: AgentId, number: int, length: int) -> npt.NDArray[np.float32]:
        vector = self._vectors.empty(length // 4)
        self._bridge.take_sent(who, number, self._vectors.path_of(vector), length)
        return vector

    def answer(self, who: AgentId, number: int, vector: npt.NDArray[np.float32], version: int, mode: str, share: float) -> None:
        lying, path = self._vectors.lying(_float32(vector))
        self._bridge.answer(who, number, path, lying.nbytes, version=version, mode=mode, share=share)

    def rediscover(self, executors: list[str]) -> None:
        self._bridge.rediscover(executors)

    def poll(self, timeout_s: float) -> list[ClusterEvent]:
        events = [unpack(packed) for packed in self._bridge.poll(max(0, round(timeout_s * 1000)))]
        if self._coding is not None:
            self._coding.heard(events)
        return events

    def inventory(self) -> list[dict[str, Any]]:
        """What the driver and each executor hold of any run of the session, to find leaks."""
        return self._bridge.inventory()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                self._bridge.close()
            finally:
                self._vectors.close()


def _float32(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if vector.dtype != np.float32:
        raise ValueError(f"what goes out is float32: dtype={vector.dtype}")
    return vector
