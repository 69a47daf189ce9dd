"""An agent without torch, for many on one machine, in place of production's: ``python -m mpca.cli.bench.run.light_agent``.

Link, machine, loop and segment are production's. Its model is one flat vector that nothing trains: what it costs executors and
driver is what a real agent costs them, and it takes a tenth of the memory and of the CPU to start.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpca import __version__
from mpca.agent.context import AgentContext
from mpca.agent.link import Link
from mpca.agent.process import die_with_parent, lead_own_group, move_control_pipe
from mpca.agent.returned import pack
from mpca.cli.bench.run.waiting import STEP_S
from mpca.shm import AgentSegment
from mpca.wire.messages import Hello, Start

if TYPE_CHECKING:
    from mpca.agent.loop import Laid
    from mpca.agent.trainer import Later

__all__ = ["PROGRAM", "Flat", "main"]

PROGRAM = "mpca.cli.bench.run.light_agent"


class Flat:
    """A `Trainer` of zeros: shards are read and replaced, and pulled by nothing."""

    def __init__(self, elements: int, shards: int) -> None:
        self.bounds = [elements * shard // shards for shard in range(shards + 1)]
        self.parameters = elements
        self._shards = [np.zeros(high - low, np.float32) for low, high in pairwise(self.bounds)]

    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """Nothing: the bench's method has no pull."""

    def tilt(self, pulls: tuple[tuple[int, float], ...], optimizer: Any) -> None:
        """Nothing either."""

    def snapshot(self, shard: int, out: npt.NDArray[np.float32], later: Later | None = None) -> None:
        np.copyto(out, self._shards[shard])

    def install(self, shard: int, data: npt.NDArray[np.float32], version: int, mode: str, later: Later | None = None) -> None:
        np.copyto(self._shards[shard], data)

    def reset_optimizer(self) -> None:
        """It has none."""

    def own(self) -> dict[str, Any]:
        return {}

    def go_on(self, own: dict[str, Any]) -> None:
        """Benches save nothing."""


def main() -> None:
    read_fd, write_fd = move_control_pipe()
    die_with_parent(read_fd)
    lead_own_group()
    link = Link(read_fd, write_fd)
    (start,) = link.receive(None)
    assert isinstance(start, Start)
    elements: int = start.conf["elements"]
    loop = AgentContext.make(start, link).loop

    def lay(shards: int) -> Laid:
        trainer = Flat(elements, shards)
        segment = AgentSegment(trainer.bounds, start.agent)
        segment.lay_initial(trainer.snapshot)
        hello = Hello(
            agent=start.agent,
            incarnation=start.incarnation,
            pid=os.getpid(),
            python="",
            torch="none",
            mpca=__version__,
            x0_hash="zeros",
            layout=[["weights", [elements], "parameter", 0]],
            local={},
            tied={},
            bounds=trainer.bounds,
            parameters=elements,
            segment_fd=segment.fd,
            segment_bytes=segment.size_bytes,
            slots=segment.slots,
        )
        return trainer, segment, hello

    loop.join(lay)
    while not loop.stopping:
        time.sleep(STEP_S)
        loop.between_batches()
    loop.leave(pack(None))


if __name__ == "__main__":
    main()
