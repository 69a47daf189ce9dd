"""The configuration of a run: one frozen dataclass per section, read from TOML, Spark and the command line, in that order.

Each section's class has its keys, their meaning and unit. Wrong values are refused here, before a cluster is used, with the
key, the value, its source and the remedy. This module is also the only reader of the environment; agents import it for that,
and do not need TOML. Not for checks that need a cluster, data or a model: their owners make them.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mpca.checks import build, knobs, nearest, parse, refuse_password, refused
from mpca.errors import ConfigError
from mpca.formats import CONFIG, check_format
from mpca.private import opener
from mpca.redaction import DEFAULT, MASKS, PATTERN, redacted, redaction
from mpca.units import parse_size

__all__ = [
    "LEAST_HEAP",
    "ORIGINS",
    "SPARK_PREFIX",
    "BackupConfig",
    "ClusterConfig",
    "DataConfig",
    "ModelConfig",
    "ObjectivesConfig",
    "OptimizerConfig",
    "Resolved",
    "RunConfig",
    "child_environment",
    "environment",
    "load",
]

#: Sources of values, in the [origin] table of a run's config.toml; later ones win.
ORIGINS = ("default", "file", "Spark", "command line")
SPARK_PREFIX = "spark.mpca."
#: Spark does not start with a smaller heap: it wants 1.5 times the 300 MiB that it reserves for itself.
LEAST_HEAP = 450 << 20
_HEAP_RULE = f"must be {LEAST_HEAP >> 20}MiB or more: Spark wants 1.5 times the 300 MiB that it reserves"
_NAME_LETTERS = 100
_NESTED = 16  # tables within tables of a file; Spark's longest names have seven parts


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
    """A name of mpca.models.training.OPTIMIZERS."""
    lr: float = 1e-3
    """Learning rate, above 0."""
    weight_decay: float = 0.0
    """Coupled L2. The paper's lambda ||x||^2 is a weight_decay of 2 lambda."""
    momentum: float = 0.0
    """Momentum, in [0, 1); for sgd only."""

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise refused("optimizer.lr", self.lr, "must be above 0")
        _at_least("optimizer", self, 0, "weight_decay")
        if not 0 <= self.momentum < 1:
            raise refused("optimizer.momentum", self.momentum, "must lie in [0, 1)")
        if self.momentum and self.name != "sgd":
            raise refused("optimizer.momentum", self.momentum, f"is for sgd; optimizer.name is {self.name!r}")


@dataclass(frozen=True)
class ObjectivesConfig:
    """[objectives]: ends of a run; the first one that is reached ends it."""

    target_error: float = 0.0
    """Error of the joint model on the test set, a share in [0, 1); 0: none."""
    max_time: float = _duration(0.0)
    """Seconds since all agents of the start trained, over all attempts of the run; 0: none."""
    max_cycles: int = 0
    """Cycles over all attempts; 0: none."""
    evaluate_every: float = _duration(1.0)
    """Seconds between two evaluations of the joint model, which run while training goes on; 0: without a pause."""

    def __post_init__(self) -> None:
        if not 0 <= self.target_error < 1:
            raise refused("objectives.target_error", self.target_error, "must lie in [0, 1): 0.025 is 2.5 %")
        _at_least("objectives", self, 0, "max_time", "max_cycles", "evaluate_every")


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
    """Seconds that train functions have, after the run's end, for the code after their loop; at least 4."""
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
    chunk: int = _size(256 << 10)
    """Bytes of one piece of a shard, 16 KiB to 1 MiB."""
    python: str = ""
    """Interpreter of the agents on their machines; empty: the driver's."""

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
            raise refused("cluster.executor_memory", self.executor_memory, _HEAP_RULE)
        _at_least("cluster", self, 0, "agent_memory", "finish_timeout")
        if self.norm_limit and not 1 < self.norm_limit < math.inf:
            raise refused("cluster.norm_limit", self.norm_limit, "must be above 1, such as 10, or 0 for none")
        if not 16 << 10 <= self.chunk <= 1 << 20:
            raise refused("cluster.chunk", self.chunk, "must lie between 16KiB and 1MiB")
        _one_of("cluster", self, "reducer", ("ranges", "tree"))
        _one_of("cluster", self, "broadcast", ("relay", "torrent"))
        _one_of("cluster", self, "device", ("cpu", "cuda"))


@dataclass(frozen=True)
class BackupConfig:
    """[backup]: backups, from which a run can resume."""

    interval: float = _duration(60.0)
    """Seconds between two backups; 0: only one at the end, so a driver that is started again begins anew."""
    keep: int = 3
    """Number of backups to keep, 1 or more."""
    path: str = ""
    """Folder of the backups; empty: backups/ in the run folder."""

    def __post_init__(self) -> None:
        _at_least("backup", self, 0, "interval")
        _at_least("backup", self, 1, "keep")


_SECTIONS: dict[str, type] = {
    "run": RunConfig,
    "model": ModelConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "objectives": ObjectivesConfig,
    "cluster": ClusterConfig,
    "backup": BackupConfig,
}
_DEFAULT_METHOD = "mpca"
_ALL = (*_SECTIONS, "method", "spark")
_OFF_REQUIRED = {
    "spark.speculation": "a second copy of a task would ask the same agent twice",
    "spark.dynamicAllocation.enabled": "executors that hold agents would be taken away",
}


@dataclass(frozen=True)
class Resolved:
    """A whole configuration, with the source of each key."""

    run: RunConfig
    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    method: Any  # a mpca.methods.Method; this row of the layers does not know methods
    objectives: ObjectivesConfig
    cluster: ClusterConfig
    backup: BackupConfig
    spark: dict[str, str] = field(repr=False)  # full names of Spark's settings, passed through, secrets among them
    origins: dict[str, str]  # "section.key" -> one of ORIGINS
    redaction: str = DEFAULT  # the spark.redaction.regex in force

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every section for TOML and msgpack: durations and sizes as text with their unit, secrets masked."""
        tables: dict[str, dict[str, Any]] = {name: _table(getattr(self, name)) for name in _SECTIONS}
        tables["method"] = self.method.to_dict()
        tables["spark"] = redacted(self.spark, self.redaction)
        return tables

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write ``config.toml``, for its owner alone: a table [origin] says where each key came from.

        `load` reads the file as a configuration like any other; it passes [origin] over, and refuses a secret that is masked.
        """
        import tomli_w

        text = tomli_w.dumps({"format": CONFIG, **self.to_dict(), "origin": dict(self.origins)})
        with open(path, "w", encoding="utf-8", opener=opener) as file:
            file.write(text)


def load(
    path: str | os.PathLike[str] | None,
    sets: Iterable[str] = (),
    spark_conf: Mapping[str, str] | None = None,
    *,
    method: Callable[[Mapping[str, Any]], Any],
) -> Resolved:
    """Resolve a configuration: defaults, then the file, then ``spark.mpca.*``, then ``--set``.

    When a source names another method than earlier sources, their numbers for the former method are dropped, so that
    ``--set method.name=sync`` works with a file that tunes mpca.

    Args:
        path: a TOML file, or None for defaults alone.
        sets: ``section.key=bare text``, parsed by the key's type.
        spark_conf: settings of the Spark session; those without the prefix are only checked for what a run forbids.
        method: makes a method of a [method] section: ``mpca.methods.from_dict``.

    Raises:
        ConfigError: with the key, the value, where it was set and what is allowed; for TOML with line and column.
    """
    given = _Given()
    if path is not None:
        _read_file(given, path)
    session = spark_conf or {}
    for key in sorted((key for key in session if key.startswith(SPARK_PREFIX)), key=_method_name_first):
        given.put(key.removeprefix(SPARK_PREFIX), session[key], "Spark", f"Spark setting {key}")
    for one in sorted(sets, key=_method_name_first):
        key, equals, text = one.partition("=")
        if not equals:
            raise ConfigError(f"--set {one}: must be section.key=value, such as --set objectives.max_time=75s")
        given.put(key.strip(), text, "command line", f"--set {key.strip()}")
    try:
        sections = {name: _section(cls, name, given.values.get(name, {})) for name, cls in _SECTIONS.items()}
        chosen = method(given.values["method"])
        spark = _spark(given.values.get("spark", {}))
        _check_spark(spark, session, sections["cluster"])
        rule = _redaction(spark, session)
    except ConfigError as error:
        source = given.sources.get(error.key or "")
        if source is None:
            raise
        told = ConfigError(f"{error} (set by {source})")
        told.key = error.key
        raise told from None
    resolved = Resolved(**sections, method=chosen, spark=spark, origins={}, redaction=rule)
    for name, table in resolved.to_dict().items():
        for key in table:
            full = f"{name}.{key}" if name != "spark" else key
            resolved.origins[full] = given.origins.get(full, "default")
    return resolved


@dataclass
class _Given:
    """The values of the sources read so far. A later source replaces an earlier one's value of the same key."""

    values: dict[str, dict[str, Any]] = field(default_factory=lambda: {"method": {"name": _DEFAULT_METHOD}})
    origins: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def put(self, full: str, value: Any, origin: str, source: str) -> None:
        section, dot, key = full.partition(".")
        if section not in _ALL:
            raise ConfigError(f"unknown section of {full} ({source}): {nearest(section, _ALL)}")
        if not dot or not key:
            raise ConfigError(f"{source}: {section} is a section; name one of its keys as {section}.key")
        if section == "spark":  # [spark] executor.cores and [spark] "spark.executor.cores" are one setting
            key = full = key if key.startswith("spark.") else full
        if full == "method.name" and value != self.values["method"]["name"]:
            self.values["method"] = {}
        refuse_password(full, value)
        self.values.setdefault(section, {})[key] = value
        self.origins[full] = origin
        self.sources[full] = source


def _method_name_first(key: str) -> bool:
    """Key for sorting a source's keys: the method's name comes first, the others keep their order."""
    return not key.removeprefix(SPARK_PREFIX).startswith("method.name")


def _read_file(given: _Given, path: str | os.PathLike[str]) -> None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        text = Path(path).read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"configuration cannot be read: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration is not UTF-8 text: {path}: byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:  # its text ends "(at line 3, column 7)"
        raise ConfigError(f"configuration is not TOML: {path}: {error}") from None
    except ValueError as error:  # a whole number with thousands of digits
        raise ConfigError(f"configuration cannot be read: {path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"configuration is nested too deeply: {path}") from None
    if _too_deep(tables):  # the reader does not limit the nesting of dotted keys
        raise ConfigError(f"configuration is nested too deeply: {path}")
    check_format(str(path), tables.pop("format", CONFIG), CONFIG)
    for section, table in tables.items():
        if section == "origin":  # from a run's own config.toml; now all its values come from this file
            continue
        if section not in _ALL:
            raise ConfigError(f"unknown section [{section}] ({path}): {nearest(section, _ALL)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{section} = {table!r} ({path}): is a section; write [{section}] and its keys below it")
        pairs = dict(_flat(table)) if section == "spark" else table
        named = {f"{section}.{key}": value for key, value in pairs.items()}
        for full in sorted(named, key=_method_name_first):
            given.put(full, named[full], "file", f"{path}: {full}")


def _too_deep(tables: Mapping[str, Any]) -> bool:
    level: list[Any] = [tables]
    for _ in range(_NESTED):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for values in inner for one in values if isinstance(one, (dict, list))]
    return bool(level)


def _section(cls: type, name: str, values: Mapping[str, Any]) -> Any:
    known = {key: knob for key, knob in knobs(cls).items() if "open" not in knob.metadata}
    if len(known) == len(knobs(cls)):
        return build(cls, name, values)
    own = {key: parse(f"{name}.{key}", known[key], value) for key, value in values.items() if key in known}
    return cls(**own, options={key: value for key, value in values.items() if key not in known})


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Spark's dotted names, from the nested tables that TOML makes of them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _spark(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as texts in Spark's form."""
    settings = {}
    for key, value in values.items():
        if isinstance(value, (list, tuple)):
            value = ",".join(str(one) for one in value)
        settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def _check_spark(own: Mapping[str, str], session: Mapping[str, str], cluster: ClusterConfig) -> None:
    both = {**session, **own}
    for key, why in _OFF_REQUIRED.items():
        if both.get(key, "false").strip().lower() == "true":
            by = "" if key in own else " (set by the Spark session)"
            raise refused(key, both[key], f"must be false: {why}{by}")
    for key in own:
        if key.startswith(SPARK_PREFIX):
            raise refused(key, own[key], "write it in its own section instead of [spark]")
    for key in ("spark.executor.memory", "spark.driver.memory"):
        if key in own:
            _check_heap(key, own[key])
    cores, needed = both.get("spark.executor.cores"), 2 * cluster.agents_per_executor
    if cores is not None and cores.strip().isdigit() and int(cores) < needed:
        raise refused(
            "spark.executor.cores",
            int(cores),
            f"must be {needed} or more: an agent needs two cores of its executor, one that holds it and one for the "
            f"exchange, and cluster.agents_per_executor is {cluster.agents_per_executor}",
        )


def _check_heap(key: str, text: str) -> None:
    """Check a heap's size. A number without a unit is in MiB, as for Spark."""
    try:
        size = parse_size(f"{text}m" if text.strip().isdigit() else text)
    except ValueError as error:
        raise refused(key, text, str(error)) from None
    if size < LEAST_HEAP:
        raise refused(key, text, _HEAP_RULE)


def _redaction(own: Mapping[str, str], session: Mapping[str, str]) -> str:
    """The rule for secrets. A value that is a mask is refused."""
    for key, value in own.items():
        if value.strip() in MASKS:
            raise refused(
                key, value, f"is masked and no value: give the secret again, as by --set {key}=..., or leave the key out"
            )
    rule = own.get(PATTERN) or session.get(PATTERN) or DEFAULT
    try:
        redaction(rule)
    except ValueError as error:
        raise refused(PATTERN, rule, str(error)) from None
    return rule


def _table(config: Any) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        if "open" in one.metadata:
            table.update(value)
        elif one.metadata.get("quantity") == "duration":
            table[one.name] = f"{value:.9f}".rstrip("0").rstrip(".") + "s"
        elif one.metadata.get("quantity") == "size":
            table[one.name] = _size_text(value)
        else:
            table[one.name] = value
    return table


def _size_text(size_bytes: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def environment(name: str, default: str = "") -> str:
    """One variable of the environment, which only this function reads."""
    return os.environ.get(name, default)


def child_environment(**changes: str) -> dict[str, str]:
    """A copy of the environment with changes, for a process that we start."""
    return {**os.environ, **changes}
