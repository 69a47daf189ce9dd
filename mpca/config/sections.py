"""One frozen dataclass per section of the configuration: its keys, their defaults, meaning and unit, and what they may be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mpca.checks import nearest, refused

__all__ = [
    "HEAP_RULE",
    "LEAST_HEAP",
    "SECTIONS",
    "TRACKERS",
    "BackupConfig",
    "ClusterConfig",
    "DataConfig",
    "ModelConfig",
    "ObjectivesConfig",
    "OptimizerConfig",
    "RunConfig",
    "TrackConfig",
]

#: Spark does not start with a smaller heap: it wants 1.5 times the 300 MiB that it reserves for itself.
LEAST_HEAP = 450 << 20
HEAP_RULE = f"must be {LEAST_HEAP >> 20}MiB or more: Spark wants 1.5 times the 300 MiB that it reserves"
_NAME_LETTERS = 100
#: Each is a module of that name, too.
TRACKERS = ("tensorboard", "mlflow", "wandb")


def _duration(default: float) -> Any:
    return field(default=default, metadata={"quantity": "duration"})


def _size(default: int) -> Any:
    return field(default=default, metadata={"quantity": "size"})


def _at_least(section: str, config: object, least: float, *keys: str) -> None:
    for key in keys:
        if not getattr(config, key) >= least:
            raise refused(f"{section}.{key}", getattr(config, key), f"must be {least} or more")


def _one_of(section: str, config: object, key: str, allowed: Iterable[str]) -> None:
    value = getattr(config, key)
    if value not in allowed:
        raise refused(f"{section}.{key}", value, f"must be one of {', '.join(allowed)}; {nearest(value, allowed)}")


@dataclass(frozen=True)
class RunConfig:
    """[run]: the run's name and its folder."""

    name: str = "run"
    """Part of the run folder's name, and of the name in Spark's pages. Up to 100 letters, digits, dots, dashes, underscores; it
    begins with neither dot nor dash."""
    seed: int = 0
    """Seed of x_0; seeds of the data differ by agent and incarnation. 0 to 2^63 - 1."""
    dir: str = ""
    """The run folder itself; empty: runs/<name>-<time>."""

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in "._-" for c in self.name) or self.name.startswith("."):
            raise refused("run.name", self.name, "must be letters, digits, dot, dash or underscore: it names a folder")
        if self.name.startswith("-"):
            raise refused("run.name", self.name, "must not begin with a dash: commands would take it for an option")
        if len(self.name) > _NAME_LETTERS:
            raise refused("run.name", self.name, f"must have {_NAME_LETTERS} letters or fewer: it names a folder")
        if not 0 <= self.seed < 1 << 63:
            raise refused("run.seed", self.seed, "must lie in 0 .. 2^63 - 1")


@dataclass(frozen=True)
class ModelConfig:
    """[model]: which model; other keys of the section are the model's own and its creator checks them."""

    name: str = "digits_convnet"
    """A name of mpca.models.MODELS."""
    options: dict[str, Any] = field(default_factory=dict, metadata={"open": True})
    """The section's other keys."""


@dataclass(frozen=True)
class DataConfig:
    """[data]: the data set; other keys of the section are the data set's own, and it checks them."""

    name: str = "digits"
    """A name of mpca.data.DATA_SETS."""
    batch_size: int = 32
    """Samples of one agent's batch."""
    max_bad_fraction: float = 0.0
    """Share of unreadable records, in [0, 1], above which the run ends with exit code 4."""
    options: dict[str, Any] = field(default_factory=dict, metadata={"open": True})
    """The section's other keys."""

    def __post_init__(self) -> None:
        _at_least("data", self, 1, "batch_size")
        if not 0 <= self.max_bad_fraction <= 1:
            raise refused("data.max_bad_fraction", self.max_bad_fraction, "must lie in [0, 1]")


@dataclass(frozen=True)
class OptimizerConfig:
    """[optimizer]: each agent's own; its state is never exchanged."""

    name: str = "adam"
    """A name of mpca.models.OPTIMIZERS."""
    lr: float = 1e-3
    """Learning rate, above 0."""
    weight_decay: float = 0.0
    """Coupled L2, but for adamw. The paper's lambda ||x||^2 is a weight_decay of 2 lambda."""
    momentum: float = 0.0
    """Momentum, in [0, 1); for sgd, and for nesterov, which needs one above 0."""

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise refused("optimizer.lr", self.lr, "must be above 0")
        _at_least("optimizer", self, 0, "weight_decay")
        if not 0 <= self.momentum < 1:
            raise refused("optimizer.momentum", self.momentum, "must lie in [0, 1)")
        if self.momentum and self.name not in ("sgd", "nesterov"):
            raise refused("optimizer.momentum", self.momentum, f"is for sgd and nesterov; optimizer.name is {self.name!r}")
        if not self.momentum and self.name == "nesterov":
            raise refused("optimizer.momentum", self.momentum, "must be above 0 for nesterov, such as 0.9")


@dataclass(frozen=True)
class ObjectivesConfig:
    """[objectives]: ends of a run; the first one that is reached ends it."""

    target_error: float = 0.0
    """Error of the joint model on the test set, a share in [0, 1); 0: none."""
    targets: str = ""
    """Goals by other numbers that the evaluation returns, such as "loss <= 0.1", with commas between them. `mpca train`
    and `mpca submit` evaluate error and loss, a program whatever it likes: "accuracy >= 0.97, perplexity <= 20"."""
    early_stopping: str = ""
    """A metric, with min or max before it where that is not known, such as "loss" or "max f1"; empty: none."""
    patience: int = 10
    """Evaluations in a row without a better value of that metric, after which the run ends."""
    keep_best: str = ""
    """A metric, as for early_stopping: the result is the joint model that was the best by it. Empty: the last one."""
    max_time: float = _duration(0.0)
    """Seconds since all agents of the start trained, over all attempts of the run; 0: none."""
    max_cycles: int = 0
    """Cycles over all attempts, or exchanges of one agent where agents ask by themselves; 0: none."""
    evaluate_every: float = _duration(1.0)
    """Seconds between two evaluations of the joint model, which run while training goes on; 0: without a pause."""

    def __post_init__(self) -> None:
        if not 0 <= self.target_error < 1:
            raise refused("objectives.target_error", self.target_error, "must lie in [0, 1): 0.025 is 2.5 %")
        _at_least("objectives", self, 0, "max_time", "max_cycles", "evaluate_every")
        _at_least("objectives", self, 1, "patience")


@dataclass(frozen=True)
class ClusterConfig:
    """[cluster]: agents, where they run, and how their bytes move."""

    agents: int = 2
    """Number of agents to start; each needs a GPU or a share of CPUs."""
    min_agents: int = 1
    """The run pauses while fewer are alive."""
    agents_per_executor: int = 1
    """Number of agents in one executor, which needs two cores for each."""
    executor_memory: int = _size(1 << 30)
    """Bytes of one executor JVM's heap, 450 MiB or more."""
    agent_memory: int = _size(0)
    """Bytes of one agent's process, without its parameter slots, on a cluster that limits memory (YARN); 0: estimated."""
    cycle_deadline: float = _duration(30.0)
    """Seconds that a cycle waits for an agent before it continues without the agent."""
    start_timeout: float = _duration(180.0)
    """Seconds from the start of the run to the first step."""
    finish_timeout: float = _duration(300.0)
    """Seconds after the run's end for the code after train functions' loops (at least 4), and then for the last evaluation."""
    norm_limit: float = 10.0
    """A contribution that moved further than this many times the others' median is left out; 0: no limit."""
    device: str = "cpu"
    """Device of the agents' training: "cpu" or "cuda"."""
    threads: int = 1
    """Threads of one agent's computations."""
    reducer: str = "ranges"
    """How sums are made: "ranges" (one job, in pieces) or "tree" (Spark's)."""
    broadcast: str = "relay"
    """How joint states are sent: "relay" (executors pass pieces on) or "torrent" (Spark's)."""
    codec: str = "auto"
    """How exchanged parameters are written: "none" (float32), or differences as "bf16", "int8" or "int4", lossy; "auto":
    int8 with method mpca-nesterov by ranges and relay (docs/compare.md: what it costs in updates), else none."""
    chunk: int = _size(256 << 10)
    """Bytes of one piece of a shard, 16 KiB to 1 MiB."""
    python: str = ""
    """Interpreter of the agents on their machines; empty: the driver's."""
    preload: bool = True
    """Whether an executor imports torch once and forks its agents; false: each agent imports it for itself."""

    def __post_init__(self) -> None:
        _at_least("cluster", self, 1, "agents", "min_agents", "agents_per_executor", "threads")
        if self.min_agents > self.agents:
            raise refused("cluster.min_agents", self.min_agents, f"must be at most cluster.agents = {self.agents}")
        if self.agents_per_executor > self.agents:
            raise refused(
                "cluster.agents_per_executor", self.agents_per_executor, f"must be at most cluster.agents = {self.agents}"
            )
        for key in ("cycle_deadline", "start_timeout"):
            if not getattr(self, key) > 0:
                raise refused(f"cluster.{key}", getattr(self, key), "must be above 0, such as '30s'")
        if self.executor_memory < LEAST_HEAP:
            raise refused("cluster.executor_memory", self.executor_memory, HEAP_RULE)
        _at_least("cluster", self, 0, "agent_memory", "finish_timeout")
        if self.norm_limit and not 1 < self.norm_limit < math.inf:
            raise refused("cluster.norm_limit", self.norm_limit, "must be above 1, such as 10, or 0 for none")
        if not 16 << 10 <= self.chunk <= 1 << 20:
            raise refused("cluster.chunk", self.chunk, "must lie between 16KiB and 1MiB")
        _one_of("cluster", self, "reducer", ("ranges", "tree"))
        _one_of("cluster", self, "broadcast", ("relay", "torrent"))
        _one_of("cluster", self, "device", ("cpu", "cuda"))
        _one_of("cluster", self, "codec", ("auto", "none", "bf16", "int8", "int4"))
        for key, value in (("reducer", "ranges"), ("broadcast", "relay")):
            if self.codec not in ("auto", "none") and getattr(self, key) != value:
                raise refused("cluster.codec", self.codec, f'needs cluster.{key} = "{value}": Spark\'s own sends float32 alone')


@dataclass(frozen=True)
class BackupConfig:
    """[backup]: backups, from which a run can resume."""

    interval: float = _duration(60.0)
    """Seconds between two backups; 0: only one at the end, so a driver that is started again begins anew."""
    keep: int = 3
    """Number of backups to keep, 1 or more."""
    path: str = ""
    """Folder of the backups; empty: backups/ in the run folder."""
    optimizers: bool = False
    """Whether backups hold all that is each agent's own: its optimisers, what mpca.attach(..., state=...) named, random numbers
    and parameters. Executors write it. A run of as many agents then goes on where they were, and not at the joint model."""

    def __post_init__(self) -> None:
        _at_least("backup", self, 0, "interval")
        _at_least("backup", self, 1, "keep")


@dataclass(frozen=True)
class TrackConfig:
    """[track]: trackers of experiments, which get the run's numbers, and its files at the end. None holds the run up."""

    trackers: str = ""
    """Some of tensorboard, mlflow and wandb, such as "tensorboard, mlflow"; each is an extra. Empty: none."""
    project: str = ""
    """MLflow's experiment and W&B's project; empty: run.name."""
    mlflow_uri: str = ""
    """MLflow's server or store; empty: what MLFLOW_TRACKING_URI says."""
    model: bool = True
    """Whether MLflow and W&B get the model too, beside report, summary and configuration."""
    finish_timeout: float = _duration(60.0)
    """Seconds that trackers have after the run's end for what they have not taken yet; one that does not answer has five."""

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in TRACKERS:
                raise refused("track.trackers", self.trackers, f"{name!r} is no tracker; {nearest(name, TRACKERS)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The trackers, each once."""
        return tuple(dict.fromkeys(name for one in self.trackers.split(",") if (name := one.strip())))


SECTIONS: dict[str, type] = {
    "run": RunConfig,
    "model": ModelConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "objectives": ObjectivesConfig,
    "cluster": ClusterConfig,
    "backup": BackupConfig,
    "track": TrackConfig,
}
