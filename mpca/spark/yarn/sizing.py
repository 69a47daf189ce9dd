"""How large the containers of a run must be, computed before YARN is asked for them. Numbers in, numbers and sentences out.

YARN counts the resident memory of every process in a container and kills a container that uses more than it was given. So a
container is sized for all that runs in it: the JVM's heap and what the JVM needs beside it, the agents' processes, and their
parameter slots. An agent maps its slots, and the JVM reads and writes them as a file. `mpca.driver.budget` sizes heaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpca.config.resolved import Resolved
from mpca.errors import EnvironmentRefused
from mpca.units import format_size, parse_size
from mpca.wire.slots import slot_offsets

if TYPE_CHECKING:
    from mpca.methods.base import Method

__all__ = [
    "Container",
    "check_containers",
    "driver_budget",
    "driver_container",
    "driver_models",
    "executor_budget",
    "executor_container",
    "memory_setting",
    "slots_bytes",
]

_MIB = 1 << 20
#: Spark's own rule for the memory that a JVM needs beside its heap.
_JVM_LEAST, _JVM_SHARE = 384 * _MIB, 0.10
#: Interpreter, torch and a small data set, measured: 765 MiB with the wheel for CUDA, whose libraries are larger.
_AGENT = 1024 * _MIB
#: The process that agents are forked from, measured with the same wheel: 532 MiB. YARN counts what they share once for each.
_PARENT = 576 * _MIB
#: In models, while its own state is copied: parameters, Adam's two moments, targets.
_MODELS_STATE = 4
#: With CUDA also pinned host memory and CUDA's context.
_CUDA = 3072 * _MIB
#: In models: parameters, gradients, Adam's two moments, and as much again for activations and copies.
_MODELS_AGENT = 8
#: The driver's interpreter, measured: 52 MiB, and 540 MiB once the wheel for CUDA is imported, 700 with torchvision.
_DRIVER, _DRIVER_TORCH = 256 * _MIB, 768 * _MIB
#: In models: x and v, and a copy of both while a backup is written; beside that one shard, where a sum arrives and what goes
#: out lies. Where agents ask by themselves, numpy's intermediate results too: 7.4 was measured.
_MODELS_JOINT, _MODELS_SERVER = 4, 8
#: In models: two in the evaluator's process, measured; and what is evaluated and the best one, which the driver keeps.
_MODELS_EVALUATOR = 4


@dataclass(frozen=True, slots=True)
class Container:
    """One container: its heap, and by name everything else in it, in bytes."""

    what: str
    heap: int
    heap_key: str  # the Spark setting of the heap
    parts: tuple[tuple[str, int], ...]
    asked: int | None = None  # an overhead that the caller demands in place of the sum of the parts
    cores: int = 1

    @property
    def overhead_key(self) -> str:
        return self.heap_key + "Overhead"

    @property
    def overhead(self) -> int:
        """Bytes beside the heap, in whole MiB."""
        needed = self.asked if self.asked is not None else sum(size for _, size in self.parts)
        return -(-needed // _MIB) * _MIB

    @property
    def total(self) -> int:
        return self.heap + self.overhead

    def line(self) -> str:
        """The sizes in one line."""
        parts = " + ".join(f"{name} {format_size(size)}" for name, size in self.parts)
        enough = self.asked is None or self.asked + self.total // 16 >= sum(size for _, size in self.parts)
        given = "" if enough else f", but {self.overhead_key} is {format_size(self.asked or 0)}"
        total, heap = format_size(self.total), format_size(self.heap)
        return f"{self.what} container: {total} = heap {heap} + {parts}{given}; cores: {self.cores}"


def slots_bytes(model_bytes: int, shards: int) -> int:
    """Bytes of the parameter slots of one agent: one slot for its snapshots, and one for the arrivals of each shard."""
    return slot_offsets([-(-model_bytes // shards)] * shards)[1]


def driver_models(method: Method) -> float:
    """How many times the model the driver's Python holds at most."""
    return _MODELS_SERVER if method.asks else _MODELS_JOINT + 1 / method.shards


def executor_container(
    heap: int,
    agents: int,
    model_bytes: int,
    shards: int,
    *,
    cuda: bool = False,
    agent_memory: int = 0,
    saves: bool = False,
    preload: bool = True,
    asked: int | None = None,
) -> Container:
    """What an executor with so many agents needs.

    Args:
        heap: bytes of its heap.
        agents: agents in it.
        model_bytes: of the flat vector; 0 if the model is not known yet.
        shards: of the method.
        cuda: whether agents train on GPUs.
        agent_memory: what one agent's process takes without its slots; 0: estimated.
        saves: whether agents' own states are in backups.
        preload: whether agents are forked from a process that has imported torch.
        asked: the overhead that the user demands, if any.
    """
    agent = agent_memory or _AGENT + (_CUDA if cuda else 0) + _MODELS_AGENT * model_bytes
    name = "agent" if agents == 1 else f"{agents} agents"
    parts = [("JVM", _jvm(heap)), (name, agents * agent)]
    if preload:
        parts.append(("their parent", _PARENT))
    if model_bytes:
        parts.append(("slots", agents * slots_bytes(model_bytes, shards)))
    if model_bytes and saves:
        parts.append(("copies to save", agents * _MODELS_STATE * model_bytes))
    return Container("executor", heap, "spark.executor.memory", tuple(parts), asked, cores=2 * agents)


def driver_container(
    heap: int, model_bytes: int, method: Method, *, torch: bool, evaluates: bool, asked: int | None = None
) -> Container:
    """What the driver needs in a container of its own, in cluster mode.

    Args:
        heap: bytes of its heap.
        model_bytes: of the flat vector; 0 if the model is not known yet.
        method: of the run.
        torch: whether its interpreter imports torch, as programs of a user's own do.
        evaluates: whether it has an evaluator's process.
        asked: the overhead that the user demands, if any.
    """
    python = (_DRIVER_TORCH if torch else _DRIVER) + int(driver_models(method) * model_bytes)
    parts = [("JVM", _jvm(heap)), ("Python", python)]
    if evaluates:
        parts.append(("evaluator", _AGENT + _MODELS_EVALUATOR * model_bytes))
    return Container("driver", heap, "spark.driver.memory", tuple(parts), asked)


def check_containers(containers: Sequence[Container], largest_bytes: int, largest_cores: int, where: str = "YARN") -> None:
    """Refuse a container that is larger than the largest that there is.

    Raises:
        EnvironmentRefused: one is; says what to change.
    """
    for one in containers:
        if one.total > largest_bytes:
            raise EnvironmentRefused(
                f"{one.what} container of {format_size(one.total)} is more than the largest that {where} gives, "
                f"{format_size(largest_bytes)}: {one.line()}; lower {one.heap_key}, cluster.agents_per_executor or "
                "cluster.agent_memory, or have yarn.scheduler.maximum-allocation-mb and "
                "yarn.nodemanager.resource.memory-mb raised"
            )
        if one.cores > largest_cores:
            raise EnvironmentRefused(
                f"{one.what} container of {one.cores} cores is more than the largest that {where} gives, {largest_cores}: "
                "an agent takes two; lower cluster.agents_per_executor, or have yarn.scheduler.maximum-allocation-vcores raised"
            )


def executor_budget(config: Resolved, conf: Mapping[str, str], model_bytes: int) -> str:
    """One line on the executors of a session, once the model is known; it begins with a warning if they lack memory.

    The run is not refused: an agent's need is an estimate, and when YARN kills a container the error says so.

    Args:
        config: of the run.
        conf: the session's settings.
        model_bytes: of the flat vector.
    """
    cluster = config.cluster
    heap, overhead = _given(conf, "executor")
    container = executor_container(
        heap,
        min(cluster.agents_per_executor, config.method.agents(cluster.agents)),
        model_bytes,
        config.method.shards,
        cuda=cluster.device == "cuda",
        agent_memory=cluster.agent_memory,
        saves=config.backup.optimizers,
        preload=cluster.preload,
        asked=overhead,
    )
    return _judged(container)


def driver_budget(config: Resolved, conf: Mapping[str, str], model_bytes: int, *, torch: bool, evaluates: bool) -> str:
    """The same of the driver's container, in cluster mode.

    Args:
        config: of the run.
        conf: the session's settings.
        model_bytes: of the flat vector.
        torch: whether the driver's interpreter has imported torch.
        evaluates: whether it has an evaluator's process.
    """
    heap, overhead = _given(conf, "driver")
    return _judged(driver_container(heap, model_bytes, config.method, torch=torch, evaluates=evaluates, asked=overhead))


def _given(conf: Mapping[str, str], what: str) -> tuple[int, int]:
    """Heap and overhead that Spark asks YARN for."""
    heap = parse_size(conf.get(f"spark.{what}.memory", "1g"))
    overhead = memory_setting(conf, f"spark.{what}.memoryOverhead")
    return heap, _jvm(heap) if overhead is None else overhead


def _judged(container: Container) -> str:
    needed = sum(size for _, size in container.parts)
    if needed <= container.overhead + container.total // 16:  # no estimate is finer than that
        return container.line()
    return f"warning: {container.overhead_key} should be {format_size(needed)}, or YARN may kill the {container.line()}"


def memory_setting(conf: Mapping[str, str], key: str) -> int | None:
    """Bytes of one of Spark's memory settings, in which a bare number counts MiB; None if it is not set."""
    text = conf.get(key)
    return None if text is None else parse_size(f"{text}m" if text.strip().isdigit() else text)


def _jvm(heap: int) -> int:
    return max(_JVM_LEAST, int(heap * _JVM_SHARE))
