"""How much of a JVM's heap an exchange needs, computed before the run needs it: an evicted block fails its cycle.

Spark gives blocks 0.6 of the heap less 300 MiB (spark.memory.fraction). Measured with the prototype of this engine: an
executor holds its frozen parts of two cycles, what others push to it for the sums of both, and the pieces of a broadcast or
two; the driver the chunks of a sum and its broadcasts. The parameters themselves lie with the agents, outside the heap.

What an executor keeps for a codec is no block of Spark's, and may have the rest of the heap too. Measured: two executors with
int8 and 128 MiB in three shards, for which this asks for 1314 MiB each, went on with 940.
"""

from __future__ import annotations

import itertools

from mpca.errors import ConfigError
from mpca.units import format_size

__all__ = ["check_heaps", "driver_heap", "executor_heap", "kept_for_codec"]

_RESERVED = 300 << 20
_FRACTION = 0.6  # of the rest: for blocks
_FILLED = 0.8  # of the rest: by blocks and everything else; what is over is the garbage collector's
# In shards: an executor's parts of this cycle and the next, others' ranges of the same two, one broadcast that arrives, one
# that is superseded, and one that is kept for an agent that is late with it.
_EXECUTOR_SHARDS = 7
# In shards, beside the joint model for joiners: a sum, broadcasts of this cycle and the next, and one that an agent is late
# with.
_DRIVER_SHARDS = 4
# In models, with a codec: two versions of each base.
_BASES = 2
# In models, the same: what rounding left of an executor's parts, of each shard the newest, or of two cycles (`Freeze.rests`).
_OF_PARTS = {"dropped": 0, "answered": 1, "carried": 2}
# In models, the same, of all executors together: what it left of two sums of each shard.
_OF_SUMS = 2


def kept_for_codec(model_bytes: int, rests: str, executors: int) -> int:
    """What an executor keeps for a codec from cycle to cycle.

    Args:
        model_bytes: size of all shards.
        rests: what becomes of what rounding leaves of its parts, as in `Freeze.rests`.
        executors: how many share the sums.

    Returns:
        Bytes.
    """
    return int((_BASES + _OF_PARTS[rests] + _OF_SUMS / executors) * model_bytes)


def executor_heap(shard_bytes: int, agents: int, kept_bytes: int = 0) -> int:
    """Heap that an executor needs. With several agents it holds their snapshots beside their sum.

    Args:
        shard_bytes: size of the largest shard.
        agents: how many the executor has.
        kept_bytes: what it keeps for a codec.

    Returns:
        Bytes.
    """
    blocks = (_EXECUTOR_SHARDS + (2 * agents if agents > 1 else 0)) * shard_bytes
    return _RESERVED + int(max(blocks / _FRACTION, (blocks + kept_bytes) / _FILLED))


def driver_heap(shard_bytes: int, model_bytes: int, answers: int = 0, coded_bytes: int = 0) -> int:
    """Heap that the driver's JVM needs.

    Args:
        shard_bytes: size of the largest shard.
        model_bytes: size of all shards.
        answers: shards on their way to agents that asked by themselves.
        coded_bytes: size of all shards, if a codec writes them.

    Returns:
        Bytes.
    """
    shards = (_DRIVER_SHARDS + answers) * shard_bytes
    return _RESERVED + int((shards + model_bytes + _BASES * coded_bytes) / _FRACTION)


def _whole(size: int) -> str:
    """A heap as Spark is told it, in whole MiB: rounded to GiB, what there is and what is needed may read alike."""
    return f"{-(-size >> 20)}m"


def check_heaps(
    bounds: list[int],
    agents_per_executor: int,
    executor_bytes: int,
    driver_bytes: int,
    answers: int = 0,
    *,
    kept_bytes: int = 0,
) -> str:
    """Compare the heaps that are needed with those that are there.

    Args:
        bounds: shard edges in elements of 4 bytes.
        agents_per_executor: agents in one executor.
        executor_bytes: heap of an executor.
        driver_bytes: heap of the driver's JVM.
        answers: agents that may wait for an answer each, if they ask by themselves.
        kept_bytes: what an executor keeps for a codec; 0: there is none.

    Returns:
        One line that names both.

    Raises:
        ConfigError: a heap is too small; says which, what it needs, and what to set.
    """
    shard = 4 * max(b - a for a, b in itertools.pairwise(bounds))
    model = 4 * bounds[-1]
    executor = executor_heap(shard, agents_per_executor, kept_bytes)
    driver = driver_heap(shard, model, answers, coded_bytes=model if kept_bytes else 0)
    for need, have, key in (
        (executor, executor_bytes, "cluster.executor_memory (spark.executor.memory)"),
        (driver, driver_bytes, "spark.driver.memory"),
    ):
        if have < need:
            other = ', or leave cluster.codec = "none"' if kept_bytes else ""
            raise ConfigError(
                f"{key} = {_whole(have)}: too little for a model of {format_size(model)} in shards of "
                f"{format_size(shard)}, which needs {_whole(need)}; raise it, or method.shards{other}"
            )
    return (
        f"model {format_size(model)}, shards of {format_size(shard)}; heap needed / there: "
        f"executor {format_size(executor)} / {format_size(executor_bytes)}, "
        f"driver {format_size(driver)} / {format_size(driver_bytes)}"
    )
