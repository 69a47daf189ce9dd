"""What a Spark session must be like before an agent is started: refused settings, each with value, source and remedy.

This file judges settings alone, but for the driver's name, which this machine must know. What only the executors know (their
cores, their Python) is judged when they say it.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from mpca.checks import refused
from mpca.config.sections import LEAST_HEAP
from mpca.errors import EnvironmentRefused, MpcaError
from mpca.spark.jvm.jar import PLUGIN, own_line
from mpca.spark.settings import unlike
from mpca.spark.yarn.sizing import memory_setting
from mpca.spark.yarn.submit import AUTHENTICATE
from mpca.units import format_size, parse_size

__all__ = ["check_driver_host", "check_given", "check_heaps", "check_session"]

_SOURCE = "(Spark session)"
_CLASS_PATHS = ("spark.jars", "spark.driver.extraClassPath", "spark.yarn.dist.jars", "spark.submit.pyFiles")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*]")
#: More than the answers of a cycle's tasks take.
_RESULTS_BYTES = 16 << 20
_RESULTS_DEFAULT = "1g"
_MIB = 1 << 20
_DATABRICKS = "spark.databricks."
_SHUFFLE_SERVICE = "spark.shuffle.service.enabled"
#: Executors that YARN and Kubernetes give when nobody says how many.
_EXECUTORS_DEFAULT = "2"
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
    """Refuse a session on which a run would hang, starve or be taken apart, by the first thing that is wrong.

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
    for misfit in _misfits(conf, agents, agents_per_executor, reducer, shard_bytes):
        raise misfit.error


def check_given(
    conf: Mapping[str, str], *, agents: int, agents_per_executor: int, reducer: str, submitted: bool = False
) -> None:
    """As `check_session`, for a session that a person made, perhaps in a notebook: all that is wrong at once, and what to copy.

    Args:
        conf: as of `check_session`, and so are those that follow.
        submitted: whether the JVM was there before this process, so that no code of it can add to its class path.

    Raises:
        EnvironmentRefused: something is wrong.
    """
    misfits = list(_misfits(conf, agents, agents_per_executor, reducer, 0))
    if not misfits:
        return
    better = {one.key: one.value for one in misfits} | {one.key: one.value for one, _ in unlike(conf)}
    if AUTHENTICATE in better and conf.get(_SHUFFLE_SERVICE, "false").strip().lower() == "true":
        better[_SHUFFLE_SERVICE] = "false"  # it may not authenticate, and executors that cannot register with it end
    head = [
        "the Spark session does not fit, and its settings cannot change while it lives:",
        *(f"  {one.error}" for one in misfits),
    ]
    if submitted or any(key.startswith(_DATABRICKS) for key in conf):
        remedy = [
            "its JVM was there before this program: give these settings as well to what starts it, spark-submit (by --conf)",
            "or the cluster, here as lines of spark-defaults.conf:",
            "",
            *(f"{key} {value}" for key, value in better.items()),
        ]
    else:
        remedy = [
            "restart this process (of a notebook, its kernel), and make the session with these settings as well:",
            "",
            "spark = (",
            "    SparkSession.builder",
            *(f'    .config("{key}", {json.dumps(value)})' for key, value in better.items()),
            "    .getOrCreate()",
            ")",
        ]
    raise EnvironmentRefused("\n".join([*head, *remedy]))


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


def check_driver_host(conf: Mapping[str, str]) -> None:
    """Refuse a name of the driver that this machine does not know: executors, which connect to it, would be started in vain.

    Raises:
        ConfigError: with the name.
    """
    for key in ("spark.driver.host", "spark.driver.bindAddress"):
        host = conf.get(key, "").strip()
        if host.count(":") > 1 and not host.startswith("["):
            raise refused(key, host, f"must have brackets {_SOURCE}, as Spark wants an IPv6 address: [{host}]")
        try:
            if host:
                socket.getaddrinfo(host.strip("[]"), None)
        except OSError as error:
            raise refused(
                key,
                host,
                f"must be an address of this machine, or a name that executors can resolve {_SOURCE}, and this machine itself "
                f"cannot: {error.strerror}; leave it out, or see /etc/hosts and the DNS",
            ) from None


@dataclass(frozen=True)
class _Misfit:
    """A setting with which no run can live."""

    key: str
    value: str  # that would fit
    error: MpcaError


def _misfits(
    conf: Mapping[str, str], agents: int, agents_per_executor: int, reducer: str, shard_bytes: int
) -> Iterator[_Misfit]:
    yield from _plugin(conf)
    for key, why in (
        ("spark.speculation", "a second copy of a task would ask the same agent twice"),
        ("spark.dynamicAllocation.enabled", "executors that hold agents would be taken away"),
    ):
        if conf.get(key, "false").strip().lower() == "true":
            yield _Misfit(key, "false", refused(key, conf[key], f"must be false {_SOURCE}: {why}"))
    yield from _cores(conf, agents, agents_per_executor)
    yield from _results(conf, agents, reducer, shard_bytes)


def _plugin(conf: Mapping[str, str]) -> Iterator[_Misfit]:
    jar = own_line().jar
    remedy = f"start the session with spark.plugins={PLUGIN} and spark.jars={jar}, or by mpca.session()"
    plugins, jars = (conf.get(key, "").strip() for key in ("spark.plugins", "spark.jars"))
    if PLUGIN not in [name.strip() for name in plugins.split(",")]:
        error = EnvironmentRefused(f"spark.plugins = {plugins!r} {_SOURCE}: lacks {PLUGIN}; {remedy}")
        yield _Misfit("spark.plugins", ",".join(filter(None, (plugins, PLUGIN))), error)
    if not any("mpca-spark" in conf.get(key, "") for key in _CLASS_PATHS):
        error = EnvironmentRefused(f"spark.jars = {jars!r} {_SOURCE}: lacks {jar.name}; {remedy}")
        yield _Misfit("spark.jars", ",".join(filter(None, (jars, str(jar)))), error)


def _cores(conf: Mapping[str, str], agents: int, agents_per_executor: int) -> Iterator[_Misfit]:
    master = conf.get("spark.master", "")
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    per_task = int(conf.get("spark.task.cpus", "1"))
    needed, wanted = 2 * agents_per_executor * per_task, -(-agents // agents_per_executor)
    asked = int(conf.get("spark.executor.cores", needed))
    # On local[*] what is said of executors has no effect. A worker of a local-cluster must have room for such an executor.
    room = max(asked, needed), max(1024, -(-(memory_setting(conf, "spark.executor.memory") or 0) // _MIB))
    if master.startswith("local") and cluster is None:
        fitting = f"local-cluster[{wanted},{room[0]},{room[1]}]"
        error = refused(
            "spark.master",
            master,
            f"must be a cluster, since agents need executors apart from the driver {_SOURCE}: "
            f"use {fitting}, or mpca.session(), or leave `spark` out: then executors are started on this machine",
        )
        yield _Misfit("spark.master", fitting, error)
        if asked < needed:
            yield _few_cores(conf, ("spark.executor.cores", str(needed)), asked, needed, agents_per_executor)
        return
    if cluster is not None:
        executors, cores = int(cluster[1]), int(cluster[2])
        fitting = f"local-cluster[{max(executors, wanted)},{max(cores, room[0])},{cluster[3]}]"
        of_cores, of_executors = ("spark.master", fitting), ("spark.master", fitting)
        if asked < needed:
            yield _few_cores(conf, ("spark.executor.cores", str(needed)), asked, needed, agents_per_executor)
    else:
        # Without this setting, standalone gives an executor all of its worker's cores; YARN and Kubernetes give one.
        default = "" if master.startswith("spark://") else "1"
        text = conf.get("spark.executor.cores", default)
        if not text:
            return
        managed = master.startswith(("yarn", "k8s"))
        executors = int(conf.get("spark.executor.instances", _EXECUTORS_DEFAULT if managed else "0"))
        cores = int(text)
        of_cores, of_executors = ("spark.executor.cores", str(needed)), ("spark.executor.instances", str(wanted))
    if cores < needed:
        yield _few_cores(conf, of_cores, cores, needed, agents_per_executor)
    slots = executors * agents_per_executor
    if 0 < slots < agents:
        error = refused(
            of_executors[0],
            conf.get(of_executors[0], executors),
            f"has room for {slots} agents and the run wants {agents} {_SOURCE}: ask for {wanted} executors or fewer agents",
        )
        yield _Misfit(*of_executors, error)


def _few_cores(conf: Mapping[str, str], better: tuple[str, str], cores: int, needed: int, agents_per_executor: int) -> _Misfit:
    error = refused(
        better[0],
        conf.get(better[0], cores),
        f"gives an executor {cores} cores and must give {needed} {_SOURCE}: {_TWO_CORES}; "
        f"agents_per_executor={agents_per_executor}, spark.task.cpus={conf.get('spark.task.cpus', '1')}",
    )
    return _Misfit(*better, error)


def _results(conf: Mapping[str, str], agents: int, reducer: str, shard_bytes: int) -> Iterator[_Misfit]:
    limit = parse_size(_with_unit(conf.get("spark.driver.maxResultSize", _RESULTS_DEFAULT)))
    sums = shard_bytes * (int(agents**0.5) + 1) if reducer == "tree" else 0
    if 0 < limit < _RESULTS_BYTES + sums:
        error = refused(
            "spark.driver.maxResultSize",
            conf["spark.driver.maxResultSize"],
            f"must be {format_size(_RESULTS_BYTES + sums)} or more, or 0 for no limit {_SOURCE}: the tasks of one cycle "
            "return that much to the driver",
        )
        yield _Misfit("spark.driver.maxResultSize", f"{-(-(_RESULTS_BYTES + sums) // _MIB)}m", error)


def _with_unit(size: str) -> str:
    """Spark counts a bare number as bytes."""
    return f"{size}b" if size.strip().isdigit() else size
