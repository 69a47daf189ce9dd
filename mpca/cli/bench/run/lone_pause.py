"""What exchanges cost an agent on a device, without Spark: `mpca bench pause --device`.

In turns this process exchanges with the agent, one cycle after the other, and leaves it alone. A cycle is a snapshot of one
shard and an arrival for another, as with three phases that overlap; what arrives are the agent's own numbers of before.

On a GPU the agent's thread runs ahead of the kernels, and a snapshot waits for those before it: `pause_share` counts that time,
in which the GPU works. What the GPU loses is `lost_share`: how much longer it took for the steps with exchanges, for each
exchange, over a step.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from mpca.agent.cuda import device_of, make_current, name_of
from mpca.agent.returned import unpack
from mpca.cli.bench.run.pipes import LoneAgent
from mpca.cli.bench.run.training import train_alone
from mpca.cli.bench.run.windows import LEAST_STEPS, LEAST_WINDOW_S, Window, step_times
from mpca.methods import MPCA, Method

__all__ = ["measure_alone"]

_ALPHA = 0.05
_WARM_STEPS = 10  # compile kernels, choose algorithms, fill caches


def measure_alone(device: str, nets: dict[str, int], half: bool, turns: int) -> dict[str, Any]:
    """One row for each net.

    Args:
        device: "cpu" or "cuda".
        nets: name of a model or a shape -> images of a batch.
        half: compute in bfloat16, by autocast.
        turns: how many windows with exchanges, and as many without.

    Raises:
        EnvironmentRefused: torch finds no GPU.
    """
    make_current(device_of(device))  # refused here, and not by the agent
    rows = [_measure(device, name, batch, half, turns) for name, batch in nets.items()]
    return {
        "case": "pause",
        "device": name_of(device_of(device)),
        "bf16": half,
        "pause_share": max(row["pause_share"] for row in rows),
        "steps_ratio": min(row["steps_ratio"] for row in rows),
        "lost_share": max(row["lost_share"] for row in rows),
        "nets": rows,
    }


def _measure(device: str, name: str, batch: int, half: bool, turns: int) -> dict[str, Any]:
    method: Method = MPCA()
    windows: list[Window] = []
    with LoneAgent(method, device, train_alone, name, batch, half) as agent:
        hello = agent.meet()
        agent.begin()
        while agent.progress is None or agent.progress.steps < _WARM_STEPS:
            agent.listen(0.5)
        seconds = max(LEAST_WINDOW_S, LEAST_STEPS * agent.progress.train_s / agent.progress.steps)
        cycle, held = 0, {shard: agent.snapshot(-1 - shard, shard)[1] for shard in range(method.shards)}
        for _ in range(turns):
            agent.listen(1.0)  # so that the newest report is of this side of the window
            window, paused = Window(True, time.time()), agent.progress.pause_s
            while time.time() - window.start < seconds:
                shard = cycle % method.shards
                ready = (shard - 1) % method.shards
                arrived, held[shard] = held[ready], agent.snapshot(cycle, shard)[1]
                agent.install(ready, cycle, arrived, alpha=_ALPHA)
                cycle += 1
                window.cycles += 1
            window.end = time.time()
            agent.listen(1.0)
            window.pause_s = agent.progress.pause_s - paused
            alone = Window(False, time.time())
            agent.listen(seconds)
            alone.end = time.time()
            windows += [window, alone]
        steps = unpack(agent.stop().returns)
    with_s, _ = step_times(steps, windows, True)
    without_s, _ = step_times(steps, windows, False)
    on = [one for one in windows if one.exchanging]
    exchanges, paused_s = sum(one.cycles for one in on), sum(one.pause_s for one in on)
    exchanging_s, step_s = sum(one.end - one.start for one in on), statistics.fmean(without_s)
    return {
        "name": name,
        "batch": batch,
        "size_bytes": 4 * hello.parameters,
        "step_s": step_s,
        "images_per_s": batch / step_s,
        "pause_share": paused_s / (exchanging_s - paused_s),
        "steps_ratio": step_s / statistics.fmean(with_s),
        "lost_share": (statistics.fmean(with_s) - step_s) * len(with_s) / exchanges / step_s,
        "steps": [len(with_s), len(without_s)],
        "exchanges": exchanges,
        "exchanges_per_step": exchanges * step_s / exchanging_s,
    }
