"""`mpca bench step`: what `attach` adds to a training step between two exchanges.

Three models of one shape run in one process, on one thread: a plain one, its plain twin, and one that is attached as in an
agent, with a joint state installed on every shard, so that each step counts, looks at the pipe, and is pulled. They take
turns, so that the machine's other work affects all of them; the ratio of the twin to the plain one says how much noise is
left. The hook itself is timed too, by a hook before and one after it: `hook_share` does not see the caches that the hook
leaves cold, and has little noise. Times are CPU seconds of this process: nothing here waits, and time slices of other
processes do not count; with a GPU they are wall clock, from one idle GPU to the next. This process is also the executor at the
other end of the pipe; it says Begin, offers one joint state, and is silent. On a GPU the hook is timed many times in a row,
without the steps: it works through what is queued.

`pull_over_memory` is the time of the hook over that of one addition in place of a vector as large as the model: it reads and
writes as many bytes as the pull (12 for each parameter), and memory allows no less time.
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
import numpy as np

from mpca.cli.bench.show import show
from mpca.cli.options import json_option
from mpca.wire.messages import Begin, Hello, Install, Start
from mpca.wire.slots import HEADER_BYTES, MODES, SlotHeader

if TYPE_CHECKING:
    import torch

    from mpca.agent.loop import AgentLoop
    from mpca.models.bench import Shape

__all__ = ["command", "measure"]

_PIPE_BYTES = 1 << 20  # room for all messages of an agent in a measurement
_VERSION = 50  # of the installed joint state: there is no early schedule
_ALPHA = 0.05
_LEAST_BLOCK_S = 0.1  # a block of steps takes at least this long
_LEAST_TURNS = 6
_LEAST_HOOKS = 20
_IN_A_ROW = 20


@click.command()
@click.option("--shape", "shapes", multiple=True, help="A net of mpca.models.bench; default, without --model: all.")
@click.option("--model", "models", multiple=True, help="A model of mpca.models, with images of its own size.")
@click.option("--batch", type=click.IntRange(min=1), help="Images of a batch, for --model; default: the paper's, or 1.")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]), help="Where the nets lie.")
@click.option("--bf16", is_flag=True, help="Compute in bfloat16.")
@click.option("--seconds", default=20.0, show_default=True, help="Time for each net.")
@json_option
def command(
    shapes: tuple[str, ...],
    models: tuple[str, ...],
    batch: int | None,
    device: str,
    bf16: bool,
    seconds: float,
    as_json: bool,
) -> None:
    """A training step with `attach` over the plain step, between exchanges, on one thread."""
    show(measure(shapes, seconds, models, batch, device, bf16), as_json)


def measure(
    names: tuple[str, ...] = (),
    seconds: float = 20.0,
    models: tuple[str, ...] = (),
    batch: int | None = None,
    device: str = "cpu",
    half: bool = False,
) -> dict[str, Any]:
    """The `step` case. `attach_ratio` is the worst ratio of the residual nets; a chain of linear layers is reported beside it.

    A chain does a hundred times fewer operations for each parameter than any net of the paper, so the pull, one pass over the
    parameters, weighs most there.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: one agent, one thread
    from mpca.agent.cuda import device_of, make_current, name_of
    from mpca.models.bench import SHAPES, named, of_paper

    for name in names:
        if name not in SHAPES:
            raise click.BadParameter(f"{name!r}: one of {', '.join(SHAPES)}", param_hint="--shape")
    on = device_of(device)
    make_current(on)
    of = of_paper(models, batch) if models or (device == "cuda" and not names) else {}
    chosen = [SHAPES[name] for name in names or (() if of else SHAPES)] + [named(*one) for one in of.items()]
    rows = [_measure(shape, seconds, on, half) for shape in chosen]
    deep = [row["attach_ratio"] for row in rows if row["name"].startswith("residual")]
    return {
        "case": "step",
        "attach_ratio": max(deep or [row["attach_ratio"] for row in rows]),
        "pull_over_memory": max(rows, key=lambda row: row["size_bytes"])["pull_over_memory"],
        "shapes": rows,
        "seconds_each": seconds,
        "device": name_of(on),
        "bf16": half,
    }


def _measure(shape: Shape, seconds: float, device: torch.device, half: bool) -> dict[str, Any]:
    from mpca.models.bench import addition
    from mpca.models.training import create_optimizer, train_step

    images, labels = (one.to(device) for one in shape.inputs())
    now = _clock(device)
    hook: list[float] = []  # minus when the hook began, when it ended, ...
    timed = False  # not while whole steps are
    loops: list[AgentLoop] = []

    def trainer(attached: bool) -> tuple[Any, Callable[[int], float]]:
        model = shape.create().to(device)
        optimizer = create_optimizer(model, "adam", lr=1e-5)
        if attached:
            optimizer.register_step_post_hook(lambda *_: hook.append(-now()) if timed else None)
            loops.append(_attach(model, optimizer, device))
            optimizer.register_step_post_hook(lambda *_: hook.append(now()) if timed else None)

        def block(steps: int) -> float:
            start = now()
            for _ in range(steps):
                train_step(model, optimizer, images, labels, half)
            return (now() - start) / steps

        return model, block

    _, attached = trainer(attached=True)  # first: an optimiser that is made before `attach` and not given to it is an error
    model, plain = trainer(attached=False)
    _, twin = trainer(attached=False)
    arms = [plain, twin, attached]
    for warm in arms:
        warm(2)
    one = plain(2)
    steps = max(1, round(_LEAST_BLOCK_S / one))
    times: dict[Callable[[int], float], list[float]] = {arm: [] for arm in arms}
    for turn in range(max(_LEAST_TURNS, round(seconds / (3 * steps * one)))):
        for arm in arms[turn % 3 :] + arms[: turn % 3]:  # each goes first, second and last equally often
            times[arm].append(arm(steps))
    plain_s, add = statistics.median(times[plain]), addition(model, device)
    if device.type == "cpu":
        timed = True
        attached(max(_LEAST_HOOKS, steps))
        hook_s = statistics.median(a + b for a, b in zip(hook[::2], hook[1::2], strict=True))
        addition_s = _median_s(add, now)
    else:
        hook_s, addition_s = _in_a_row(loops[0].between_batches, now), _in_a_row(add, now)
    return {
        "name": shape.name,
        "batch": shape.batch[0],
        "size_bytes": 4 * sum(one.numel() for one in model.parameters()),
        "tensors": len(list(model.parameters())),
        "plain_step_s": plain_s,
        "images_per_s": shape.batch[0] / plain_s,
        "hook_s": hook_s,
        "hook_share": hook_s / plain_s,
        "pull_over_memory": hook_s / addition_s,
        "attach_ratio": _ratio(times[attached], times[plain] + times[twin]),
        "control_ratio": _ratio(times[twin], times[plain]),
    }


def _clock(device: torch.device) -> Callable[[], float]:
    from mpca.agent.cuda import settle

    if device.type == "cpu":
        return time.process_time

    def now() -> float:
        settle(device)
        return time.perf_counter()

    return now


def _median_s(work: Callable[[], object], now: Callable[[], float]) -> float:
    took = []
    for _ in range(_LEAST_HOOKS):
        start = now()
        work()
        took.append(now() - start)
    return statistics.median(took)


def _in_a_row(work: Callable[[], object], now: Callable[[], float]) -> float:
    """Seconds of each of many that are queued one behind the other."""
    took = []
    for _ in range(_LEAST_HOOKS):
        start = now()
        for _ in range(_IN_A_ROW):
            work()
        took.append((now() - start) / _IN_A_ROW)
    return statistics.median(took)


def _ratio(these: list[float], those: list[float]) -> float:
    """The ratio of lower quartiles: on a shared machine the upper half of the times measures other people's work."""
    return statistics.quantiles(these, n=4)[0] / statistics.quantiles(those, n=4)[0]


def _attach(model: Any, optimizer: Any, device: torch.device) -> AgentLoop:
    """Attach as an agent process does, with this process as the executor; the agent's loop, with a joint state on every
    shard."""
    import mpca
    from mpca.agent.context import AgentContext, current, enter
    from mpca.agent.link import Link
    from mpca.methods import MPCA, Method
    from mpca.wire.codec import FrameReader, encode

    to_agent, from_agent = _pipe(), _pipe()
    method: Method = MPCA(install="arrival")  # here there is no exchange at which a joint state could be applied
    start = Start(0, 0, 1, "bench", 0, method.shards, False, method.for_agents(), "train", b"", device.type)
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
        state = {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}
        for shard in range(method.shards):
            _write_arrival(hello, shard, state)
            os.write(to_agent[1], encode(Install(shard, _VERSION, "install", _ALPHA * (1 + shard / 10))))
        return context.loop
    finally:
        enter(before)


def _write_arrival(hello: Hello, shard: int, state: dict[str, np.ndarray]) -> None:
    """Offer the model's own first values: a pull towards them costs the same, and leaves the training what it is."""
    first, last = hello.bounds[shard], hello.bounds[shard + 1]
    flat = np.concatenate([state[name].ravel() for name, *_ in hello.layout])[first:last]
    header = SlotHeader(shard, 2, _VERSION, 0, flat.nbytes, MODES["install"]).pack()
    with mmap.mmap(hello.segment_fd, hello.segment_bytes) as segment:
        offset = hello.slots[1 + shard]
        segment[offset : offset + HEADER_BYTES + flat.nbytes] = header + flat.tobytes()


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return read, write
