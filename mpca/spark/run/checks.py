"""What a Spark session must be like before an agent is started: refused settings, each with value, source and remedy.

This file judges settings alone. What only the executors know (their cores, their Python) is judged when they say it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from mpca.checks import refused
from mpca.config.sections import LEAST_HEAP
from mpca.errors import EnvironmentRefused
from mpca.spark.jvm.jar import JAR, PLUGIN
from mpca.spark.yarn.sizing import memory_setting
from mpca.units import format_size, parse_size

__all__ = ["check_heaps", "check_session"]

_SOURCE = "(Spark session)"
_CLASS_PATHS = ("spark.jars", "spark.driver.extraClassPath", "spark.yarn.dist.jars", "spark.submit.pyFiles")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*]")
#: More than the answers of a cycle's tasks take.
_RESULTS_BYTES = 16 << 20
_RESULTS_DEFAULT = "1g"
_MIB = 1 << 20
#: The share of a heap that Runtime.maxMemory reports, by collector.
_COUNTED = (("-XX:+UseSerialGC", Fraction(29, 30)), ("-XX:+UseParallelGC", Fraction(8, 9)))
_TWO_CORES = "an agent needs two cores of its executor, one that holds it and one for the exchange"


def check_session(
    conf: Mapping[str, str],
    *,
    agents: int = 1,
    agents_per_executor: int = 1,
    reducer: str = "ranges",
    shard_bytes: int = 0,
) -> None:
    """Refuse a session on which a run would hang, starve or be taken apart.

    Args:
        conf: the session's settings, ``dict(spark.sparkContext.getConf().getAll())``.
        agents: how many the run wants.
        agents_per_executor: how many share an executor.
        reducer: "ranges" or "tree"; the sums of a tree are task results.
        shard_bytes: the largest shard; 0: not known yet.

    Raises:
        ConfigError: a setting, named, with the value seen and what to set instead.
        EnvironmentRefused: our jar or plug-in is missing.
    """
    _check_plugin(conf)
    for key, why in (
        ("spark.speculation", "a second copy of a task would ask the same agent twice"),
        ("spark.dynamicAllocation.enabled", "executors that hold agents would be taken away"),
    ):
        if conf.get(key, "false").strip().lower() == "true":
            raise refused(key, conf[key], f"must be false {_SOURCE}: {why}")
    _check_cores(conf, agents, agents_per_executor)
    _check_results(conf, agents, reducer, shard_bytes)


def check_heaps(conf: Mapping[str, str]) -> None:
    """Refuse heaps of a session's own JVMs in which Spark would not start: see `config.LEAST_HEAP`.

    Spark counts what Runtime.maxMemory reports, and with some collectors that lacks a survivor space (measured, Java 17).

    Raises:
        ConfigError: with the setting and what it must be.
    """
    for one, key in (("executor", "cluster.executor_memory (spark.executor.memory)"), ("driver", "spark.driver.memory")):
        size, options = memory_setting(conf, f"spark.{one}.memory"), conf.get(f"spark.{one}.extraJavaOptions", "")
        counted = next((share for option, share in _COUNTED if option in options), Fraction(1))
        least = ceil(LEAST_HEAP / counted / _MIB)
        if size is not None and size < least * _MIB:
            raise refused(
                key,
                conf[f"spark.{one}.memory"],
                f"must be {least}m or more {_SOURCE}: Spark wants {LEAST_HEAP // _MIB} MiB, and this JVM's garbage "
                "collector reports less than the setting",
            )


def _check_plugin(conf: Mapping[str, str]) -> None:
    remedy = f"start the session with spark.plugins={PLUGIN} and spark.jars={JAR}, or by mpca.session()"
    plugins = [name.strip() for name in conf.get("spark.plugins", "").split(",")]
    if PLUGIN not in plugins:
        raise EnvironmentRefused(f"spark.plugins = {conf.get('spark.plugins', '')!r} {_SOURCE}: lacks {PLUGIN}; {remedy}")
    if not any("mpca-spark" in conf.get(key, "") for key in _CLASS_PATHS):
        raise EnvironmentRefused(f"spark.jars = {conf.get('spark.jars', '')!r} {_SOURCE}: lacks {JAR.name}; {remedy}")


def _check_cores(conf: Mapping[str, str], agents: int, agents_per_executor: int) -> None:
    master = conf.get("spark.master", "")
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    if master.startswith("local") and cluster is None:
        raise refused(
            "spark.master",
            master,
            f"must be a cluster, since agents need executors apart from the driver {_SOURCE}: "
            f"use local-cluster[{agents},2,1024], or mpca.session()",
        )
    per_task = int(conf.get("spark.task.cpus", "1"))
    needed = 2 * agents_per_executor * per_task
    if cluster is not None:
        executors, cores, key = int(cluster[1]), int(cluster[2]), "spark.master"
    else:
        # Without this setting, standalone gives an executor all of its worker's cores; YARN and Kubernetes give one.
        default = "" if master.startswith("spark://") else "1"
        text, key = conf.get("spark.executor.cores", default), "spark.executor.cores"
        if not text:
            return
        executors, cores = int(conf.get("spark.executor.instances", "0")), int(text)
    if cores < needed:
        raise refused(
            key,
            conf.get(key, cores),
            f"gives an executor {cores} cores and must give {needed} {_SOURCE}: {_TWO_CORES}; "
            f"agents_per_executor={agents_per_executor}, spark.task.cpus={per_task}",
        )
    slots = executors * agents_per_executor
    if 0 < slots < agents:
        key = key if cluster is not None else "spark.executor.instances"
        raise refused(
            key,
            conf[key],
            f"has room for {slots} agents and the run wants {agents} {_SOURCE}: ask for "
            f"{-(-agents // agents_per_executor)} executors or fewer agents",
        )


def _check_results(conf: Mapping[str, str], agents: int, reducer: str, shard_bytes: int) -> None:
    limit = parse_size(_with_unit(conf.get("spark.driver.maxResultSize", _RESULTS_DEFAULT)))
    sums = shard_bytes * (int(agents**0.5) + 1) if reducer == "tree" else 0
    if 0 < limit < _RESULTS_BYTES + sums:
        raise refused(
            "spark.driver.maxResultSize",
            conf["spark.driver.maxResultSize"],
            f"must be {format_size(_RESULTS_BYTES + sums)} or more, or 0 for no limit {_SOURCE}: the tasks of one cycle "
            "return that much to the driver",
        )


def _with_unit(size: str) -> str:
    """Spark counts a bare number as bytes."""
    return f"{size}b" if size.strip().isdigit() else size
