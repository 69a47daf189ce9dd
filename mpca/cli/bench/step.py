"""`mpca bench step`: what `attach` adds to a training step between two exchanges.

Two models of one shape in one process, one thread: the plain one, and one that is attached as in an agent, with a joint
state installed on every shard, so that each step counts, looks at the pipe, and is pulled. Blocks of steps alternate
(plain, attached, attached, plain), and the ratio is that of the medians: what else the machine does falls on both.
The executor at the other end of the pipe is this process; it says Begin, offers one joint state, and is silent.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mpca.cli.bench.show import json_option, show

if TYPE_CHECKING:
    from mpca.models.bench import Shape
    from mpca.wire.messages import Hello

__all__ = ["command", "measure"]

_PIPE_BYTES = 1 << 20  # holds what an agent says in a whole measurement
_VERSION = 50  # of the installed joint state: alpha has come down to its value
_LEAST_BLOCK_S = 0.1  # a block of steps takes at least this long


@click.command()
@click.option("--shape", "shapes", multiple=True, help="A net of mpca.models.bench; all of them if not given.")
@click.option("--rounds", default=8, show_default=True, help="Rounds of four blocks for each net.")
@json_option
def command(shapes: tuple[str, ...], rounds: int, as_json: bool) -> None:
    """A training step with `attach` over the plain step, between exchanges, on one thread."""
    show(measure(shapes, rounds), as_json)


def measure(names: tuple[str, ...] = (), rounds: int = 8) -> dict[str, Any]:
    """The `step` case. `attach_ratio` is the worst of the residual nets; a chain of linear layers is told beside it.

    A chain does a hundred times fewer operations for each parameter than any net of the paper, so that the pull, one pass
    over the parameters, weighs most there.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: one agent, one thread
    from mpca.models.bench import SHAPES

    for name in names:
        if name not in SHAPES:
            raise click.BadParameter(f"{name!r}: one of {', '.join(SHAPES)}", param_hint="--shape")
    rows = [_measure(SHAPES[name], rounds) for name in names or SHAPES]
    deep = [row["attach_ratio"] for row in rows if row["name"].startswith("residual")]
    return {
        "case": "step",
        "attach_ratio": max(deep or [row["attach_ratio"] for row in rows]),
        "shapes": rows,
        "rounds": rounds,
    }


def _measure(shape: Shape, rounds: int) -> dict[str, Any]:
    from mpca.models.training import create_optimizer, train_step

    images, labels = shape.inputs()

    def trainer(attached: bool) -> tuple[Any, Callable[[int], float]]:
        model = shape.create()
        optimizer = create_optimizer(model, "adam", lr=1e-5)
        if attached:
            _attach(model, optimizer)

        def block(steps: int) -> float:
            start = time.perf_counter()
            for _ in range(steps):
                train_step(model, optimizer, images, labels)
            return (time.perf_counter() - start) / steps

        return model, block

    model, plain = trainer(attached=False)
    _, attached = trainer(attached=True)
    for warm in (plain, attached):
        warm(3)
    steps = max(2, round(_LEAST_BLOCK_S / plain(2)))
    times: dict[Callable[[int], float], list[float]] = {plain: [], attached: []}
    for _ in range(rounds):
        for block in (plain, attached, attached, plain):
            times[block].append(block(steps))
    pairs = [b / a for a, b in zip(times[plain], times[attached], strict=True)]
    return {
        "name": shape.name,
        "size_bytes": 4 * sum(one.numel() for one in model.parameters()),
        "tensors": len(list(model.parameters())),
        "plain_step_s": statistics.median(times[plain]),
        "attached_step_s": statistics.median(times[attached]),
        "attach_ratio": statistics.median(times[attached]) / statistics.median(times[plain]),
        "spread": [min(pairs), max(pairs)],
    }


def _attach(model: Any, optimizer: Any) -> None:
    """Attach as an agent process does, with ourselves as its executor; returns with a joint state on every shard."""
    import mpca
    from mpca.agent.context import AgentContext, current, enter
    from mpca.agent.link import Link
    from mpca.methods import MPCA
    from mpca.wire.codec import FrameReader, encode
    from mpca.wire.messages import Begin, Hello, Install, Start

    to_agent, from_agent = _pipe(), _pipe()
    method = MPCA(install="arrival")  # by default an arrival waits for the next exchange, and here there is none
    start = Start(0, 0, 1, "bench", 0, method.shards, False, method.to_dict(), "train", b"")
    os.write(to_agent[1], encode(start))
    link = Link(to_agent[0], from_agent[1])
    link.receive()
    before = current()
    context = AgentContext.make(start, link)
    enter(context)
    try:
        os.write(to_agent[1], encode(Begin()))
        mpca.attach(model, optimizer)
        (hello,) = FrameReader().feed(os.read(from_agent[0], _PIPE_BYTES))
        assert isinstance(hello, Hello)
        for shard in range(method.shards):
            _write_arrival(hello, shard)
            os.write(to_agent[1], encode(Install(shard, _VERSION, "install")))
    finally:
        enter(before)


def _write_arrival(hello: Hello, shard: int) -> None:
    """Zeros as the joint state of a shard: the cost of a pull does not depend on where to."""
    from mpca.wire.slots import HEADER_BYTES, MODES, SlotHeader

    length = 4 * (hello.bounds[shard + 1] - hello.bounds[shard])
    header = SlotHeader(shard, 2, _VERSION, 0, length, MODES["install"]).pack()
    with mmap.mmap(hello.segment_fd, hello.segment_bytes) as segment:
        offset = hello.slots[1 + shard]
        segment[offset : offset + HEADER_BYTES] = header


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return read, write
