"""One door for every run: put the pieces together, run, and leave nothing behind.

`mpca train`, `mpca.Distributor` and later `mpca submit` come through here. This file knows what a run is made of and in
which order it comes and goes; what the pieces do is theirs.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from mpca import __version__
from mpca.api.evaluation import JointEvaluator
from mpca.api.finish import close_folder, evaluate_last, exit_code, save_model, summarise, take_reached
from mpca.api.resume import Resumed, find_backup
from mpca.api.signals import Interrupted, Signals
from mpca.clock import SystemClock
from mpca.config import Resolved, load
from mpca.driver.backups import BackupWriter
from mpca.driver.budget import check_heaps
from mpca.driver.cluster import AgentSpec, Cluster
from mpca.driver.cycle import CycleMachine
from mpca.driver.instructions import End
from mpca.driver.ledger import RunShape
from mpca.driver.objectives import DumpModel, Evaluate, Goals
from mpca.driver.roster import Roster
from mpca.driver.runner import Runner
from mpca.driver.status import RunStatus
from mpca.errors import ConfigError, EnvironmentRefused, JvmError, MpcaError
from mpca.methods import from_dict, to_dict
from mpca.records import LineWriter, RunFolder, RunRecord, Summary
from mpca.storage import Backups, LocalStore, RunLock
from mpca.units import parse_size
from mpca.wire.messages import Hello

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Ended", "Job", "Shows", "launch", "resolve"]

log = logging.getLogger("mpca.run")


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    config: Resolved
    payload: bytes  # cloudpickle of (function, args, kwargs), from api.shipping
    evaluate: Evaluate | None = None
    run_dir: Path | None = None  # the folder itself; None: run.dir, or runs/<name>-<time>
    resume: str | None = None  # "auto", or the folder of a backup
    session: SparkSession | None = None  # None: executors on this machine
    through: Callable[[Cluster], Cluster] = lambda cluster: cluster  # what stands between driver and cluster: faults


@dataclass(frozen=True)
class Ended:
    """What came of it."""

    run_dir: Path
    summary: dict[str, Any]
    reason: str
    exit_code: int
    model_state: dict[str, Any]  # numpy arrays by the model's own names
    history: list[dict[str, Any]]  # evaluations
    returns: dict[int, Any] = field(default_factory=dict)  # what train functions returned, by agent


@dataclass(frozen=True)
class Shows:
    """Who is told while a run goes on."""

    on_status: Callable[[RunStatus], None] = lambda status: None
    on_output: Callable[[int, str], None] = lambda agent, line: None
    on_stage: Callable[[str], None] = lambda text: None


def resolve(path: Path | None, sets: Iterable[str] = (), spark_conf: dict[str, str] | None = None) -> Resolved:
    """A configuration with the methods of this version; see `config.load`."""
    return load(path, sets, spark_conf, method=from_dict)


def launch(
    job: Job,
    on_status: Callable[[RunStatus], None] = lambda status: None,
    on_output: Callable[[int, str], None] = lambda agent, line: None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> Ended:
    """Run a job to its end.

    Raises:
        ConfigError, EnvironmentRefused: refused before an executor was asked for.
        BackupError: the backup to resume from is not usable.
        Interrupted: a signal came before there was a run that could be ended in order.
    """
    launching: _Launch | None = None
    try:
        with ExitStack() as stack:
            launching = _Launch(job, Shows(on_status, on_output, on_stage), stack)
            return launching.run()
    except BaseException as error:
        if launching is not None:
            launching.broken_off(error)
        raise


class _Launch:
    """One run, from its folder to its summary. What it opens is closed by `stack`, last first."""

    def __init__(self, job: Job, shows: Shows, stack: ExitStack) -> None:
        self._job, self._shows, self._stack = job, shows, stack
        self._clock = SystemClock()
        self._began = self._clock.now()
        config = job.config
        self._agents = config.method.agents(config.cluster.agents)
        chosen = job.run_dir or (Path(config.run.dir) if config.run.dir else None)
        self._folder = RunFolder(chosen) if chosen else RunFolder.named(config.run.name, self._clock.wall())
        self._backup_at = Path(config.backup.path) if config.backup.path else self._folder.backups
        self._resumed: Resumed | None = find_backup(job.resume, self._backup_at) if job.resume else None
        self._lock = RunLock(LocalStore(self._folder.path))
        self._seconds: dict[str, float] = {}  # by stage of starting
        self._signals = Signals()
        self._record: RunRecord | None = None  # there once the folder is ours
        self._finished = False

    def run(self) -> Ended:
        from mpca.spark.cluster import SparkCluster

        job, config = self._job, self._job.config
        self._stack.enter_context(self._signals)
        records, epoch = self._open_folder()
        self._shows.on_stage(f"run folder {self._folder.path}")
        session = self._session()
        self._stage("session")
        self._signals.again()
        run_name = f"{self._folder.path.name}-{epoch}"
        cluster = job.through(
            SparkCluster(
                session,
                run_name,
                epoch=epoch,
                reducer=config.cluster.reducer,
                broadcast=config.cluster.broadcast,
                chunk_bytes=config.cluster.chunk,
            )
        )
        self._stack.callback(_close, cluster)
        evaluator = None
        if job.evaluate is not None:
            evaluator = JointEvaluator(job.evaluate.function)
            self._stack.callback(evaluator.close)
        backups = BackupWriter(
            Backups(LocalStore(self._backup_at.parent), self._backup_at.name, config.backup.keep, self._lock.check),
            config.run.name,
            epoch,
            config.run.seed,
            _versions(),
        )
        self._stack.callback(backups.close, 0.0)
        runner = Runner(
            self._machine(run_name, epoch),
            cluster,
            config.method,
            self._agent_spec(run_name),
            self._goals(),
            records,
            self._clock,
            evaluator=evaluator,
            backups=backups,
            restore=self._resumed.restore if self._resumed else None,
            on_status=self._shows.on_status,
            on_output=self._shows.on_output,
            check_model=partial(self._check_model, dict(session.sparkContext.getConf().getAll())),
            software=_versions(),
            earlier_s=self._resumed.trained_s if self._resumed else 0.0,
            earlier_t=self._resumed.t if self._resumed else 0.0,
        )
        self._signals.looked_at = True
        end = self._train(runner)
        return self._finish(runner, end, evaluator, backups)

    # ---- in the order of a run -----------------------------------------------------------------------------------------

    def _open_folder(self) -> tuple[LineWriter, int]:
        config, resumed = self._job.config, self._resumed
        self._folder.create(resume=resumed is not None)
        lock = self._lock
        epoch = lock.claim(f"pid {os.getpid()} on {platform.node()}", _lives)
        self._stack.callback(lock.release)
        config.write(self._folder.config)
        records = LineWriter(self._folder.records)
        self._stack.callback(records.close)
        record = RunRecord(
            t=resumed.t if resumed else 0.0,
            name=config.run.name,
            method=config.method.name,
            num_agents=self._agents,
            seed=config.run.seed,
            shards=config.method.shards,
            phases=config.method.phases,
            target_error=self._goals().target_error,
            attempt=epoch,
            resumed_from=resumed.path if resumed else None,
            versions=_versions(),
        )
        records.write(record)
        self._record = record
        return records, epoch

    def _session(self) -> SparkSession:
        """The caller's session, if it can hold a run, or executors on this machine."""
        from mpca.spark.session import check_session, session

        cluster = self._job.config.cluster
        given = self._job.session
        if given is not None:
            conf = dict(given.sparkContext.getConf().getAll())
            check_session(conf, agents=self._agents, agents_per_executor=cluster.agents_per_executor, reducer=cluster.reducer)
            return given
        per_executor = min(cluster.agents_per_executor, self._agents)
        executors = -(-self._agents // per_executor)
        self._shows.on_stage(f"starting {executors} executors on this machine")
        # Of a driver that was killed; the lock says that nobody else is at work here.
        shutil.rmtree(self._folder.path / "spark", ignore_errors=True)
        own = session(
            self._folder.path,
            executors=executors,
            agents_per_executor=per_executor,
            executor_memory=cluster.executor_memory,
            conf=self._job.config.spark,
            name=f"mpca {self._job.config.run.name}",
        )
        return self._stack.enter_context(own)

    def _machine(self, run_name: str, epoch: int) -> CycleMachine:
        config, method = self._job.config, self._job.config.method
        shape = RunShape(
            run=run_name,
            epoch=epoch,
            shards=method.shards,
            phases=method.phases,
            exchanges=method.exchanges,
            min_agents=min(config.cluster.min_agents, self._agents),
            deadline_s=config.cluster.cycle_deadline,
            start_timeout_s=config.cluster.start_timeout,
            install_first=method.install_first,
            first_cycle=self._resumed.cycle if self._resumed else 0,
            resumed=self._resumed is not None,
            numbers=lambda version: (
                method.alpha_at(version),
                method.beta_at(max(0, version - 1)),
                method.gamma_at(max(0, version - 1)),
            ),
        )
        return CycleMachine(shape, Roster(self._agents, config.cluster.agents_per_executor), self._clock.now())

    def _check_model(self, conf: dict[str, str], hello: Hello) -> None:
        """The model is known with the first hello: does it fit the heaps that were asked for?"""
        executor, driver = (parse_size(conf.get(f"spark.{one}.memory", "1g")) for one in ("executor", "driver"))
        per_executor = min(self._job.config.cluster.agents_per_executor, self._agents)
        self._shows.on_stage(check_heaps(hello.bounds, per_executor, executor, driver))

    def _agent_spec(self, run_name: str) -> AgentSpec:
        config, method = self._job.config, self._job.config.method
        start = {
            "agents": self._agents,
            "run": run_name,
            "seed": config.run.seed,
            "shards": method.shards,
            "layer_aligned": method.layer_aligned,
            "method": to_dict(method),
            "task": "train",
            "payload": self._job.payload,
            "device": config.cluster.device,
            "threads": config.cluster.threads,
            "conf": config.to_dict(),
        }
        python = config.cluster.python or sys.executable
        threads = str(config.cluster.threads)
        environment = {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # functions of importable modules travel by name: agents look for them where the driver did
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(os.path.abspath(entry) for entry in sys.path)),
        }
        return AgentSpec(python=python, env=environment, start=start)

    def _goals(self) -> Goals:
        objectives, backup = self._job.config.objectives, self._job.config.backup
        return Goals(
            target_error=objectives.target_error if self._job.evaluate is not None else 0.0,
            max_time=objectives.max_time or None,
            max_cycles=objectives.max_cycles or None,
            evaluate=self._job.evaluate,
            dump=DumpModel(str(self._backup_at), backup.interval, backup.keep) if backup.interval else None,
        )

    def _train(self, runner: Runner) -> End:
        """The loop, with signals and failures beside the engine turned into an orderly end."""
        machine = runner.machine
        try:
            while machine.ended is None:
                if self._signals.caught is not None:
                    runner.stop("interrupted", signal.Signals(self._signals.caught).name)
                runner.once()
                if "agents" not in self._seconds and machine.stage != "STARTING":
                    self._stage("agents")
        except MpcaError as error:  # of the user's evaluation, a backup of another model, the cluster
            runner.stop("failed", str(error))
            while machine.ended is None:
                runner.step(runner.cluster.poll(0.02))
        return machine.ended

    def _finish(self, runner: Runner, end: End, evaluator: JointEvaluator | None, backups: BackupWriter) -> Ended:
        self._shows.on_stage("saving the joint model")
        error = take_reached(runner) if runner.reached else None
        try:
            error = error if error is not None else evaluate_last(runner, evaluator)
        except MpcaError as failure:
            log.warning("the last joint model was not evaluated: %s", failure)
        state = save_model(runner, self._folder, backups)
        if runner.tally.first_step is not None:  # of the agent that was first, whichever told of it first
            self._seconds["first_step"] = runner.tally.first_step - self._began
        resumed_from = self._resumed.path if self._resumed else None
        summary = summarise(runner, end, self._job.config.run.seed, error, self._seconds, resumed_from, _versions())
        written = close_folder(runner.records, self._folder, runner.t(), summary)
        self._finished = True
        return Ended(
            run_dir=self._folder.path,
            summary=written,
            reason=end.reason,
            exit_code=exit_code(end, self._signals.caught),
            model_state=state,
            history=runner.tally.history,
            returns={agent: cloudpickle.loads(data) for agent, data in sorted(runner.returns.items())},
        )

    # ---- small things --------------------------------------------------------------------------------------------------

    def _stage(self, name: str) -> None:
        self._seconds[name] = self._clock.now() - self._began

    def broken_off(self, error: BaseException) -> None:
        """The run ended before its loop did, and everything is closed: say so in its folder, unless it was refused."""
        record = self._record
        if record is None or self._finished:
            return
        if isinstance(error, (ConfigError, EnvironmentRefused)) and self._resumed is None:
            shutil.rmtree(self._folder.path)  # there was no run, and its folder may be asked for again
            return
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = str(error) if isinstance(error, (MpcaError, Interrupted)) else f"{type(error).__name__}: {error}"
        summary = Summary(
            status=status,
            reason=reason,
            method=record.method,
            num_agents=record.num_agents,
            seed=record.seed,
            seconds=0.0,
            seconds_to_first_step=None,
            submit_seconds=self._seconds,
            target_error=record.target_error,
            attempts=record.attempt,
            resumed_from=record.resumed_from,
            versions=record.versions,
        )
        records = LineWriter(self._folder.records)
        try:
            close_folder(records, self._folder, record.t + self._clock.now() - self._began, summary)
        finally:
            records.close()


def _close(cluster: Cluster) -> None:
    """A driver JVM that is gone has nothing left to free: its executors and their agents end with it."""
    try:
        cluster.close()
    except JvmError as error:
        log.warning("%s", error)


def _versions() -> dict[str, str]:
    """By the installed packages' own word: importing torch would cost the driver two seconds for nothing."""
    packages = {name: metadata.version(name) for name in ("numpy", "pyspark", "torch")}
    return {"mpca": __version__, "python": platform.python_version(), **packages}


def _lives(owner: str) -> bool:
    """Whether the driver that a lock names, "pid N on HOST", still runs; on another host it is believed to."""
    words = owner.split()
    if len(words) != 4 or words[3] != platform.node():
        return bool(owner)
    return os.path.exists(f"/proc/{words[1]}")
