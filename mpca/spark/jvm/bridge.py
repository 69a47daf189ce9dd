"""The door to the driver's JVM: one typed method for each of ``org.mpca.bridge.MpcaBridge``, plain values in and out.

Bulk data never pass here: they lie in memory files (`driver_vectors.py`), whose paths do. Structured values travel as msgpack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack
from py4j.java_gateway import JavaPackage

from mpca.algorithm.bases import Base
from mpca.driver.cluster import Outgoing
from mpca.errors import EnvironmentRefused
from mpca.spark.jvm.errors import jvm_errors
from mpca.spark.jvm.jar import PLUGIN, own_line
from mpca.wire.agent_ref import AgentId, AgentRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MpcaBridge"]


class MpcaBridge:
    """One run's bridge. Any thread may call it; only `poll` waits."""

    def __init__(
        self,
        spark: SparkSession,
        run: str,
        *,
        term: int,
        reducer: str,
        broadcast: str,
        chunk_bytes: int,
        owner_path: str,
    ) -> None:
        """See the Java constructor.

        Raises:
            EnvironmentRefused: the session has not our jar.
            JvmError: the JVM refuses, such as for a session without our plug-in.
        """
        context: Any = spark.sparkContext
        java_class = context._jvm.org.mpca.bridge.MpcaBridge
        if isinstance(java_class, JavaPackage):
            raise EnvironmentRefused(
                f"the Spark session has no class org.mpca.bridge.MpcaBridge: start it with spark.jars={own_line().jar} and "
                f"spark.plugins={PLUGIN}, or by mpca.session()"
            )
        with jvm_errors(f"opening run {run}"):
            self._java = java_class(context._jsc.sc(), run, term, reducer, broadcast, chunk_bytes, owner_path)

    def start_agent(self, who: AgentRef, command: list[str], parent: list[str], env: dict[str, str], start: bytes) -> None:
        """Submit the holding job of one agent; `start` is the body of its Start frame. No `parent`: nothing is preloaded."""
        spec = msgpack.packb({"command": command, "parent": parent, "env": env, "start": start}, use_bin_type=True)
        with jvm_errors(f"starting agent {who.agent}"):
            self._java.startAgent(who.agent, who.incarnation, who.executor, spec)

    def submit(self, order: bytes) -> None:
        """Submit a packed order."""
        with jvm_errors("submitting an order"):
            self._java.submit(order)

    def cancel(self, order: int, reason: str) -> None:
        """End an order's job."""
        with jvm_errors(f"cancelling order {order}"):
            self._java.cancel(order, reason)

    def take_sum(self, order: int, length: int, path: str) -> None:
        """Write the sum of a finished order into a file, from its start on, and free it."""
        with jvm_errors(f"taking the sum of order {order}"):
            self._java.takeSum(order, length, path)

    def publish(self, path: str, length: int) -> int:
        """Make the first `length` bytes of a file a broadcast.

        Returns:
            Its number.
        """
        with jvm_errors("publishing a broadcast"):
            return int(self._java.publish(path, length))

    def publish_joint(self, path: str, length: int, joint: Outgoing, codec: str, base: Base | None) -> tuple[int, int]:
        """The same, of a joint state that executors hold as a base from now on, unless it is a difference for agents that join.

        Args:
            path: where it lies, from the file's start on.
            length: of it, in bytes.
            joint: what it is.
            codec: that writes it.
            base: of which it is written as a difference; None: it goes out as it is.

        Returns:
            Its number, and the CRC-32 of what executors have then.
        """
        against = ("", -1, 0) if base is None else (codec, base.version, base.crc)
        with jvm_errors("publishing a joint state"):
            packed = self._java.publishJoint(
                path, length, joint.shard, joint.version, joint.parameters, *against, joint.replaces
            )
            broadcast, crc = msgpack.unpackb(packed)
            return broadcast, crc

    def withdraw(self, broadcast: int) -> None:
        """Free a broadcast on the driver."""
        with jvm_errors(f"withdrawing broadcast {broadcast}"):
            self._java.withdraw(broadcast)

    def take_sent(self, who: AgentId, number: int, path: str, length: int) -> None:
        """Write what an agent sent by an Exchange into a file, from its start on, and free it."""
        with jvm_errors(f"taking exchange {number} of agent {who.agent}"):
            self._java.takeSent(*who, number, path, length)

    def answer(self, who: AgentId, number: int, path: str, length: int, *, version: int, mode: str, share: float) -> None:
        """Answer an Exchange with the first `length` bytes of a file."""
        with jvm_errors(f"answering exchange {number} of agent {who.agent}"):
            self._java.answer(*who, number, path, length, version, mode, float(share))

    def rediscover(self, executors: list[str]) -> None:
        """Ask these executors which agents live."""
        with jvm_errors("rediscovering agents"):
            self._java.rediscover(executors)

    def poll(self, timeout_ms: int) -> list[bytes]:
        """Take the packed events since the last call; wait up to `timeout_ms` milliseconds for the first."""
        with jvm_errors("polling events"):
            packed: list[bytes] = msgpack.unpackb(self._java.poll(timeout_ms), raw=False)
            return packed

    def inventory(self) -> list[dict[str, Any]]:
        """What the driver and each executor hold of any run of the session."""
        with jvm_errors("taking the inventory"):
            found: list[dict[str, Any]] = msgpack.unpackb(self._java.inventory(), raw=False)
            return found

    def close(self) -> None:
        """Kill what is left and free everything."""
        with jvm_errors("closing the run"):
            self._java.close()
