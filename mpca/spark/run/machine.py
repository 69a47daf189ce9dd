"""Whether this machine has the memory for all processes of a run whose executors are on it, asked once the model is known.

Each heap may be large enough and all of them together too large. Then the kernel kills the largest process: an agent, whose
record says so, or the driver's Python, which can say nothing.
"""

from __future__ import annotations

import itertools

from mpca.config.resolved import Resolved
from mpca.driver.budget import driver_heap, executor_heap
from mpca.shm import available_bytes
from mpca.spark.yarn.sizing import driver_models, slots_bytes
from mpca.units import format_size

__all__ = ["machine_warning"]

#: In models: gradients and a momentum. Parameters are there when the model is known; activations nobody knows.
_MODELS_STEP = 2


def machine_warning(config: Resolved, bounds: list[int], answers: int, kept_bytes: int, free: int | None = None) -> str:
    """One line that begins with "warning", or nothing if there is enough.

    What is counted is what the model takes from now on: processes, and torch in each of them, are there already. Activations,
    an optimiser's second moment and an evaluator are not counted, and heaps are as they are asked for. On a machine with 15.6
    GiB left, one agent with 2.2 GiB (here 18.6) went well with one backup, at the end, and was killed with one every 20 s.

    Args:
        config: of the run.
        bounds: shard edges in elements of 4 bytes.
        answers: agents that may wait for an answer each, if they ask by themselves.
        kept_bytes: what an executor keeps for a codec; 0: there is none.
        free: bytes; None: what this machine, or this process's container, has left.
    """
    cluster, method = config.cluster, config.method
    agents = method.agents(cluster.agents)
    executors = -(-agents // cluster.agents_per_executor)
    shard, model = 4 * max(b - a for a, b in itertools.pairwise(bounds)), 4 * bounds[-1]
    each = min(agents, cluster.agents_per_executor)
    coded = model if kept_bytes else 0
    needed = (
        executors * (executor_heap(shard, each, kept_bytes) - executor_heap(0, each))
        + agents * _MODELS_STEP * model
        + (agents - 1) * slots_bytes(model, len(bounds) - 1)  # the first agent has them already
        + driver_heap(shard, model, answers, coded) - driver_heap(0, 0)
        + int(driver_models(method) * model)
    )  # fmt: skip
    free = available_bytes() if free is None else free
    if needed <= free:
        return ""
    return (
        f"warning: this machine has {format_size(free)} of memory left, and a model of {format_size(model)} takes about "
        f"{format_size(needed)} more with cluster.agents = {cluster.agents} on it, most while a backup is written. If memory "
        "runs out, the kernel kills a process of the run. Take fewer agents, or a cluster"
    )
