"""The parts of a run, made from its configuration: what agents are started with, its goals, its first record, its shape.

Values in, values out: nothing is started here but the session. `launch.py` puts the parts together.
"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpca import __version__
from mpca.checks import refused
from mpca.driver.cluster import AgentSpec
from mpca.driver.objectives import DumpModel, Goals, metric_goals
from mpca.driver.run_shape import RunShape
from mpca.errors import ConfigError
from mpca.private import who_else_writes
from mpca.records import RunRecord
from mpca.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.api.job import Job, Listeners
    from mpca.api.resume import Resumed
    from mpca.spark.yarn.submitted import ApplicationInfo

__all__ = [
    "agent_spec",
    "first_record",
    "goals_of",
    "open_session",
    "refuse_open",
    "run_shape",
    "saves_to",
    "unjudged",
    "versions",
]


def open_session(
    job: Job, listeners: Listeners, application: ApplicationInfo | None, folder: Path, stack: ExitStack
) -> SparkSession:
    """The caller's session, if it can hold a run; else a session of our own, with executors on this machine.

    Args:
        application: of the caller's session.
        folder: of this machine, for the files of a session of our own.
        stack: ends a session of our own.

    Raises:
        ConfigError, EnvironmentRefused: the session cannot hold a run.
    """
    from mpca.spark.jvm.login import by_ticket_alone, refuse_webhdfs
    from mpca.spark.run.checks import check_given
    from mpca.spark.run.limits import check_connections
    from mpca.spark.run.session import session
    from mpca.spark.settings import advice
    from mpca.spark.yarn.submit import no_way_back
    from mpca.spark.yarn.submitted import settings_of, was_submitted

    cluster = job.config.cluster
    if job.session is not None:
        conf = settings_of(job.session)
        check_given(
            conf,
            agents=job.agents,
            agents_per_executor=cluster.agents_per_executor,
            reducer=cluster.reducer,
            submitted=was_submitted(),
        )
        check_connections(job.executors)
        places = {**job.config.places(), "run_dir": str(job.run_dir or ""), "resume": str(job.resume or "")}
        refuse_webhdfs(by_ticket_alone(job.session.sparkContext._jvm), places)
        for line in advice(conf):
            listeners.on_stage(f"warning: {line}")
        if application is not None and application.cluster_mode:
            for line in no_way_back(job.config, conf):
                listeners.on_stage(line)
        return job.session
    listeners.on_stage(f"starting {job.executors} executors on this machine")
    own = session(
        folder,
        executors=job.executors,
        agents_per_executor=job.agents_per_executor,
        executor_memory=cluster.executor_memory,
        conf=job.config.spark,
        name=f"mpca {job.config.run.name}",
    )
    return stack.enter_context(own)


def saves_to(job: Job, backup_at: Location, application: ApplicationInfo | None) -> str:
    """The URL by which executors write agents' own states; empty: backups have none.

    Raises:
        ConfigError: backups are to have them, and cannot.
    """
    if not job.config.backup.optimizers:
        return ""
    if job.config.method.asks:
        raise ConfigError(
            f"backup.optimizers = true: agents of method {job.config.method.name} ask by themselves, and there is no moment at "
            "which nothing is on its way; leave it out, or take a method with cycles"
        )
    if backup_at.is_local and application is not None and application.yarn:
        raise ConfigError(
            f"backup.optimizers = true: executors cannot write to this machine's folder {backup_at.text}; set backup.path, or "
            "run.dir, to a folder on HDFS"
        )
    return backup_at.url


def refuse_open(backup_at: Location) -> None:
    """Refuse a local folder of backups into which others may write: the next attempt would go on from what they put there.

    Raises:
        ConfigError: with who they are.
    """
    others = who_else_writes(Path(backup_at.path)) if backup_at.is_local else ""
    if others:
        raise refused(
            "backup.path",
            backup_at.text,
            f"{others} can write there, and a run goes on from what it finds there; take that right away (chmod, chown), "
            "or name a folder in it, which is then made for you alone",
        )


def run_shape(
    job: Job, goals: Goals, run_name: str, term: int, resumed: Resumed | None, session: SparkSession, saves_to: str
) -> RunShape:
    """The shape that the driver's machine is made for."""
    from mpca.spark.hdfs.locality import shard_hosts

    config = job.config
    return RunShape.of(
        config.method,
        run=run_name,
        term=term,
        min_agents=min(config.cluster.min_agents, job.agents),
        deadline_s=config.cluster.cycle_deadline,
        start_timeout_s=config.cluster.start_timeout,
        finish_s=config.cluster.finish_timeout,
        norm_limit=config.cluster.norm_limit,
        saves_to=saves_to,
        goals=goals,
        first_cycle=resumed.cycle if resumed else 0,
        resumed=resumed is not None,
        data=resumed.state.data if resumed else {},
        shard_hosts=shard_hosts(session, str(config.data.options.get("path", ""))),
    )


def agent_spec(job: Job, run_name: str, on_yarn: bool) -> AgentSpec:
    """How every agent's process is started, and its first message."""
    config, method = job.config, job.config.method
    start: dict[str, Any] = {
        "agents": job.agents,
        "run": run_name,
        "seed": config.run.seed,
        "shards": method.shards,
        "layer_aligned": method.layer_aligned,
        "method": method.for_agents(),
        "task": "train",
        "payload": job.payload,
        "device": config.cluster.device,
        "threads": config.cluster.threads,
        "conf": {"data": config.to_dict()["data"]},
    }
    threads = str(config.cluster.threads)
    environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    if not on_yarn:
        # functions of importable modules travel by name: agents must look for them in the driver's folders
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))
    python = config.cluster.python or sys.executable
    return AgentSpec(python=python, env=environment, start=start, preload=config.cluster.preload)


def goals_of(job: Job, backup_at: str) -> Goals:
    """The objectives of a run."""
    objectives, backup = job.config.objectives, job.config.backup
    return Goals(
        **(metric_goals(objectives) if job.evaluate is not None else {}),
        max_time=objectives.max_time or None,
        max_cycles=objectives.max_cycles or None,
        evaluate=job.evaluate,
        dump=DumpModel(backup_at, backup.interval, backup.keep) if backup.interval else None,
    )


def unjudged(job: Job) -> list[str]:
    """A line for the user about goals that nobody looks at. They are no error: a program may share `mpca train`'s file."""
    wanted = job.config.objectives
    keys = [
        f"objectives.{key} = {getattr(wanted, key)!r}"
        for key in ("target_error", "targets", "early_stopping", "keep_best")
        if getattr(wanted, key)
    ]
    if job.evaluate is not None or not keys:
        return []
    return [f"warning: nothing is evaluated, so this does not count: {', '.join(keys)}; give a Distributor Evaluate(function)"]


def first_record(job: Job, term: int, resumed: Resumed | None, goals: Goals) -> RunRecord:
    """The first record of this attempt."""
    method = job.config.method
    return RunRecord(
        t=resumed.t if resumed else 0.0,
        name=job.config.run.name,
        method=method.name,
        num_agents=job.agents,
        seed=job.config.run.seed,
        shards=method.shards,
        phases=method.phases,
        target_error=goals.target_error,
        targets=[str(one) for one in goals.targets if one.metric != "error"],
        attempt=term,
        resumed_from=resumed.path if resumed else None,
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """Versions by name, as the installed packages say them: importing torch would cost the driver two seconds for nothing."""
    packages = {}
    for name in ("numpy", "pyspark", "torch"):
        with suppress(metadata.PackageNotFoundError):  # an archive for agents may lack a package that only the driver needs
            packages[name] = metadata.version(name)
    return {"mpca": __version__, "python": platform.python_version(), **packages}
