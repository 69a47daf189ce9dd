"""What exchanges cost an agent on a device, without Spark: `mpca bench pause --device`.

In turns this process exchanges with the agent, one cycle after the other, and leaves it alone. A cycle is a snapshot of one
shard and an arrival for another, as with three phases that overlap; what arrives are the agent's own numbers of before. Several
agents on one device all do so at once.

`pause_share` is what the agent's thread spends on exchanges. On a GPU that is not what the training loses, which goes on there
meanwhile: that is `lost_share`, how much longer the steps with exchanges took, for each exchange, over a step. It is a median
of turns, each a window with exchanges and one without; `lost_chance` is the standard error of their mean. Where the steps of a
net wait for Python, which launches their kernels, windows differ by far more than exchanges cost. There what the agent's thread
spends on exchanges is lost at least, and that is `pause_share`, of all exchanges in the time.
"""

from __future__ import annotations

import math
import statistics
import time
from contextlib import ExitStack
from typing import Any

from mpca.agent.cuda import device_of, make_current, name_of
from mpca.agent.gpus import DEVICES, candidates
from mpca.agent.returned import unpack
from mpca.cli.bench.run.pipes import LoneAgent
from mpca.cli.bench.run.training import train_alone
from mpca.cli.bench.run.windows import LEAST_STEPS, Window, step_times
from mpca.methods import MPCA, Method
from mpca.models.bench import shape_of
from mpca.wire.messages import Installed, SnapshotRequest

__all__ = ["measure_alone"]

_ALPHA = 0.05
_WARM_STEPS = 10  # compile kernels, choose algorithms, fill caches
_LEAST_WINDOW_S = 2.0
_REPORTED_S = 0.6  # an agent reports twice a second


def measure_alone(device: str, nets: dict[str, int], half: bool, turns: int, agents: int = 1) -> dict[str, Any]:
    """One row for each net.

    Args:
        device: "cpu" or "cuda".
        nets: name of a model or a shape -> images of a batch.
        half: compute in bfloat16, by autocast.
        turns: how many windows with exchanges, and as many without.
        agents: how many train on the device at once, and exchange at once.

    Raises:
        EnvironmentRefused: torch finds no GPU.
    """
    make_current(device_of(device))  # refused here, and not by the agent
    rows = [_measure(device, name, batch, half, turns, agents) for name, batch in nets.items()]
    return {
        "case": "pause",
        "device": name_of(device_of(device)),
        "agents": agents,
        "bf16": half,
        "pause_share": max(row["pause_share"] for row in rows),
        "steps_ratio": min(row["steps_ratio"] for row in rows),
        "lost_share": max(row["lost_share"] for row in rows),
        "nets": rows,
    }


def _measure(device: str, name: str, batch: int, half: bool, turns: int, count: int) -> dict[str, Any]:
    method: Method = MPCA()
    windows: list[Window] = []
    with ExitStack() as held:
        agents = [
            held.enter_context(LoneAgent(method, device, _own_name(device, number), train_alone, name, batch, half))
            for number in range(count)
        ]
        hellos = [agent.meet() for agent in agents]
        for agent in agents:
            agent.begin()
        ring = _Ring(agents, method.shards)
        seconds = max(_LEAST_WINDOW_S, LEAST_STEPS * max(_warm(agent) for agent in agents))
        ring.exchange(seconds)
        for turn in range(turns):
            for exchanging in (True, False) if turn % 2 else (False, True):  # each goes first equally often
                _listen(agents, _REPORTED_S)  # so that the newest report is of this side of the window
                window, paused = Window(exchanging, time.time()), _paused(agents)
                if exchanging:
                    window.cycles = ring.exchange(seconds)
                else:
                    _listen(agents, seconds)
                window.end = time.time()
                _listen(agents, _REPORTED_S)
                window.pause_s = _paused(agents) - paused
                windows.append(window)
        steps = [unpack(agent.stop().returns) for agent in agents]
    with_s = [_steps(steps, one) for one in windows if one.exchanging]
    without_s = [_steps(steps, one) for one in windows if not one.exchanging]
    made = sum(map(len, with_s))
    exchanges = sum(one.cycles for one in windows) * count
    exchanging_s = sum(one.end - one.start for one in windows if one.exchanging) * count
    paused_s = sum(one.pause_s for one in windows if one.exchanging)
    step_s = statistics.median(statistics.fmean(one) for one in without_s)
    ratios = [statistics.fmean(these) / statistics.fmean(those) for these, those in zip(with_s, without_s, strict=True)]
    ratio = statistics.median(ratios)
    images = shape_of(name, batch).batch[0]
    return {
        "name": name,
        "batch": images,
        "size_bytes": 4 * hellos[0].parameters,
        "step_s": step_s,
        "images_per_s": count * images / step_s,
        "pause_share": paused_s / (exchanging_s - paused_s),
        "steps_ratio": 1 / ratio,
        "lost_share": (ratio - 1) * made / exchanges,
        "lost_chance": statistics.stdev(ratios) / math.sqrt(turns) * made / exchanges if turns > 1 else None,
        "steps": [made, sum(map(len, without_s))],
        "exchanges": exchanges,
        "exchanges_per_step": exchanges / made,
        "windows_s": [[statistics.fmean(one) for one in these] for these in (with_s, without_s)],
    }


def _steps(steps: list[list[tuple[float, float]]], window: Window) -> list[float]:
    """Seconds of all agents' steps in a window."""
    return [took for one in steps for took in step_times(one, [window], window.exchanging)[0]]


class _Ring:
    """Cycles of all agents at once: a snapshot of one shard of each, and an arrival for another."""

    def __init__(self, agents: list[LoneAgent], shards: int) -> None:
        self._agents, self._shards, self._next = agents, shards, 0
        self._held = [[agent.snapshot(-1 - shard, shard)[1] for shard in range(shards)] for agent in agents]

    def exchange(self, seconds: float) -> int:
        """One cycle after the other for so long; how many."""
        until, first = time.monotonic() + seconds, self._next
        while time.monotonic() < until:
            self._cycle()
        return self._next - first

    def _cycle(self) -> None:
        cycle, self._next = self._next, self._next + 1
        shard, ready = cycle % self._shards, (cycle - 1) % self._shards
        for agent in self._agents:
            agent.send(SnapshotRequest(cycle, shard))
        for agent, held in zip(self._agents, self._held, strict=True):
            agent.read_snapshot(cycle, shard, held[shard])
            agent.offer(ready, cycle, held[ready], alpha=_ALPHA)
        for agent in self._agents:
            agent.expect(Installed)


def _warm(agent: LoneAgent) -> float:
    """Seconds of a step, once it has taken the first ones."""
    while agent.progress is None or agent.progress.steps < _WARM_STEPS:
        agent.listen(0.5)
    return agent.progress.train_s / agent.progress.steps


def _listen(agents: list[LoneAgent], seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for agent in agents:
            agent.listen(min(left, 0.1) / len(agents))


def _paused(agents: list[LoneAgent]) -> float:
    return sum(agent.progress.pause_s for agent in agents if agent.progress is not None)


def _own_name(device: str, number: int) -> dict[str, str]:
    """The GPU for one of several agents on it. CUDA takes a UUID without its last characters for the same GPU; by its whole
    name only one agent gets it."""
    found = candidates(device)
    return {DEVICES: found[0][: len(found[0]) - number]} if found and number else {}
