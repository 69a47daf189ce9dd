"""What things cost in virtual time: steps, copies, links. The numbers are rough on purpose: cycles must take plausible time.

The network has equal ports: every executor and the driver send and receive at a rate of their own, and the core between them is
wide enough. A reduction by ranges over E executors moves (E-1)/E of a shard into and out of every executor, then one shard to
the driver. A broadcast leaves the driver once, and the executors relay it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Costs"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one run. Times are seconds of virtual time."""

    step_s: float = 0.02  # one optimiser update of the fastest agent
    spread: float = 0.3  # the slowest agent's step takes this share longer
    contested: int = 0  # the last so many agents have half of their machine: a step takes twice as long
    copy_s: float = 0.002  # an interruption: one shard into its slot
    boot_s: float = 1.0  # from the start of a process to its Hello
    dispatch_s: float = 0.01  # from an order to its tasks
    latency_s: float = 0.001  # of a message
    notice_s: float = 0.2  # until the loss of an executor is known, at most
    respawn_s: float = 2.0  # until the cluster gives a replacement for a lost executor
    rate: float = 10e6  # bytes a second, each port and direction
    element_bytes: float = 200_000  # an element of the toy model stands for so many bytes of a real one
    slowest: float = 1.5  # the slowest executor's download takes up to so many times that of the fastest one

    def to_dict(self) -> dict[str, Any]:
        """As a plain map."""
        return asdict(self)

    def reduce_s(self, elements: int, executors: int) -> float:
        """How long a reduction takes.

        Args:
            elements: of the shard.
            executors: that take part.

        Returns:
            Seconds.
        """
        scatter = (executors - 1) / max(executors, 1)
        return self.latency_s * 2 + (scatter + 1) * elements * self.element_bytes / self.rate

    def download_s(self, elements: int) -> float:
        """How long the fastest executor of a broadcast takes: one shard from the driver, one through the relay.

        Args:
            elements: of the shard.

        Returns:
            Seconds.
        """
        return self.latency_s * 2 + 2 * elements * self.element_bytes / self.rate

    def send_s(self, elements: int) -> float:
        """How long one agent's shard takes to the driver, once it is its turn.

        Args:
            elements: of the shard.

        Returns:
            Seconds.
        """
        return self.latency_s * 2 + self.answer_s(elements)

    def answer_s(self, elements: int) -> float:
        """How long an answer occupies the driver's link.

        Args:
            elements: of the shard.

        Returns:
            Seconds.
        """
        return elements * self.element_bytes / self.rate

    def peer_s(self, elements: int) -> float:
        """How long one agent's shard takes to another agent.

        Args:
            elements: of the shard.

        Returns:
            Seconds.
        """
        return self.latency_s + elements * self.element_bytes / self.rate

    def step_of(self, agent: int, agents: int) -> float:
        """How long one update of an agent takes: agent 0 is the fastest, the last one the slowest.

        Args:
            agent: its number.
            agents: of the run.

        Returns:
            Seconds.
        """
        times = 2 if agent >= agents - self.contested else 1
        return times * self.step_s * (1 + self.spread * agent / max(agents - 1, 1))
