"""How much of a JVM's heap an exchange needs, computed before the run needs it: an evicted block fails its cycle.

Spark gives blocks 0.6 of the heap less 300 MiB (spark.memory.fraction). Measured with the prototype of this engine: an
executor holds its frozen parts of two cycles, what others push to it for the sums of both, and the pieces of a broadcast or
two; the driver the chunks of a sum and its broadcasts. The parameters themselves lie with the agents, outside the heap.
"""

from __future__ import annotations

import itertools

from mpca.errors import ConfigError
from mpca.units import format_size

__all__ = ["check_heaps", "driver_heap", "executor_heap"]

_RESERVED = 300 << 20
_FRACTION = 0.6
# In shards: an executor's parts of this cycle and the next, others' ranges of the same two, one broadcast that arrives, one
# that is superseded, and one that is kept for an agent that is late with it.
_EXECUTOR_SHARDS = 7
# In shards, beside the joint model for joiners: a sum, broadcasts of this cycle and the next, and one that an agent is late
# with.
_DRIVER_SHARDS = 4
# In models, with a codec: two versions of each base; on an executor also what rounding left of the parts of two cycles of each
# shard, and its share of what it left of two sums.
_DRIVER_BASES = 2
_EXECUTOR_BASES = 5


def executor_heap(shard_bytes: int, agents: int, coded_bytes: int = 0) -> int:
    """Heap that an executor needs. With several agents it holds their snapshots beside their sum.

    Args:
        shard_bytes: size of the largest shard.
        agents: how many the executor has.
        coded_bytes: size of all shards, if a codec writes them.

    Returns:
        Bytes.
    """
    shards = _EXECUTOR_SHARDS + (2 * agents if agents > 1 else 0)
    return _RESERVED + int((shards * shard_bytes + _EXECUTOR_BASES * coded_bytes) / _FRACTION)


def driver_heap(shard_bytes: int, model_bytes: int, answers: int = 0, coded_bytes: int = 0) -> int:
    """Heap that the driver's JVM needs.

    Args:
        shard_bytes: size of the largest shard.
        model_bytes: size of all shards.
        answers: shards on their way to agents that asked by themselves.
        coded_bytes: as in `executor_heap`.

    Returns:
        Bytes.
    """
    shards = (_DRIVER_SHARDS + answers) * shard_bytes
    return _RESERVED + int((shards + model_bytes + _DRIVER_BASES * coded_bytes) / _FRACTION)


def check_heaps(
    bounds: list[int],
    agents_per_executor: int,
    executor_bytes: int,
    driver_bytes: int,
    answers: int = 0,
    *,
    codec: bool = False,
) -> str:
    """Compare the heaps that are needed with those that are there.

    Args:
        bounds: shard edges in elements of 4 bytes.
        agents_per_executor: agents in one executor.
        executor_bytes: heap of an executor.
        driver_bytes: heap of the driver's JVM.
        answers: agents that may wait for an answer each, if they ask by themselves.
        codec: whether one writes what is exchanged.

    Returns:
        One line that names both.

    Raises:
        ConfigError: a heap is too small; says which, what it needs, and what to set.
    """
    shard = 4 * max(b - a for a, b in itertools.pairwise(bounds))
    model = 4 * bounds[-1]
    coded = model if codec else 0
    executor, driver = executor_heap(shard, agents_per_executor, coded), driver_heap(shard, model, answers, coded)
    for need, have, key in (
        (executor, executor_bytes, "cluster.executor_memory (spark.executor.memory)"),
        (driver, driver_bytes, "spark.driver.memory"),
    ):
        if have < need:
            other = ', or leave cluster.codec = "none"' if codec else ""
            raise ConfigError(
                f"{key} = {format_size(have)}: too little for a model of {format_size(model)} in shards of "
                f"{format_size(shard)}, which needs {format_size(need)}; raise it, or method.shards{other}"
            )
    return (
        f"model {format_size(model)}, shards of {format_size(shard)}; heap needed / there: "
        f"executor {format_size(executor)} / {format_size(executor_bytes)}, "
        f"driver {format_size(driver)} / {format_size(driver_bytes)}"
    )
