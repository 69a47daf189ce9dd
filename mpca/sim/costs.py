"""What things cost in virtual time: steps, copies, links. Rough on purpose: cycles are to take plausible time.

A network of equal ports: every executor and the driver send and receive at a rate of their own, the core between them is
wide enough. A reduction by ranges moves (E-1)/E of a shard into and out of every executor, then one shard to the driver; a
broadcast leaves the driver once and is relayed.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Costs"]


@dataclass(frozen=True, slots=True)
class Costs:
    step_s: float = 0.02  # one optimiser update of the fastest agent
    spread: float = 0.3  # the slowest agent's step takes this share longer
    copy_s: float = 0.002  # an interruption: one shard into its slot
    boot_s: float = 1.0  # from the start of a process to its Hello
    dispatch_s: float = 0.01  # from an order to its tasks
    latency_s: float = 0.001  # of a message
    notice_s: float = 0.2  # until the loss of an executor is known, at most
    respawn_s: float = 2.0  # until the cluster gives a replacement for a lost executor
    rate: float = 10e6  # bytes a second, each port and direction
    element_bytes: int = 200_000  # an element of the toy model stands for so many bytes of a real one

    def reduce_s(self, elements: int, executors: int) -> float:
        scatter = (executors - 1) / max(executors, 1)
        return self.latency_s * 2 + (scatter + 1) * elements * self.element_bytes / self.rate

    def download_s(self, elements: int) -> float:
        return self.latency_s * 2 + 2 * elements * self.element_bytes / self.rate

    def step_of(self, agent: int, agents: int) -> float:
        return self.step_s * (1 + self.spread * agent / max(agents - 1, 1))
