"""One door for every run: put the pieces together, run, and leave nothing behind.

`mpca train`, `mpca.Distributor` and later `mpca submit` come through here. This file knows what a run is made of and in
which order it comes and goes; what the pieces do is theirs.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from mpca import __version__
from mpca.api.evaluation import JointEvaluator
from mpca.api.finish import close_folder, evaluate_last, exit_code, is_final, keep, last_model, summarise, take_reached
from mpca.api.place import choose_place
from mpca.api.resume import Resumed, find_backup
from mpca.api.signals import Interrupted, Signals
from mpca.api.stores import open_store
from mpca.clock import SystemClock
from mpca.config import Resolved, load
from mpca.driver.agent_table import AgentTable
from mpca.driver.backups import BackupWriter
from mpca.driver.budget import check_heaps
from mpca.driver.cluster import AgentSpec, Cluster
from mpca.driver.cycle import CycleMachine
from mpca.driver.instructions import End
from mpca.driver.objectives import DumpModel, Evaluate, Goals
from mpca.driver.run_shape import RunShape
from mpca.driver.runner import Runner
from mpca.driver.states import RunState
from mpca.driver.status import RunStatus
from mpca.errors import JvmError, MpcaError, RunFailed
from mpca.methods import from_dict, to_dict
from mpca.records import Backlog, BadFile, RunRecord, Summary
from mpca.spark.sizing import executor_budget
from mpca.spark.submitted import Origin, check_alive
from mpca.storage import Backups, Location
from mpca.units import parse_size
from mpca.wire.messages import Hello

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Ended", "Job", "Shows", "launch", "resolve"]

log = logging.getLogger("mpca.run")
_LOOK_S = 1.0  # between two looks at whether the application is still there


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    config: Resolved
    payload: bytes  # cloudpickle of (function, args, kwargs), from api.shipping
    evaluate: Evaluate | None = None
    run_dir: Path | str | None = None  # the folder itself, or its URL; None: run.dir, or runs/<name>-<time>
    resume: str | None = None  # "auto", or the folder of a backup, or its URL
    session: SparkSession | None = None  # None: executors on this machine
    through: Callable[[Cluster], Cluster] = lambda cluster: cluster  # what stands between driver and cluster: faults


@dataclass(frozen=True)
class Ended:
    """What came of it."""

    run_dir: Path | str  # a URL when it is on HDFS
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

    What is raised before the run began has left its folder as it was, or made none.
    """
    from mpca.spark.errors import thrown_errors

    with ExitStack() as stack:
        launching = _Launch(job, Shows(on_status, on_output, on_stage), stack)
        try:
            with thrown_errors("the driver's JVM refused"):
                return launching.run()
        except BaseException as error:
            launching.broken_off(error)  # its folder can be written as long as it is ours
            raise


class _Launch:
    """One run, from its folder to its summary. What it opens is closed by `stack`, last first."""

    def __init__(self, job: Job, shows: Shows, stack: ExitStack) -> None:
        self._job, self._shows, self._stack = job, shows, stack
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._origin = Origin.of(job.session) if job.session is not None else None
        config = job.config
        self._agents = config.method.agents(config.cluster.agents)
        self._executors = -(-self._agents // min(config.cluster.agents_per_executor, self._agents))
        given = job.run_dir or config.run.dir or (self._origin.run_folder(config.run.name) if self._origin else "")
        self._place = choose_place(given, config.run.name, self._clock.wall(), stack)
        self._folder = self._place.folder
        self._backup_at = Location.parse(config.backup.path) if config.backup.path else self._place.location / "backups"
        self._resumed: Resumed | None = None
        self._before = self._origin.since_submit(self._clock.wall()) if self._origin else 0.0
        self._seconds = self._origin.stages() if self._origin else {}  # by stage of starting
        self._signals = Signals()
        self._record: RunRecord | None = None  # there once the run has begun
        self._records: Backlog | None = None
        self._bad: BadFile | None = None  # as of the records
        self._finished = False

    def run(self) -> Ended:
        from mpca.spark.cluster import SparkCluster

        job, config = self._job, self._job.config
        self._stack.enter_context(self._signals)
        session = self._session() if self._needs_session() else None
        open_at = partial(open_store, stack=self._stack, session=session, private=True)
        attempt = self._origin.attempt if self._origin is not None else 1
        self._resumed = find_backup(job.resume, self._backup_at, open_at, again=attempt > 1)
        backups_at = open_at(self._backup_at.parent)
        above = Backups(backups_at, self._backup_at.name).highest_epoch()
        epoch = self._place.take(session, self._resumed is not None, self._origin, above)
        self._shows.on_stage(f"run folder {self._place.shown}")
        for line in self._resumed.told if self._resumed is not None else ():
            self._shows.on_stage(line)
        if session is None:
            session = self._session()
        self._stage("session")
        self._signals.again()
        run_name = f"{self._place.location.name}-{epoch}"
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
            Backups(backups_at, self._backup_at.name, config.backup.keep, self._place.check, {*self._place.epochs, epoch}),
            config.run.name,
            epoch,
            config.run.seed,
            _versions(),
        )
        self._stack.callback(backups.close, 0.0)
        machine = self._machine(run_name, epoch, session)
        records = self._begin(epoch)
        runner = Runner(
            machine,
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
            bad=self._bad,
        )
        self._signals.looked_at = True
        end = self._train(runner, session)
        return self._finish(runner, end, backups)

    # ---- in the order of a run -----------------------------------------------------------------------------------------

    def _needs_session(self) -> bool:
        """Before the folder is made: its storage, or that of the backups, is reached through the session."""
        resume = self._job.resume
        named = Location.parse(resume) if resume and resume != "auto" else self._backup_at
        return any(not one.is_local for one in (self._place.location, self._backup_at, named))

    def _begin(self, epoch: int) -> Backlog:
        """From here on there is a run. Whatever was refused before has left its folder as it was."""
        config, resumed = self._job.config, self._resumed
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
        self._records = self._place.begin(epoch, config, record)
        self._record, self._bad = record, BadFile(self._folder.bad)
        return self._records

    def _session(self) -> SparkSession:
        """The caller's session, if it can hold a run, or executors on this machine."""
        from mpca.spark.session import check_session, session
        from mpca.spark.settings import advice
        from mpca.spark.submit import no_way_back

        cluster = self._job.config.cluster
        given = self._job.session
        if given is not None:
            conf = dict(given.sparkContext.getConf().getAll())
            check_session(conf, agents=self._agents, agents_per_executor=cluster.agents_per_executor, reducer=cluster.reducer)
            for line in advice(conf):
                self._shows.on_stage(f"warning: {line}")
            for line in no_way_back(self._job.config, conf) if self._origin is not None and self._origin.cluster_mode else ():
                self._shows.on_stage(line)
            return given
        self._shows.on_stage(f"starting {self._executors} executors on this machine")
        own = session(
            self._folder.path,
            executors=self._executors,
            agents_per_executor=min(cluster.agents_per_executor, self._agents),
            executor_memory=cluster.executor_memory,
            conf=self._job.config.spark,
            name=f"mpca {self._job.config.run.name}",
        )
        return self._stack.enter_context(own)

    def _machine(self, run_name: str, epoch: int, session: SparkSession) -> CycleMachine:
        from mpca.spark.locality import shard_hosts

        config, method = self._job.config, self._job.config.method
        shape = RunShape.of(
            method,
            run=run_name,
            epoch=epoch,
            min_agents=min(config.cluster.min_agents, self._agents),
            deadline_s=config.cluster.cycle_deadline,
            start_timeout_s=config.cluster.start_timeout,
            finish_s=config.cluster.finish_timeout,
            norm_limit=config.cluster.norm_limit,
            max_cycles=self._goals().max_cycles,
            first_cycle=self._resumed.cycle if self._resumed else 0,
            resumed=self._resumed is not None,
            data=self._resumed.state.data if self._resumed else {},
            places=shard_hosts(session, str(config.data.options.get("path", ""))),
        )
        return CycleMachine(shape, AgentTable(self._agents, config.cluster.agents_per_executor), self._clock.now())

    def _check_model(self, conf: dict[str, str], hello: Hello) -> None:
        """The model is known with the first hello: does it fit the heaps that were asked for?"""
        executor, driver = (parse_size(conf.get(f"spark.{one}.memory", "1g")) for one in ("executor", "driver"))
        per_executor = min(self._job.config.cluster.agents_per_executor, self._agents)
        self._shows.on_stage(check_heaps(hello.bounds, per_executor, executor, driver))
        if self._origin is not None and self._origin.yarn:
            self._shows.on_stage(executor_budget(self._job.config, conf, 4 * hello.bounds[-1]))

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
        }
        if self._origin is None or not self._origin.yarn:
            # functions of importable modules travel by name: agents look for them where the driver did
            environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))
        return AgentSpec(python=python, env=environment, start=start)

    def _goals(self) -> Goals:
        objectives, backup = self._job.config.objectives, self._job.config.backup
        return Goals(
            target_error=objectives.target_error if self._job.evaluate is not None else 0.0,
            max_time=objectives.max_time or None,
            max_cycles=objectives.max_cycles or None,
            evaluate=self._job.evaluate,
            dump=DumpModel(self._backup_at.text, backup.interval, backup.keep) if backup.interval else None,
        )

    def _train(self, runner: Runner, session: SparkSession) -> End:
        """The loop, with signals and failures beside the engine turned into an orderly end."""
        from mpca.spark.session import check_executors

        machine, config = runner.machine, self._job.config.cluster
        next_look, came = 0.0, False
        try:
            while machine.ended is None:
                if self._clock.now() >= next_look:
                    check_alive(session)
                    if self._job.session is None and not came:
                        check_executors(self._folder.path, self._executors, self._job.config.spark)
                    next_look = self._clock.now() + _LOOK_S
                if self._signals.caught is not None:
                    runner.stop("interrupted", signal.Signals(self._signals.caught).name)
                runner.once()
                came = came or bool(machine.executors)
                if self._place.lost is not None:
                    raise self._place.lost
                places = machine.executors * config.agents_per_executor
                if "executors" not in self._seconds and places >= self._agents:
                    self._stage("executors")
                if "agents" not in self._seconds and machine.state != RunState.STARTING:
                    self._stage("agents")
        except MpcaError as error:  # of the user's evaluation, a backup of another model, the cluster
            error = _cause(error, session)
            end = End("failed", str(error), is_final(error))
            try:
                runner.stop(end.status, end.reason, end.final)
                while machine.ended is None:
                    runner.step(runner.cluster.poll(0.02))
            except JvmError as gone:  # no agent can be told, but what the driver holds of the model is saved
                log.warning("%s", gone)
                return end
        return machine.ended

    def _finish(self, runner: Runner, end: End, backups: BackupWriter) -> Ended:
        assert self._records is not None
        self._shows.on_stage("saving the joint model")
        error = take_reached(runner) if runner.reached else None
        try:
            error = error if error is not None else evaluate_last(runner)
        except MpcaError as failure:
            log.warning("the last joint model was not evaluated: %s", failure)
        model, state = last_model(runner, backups)
        if runner.tally.first_step is not None:  # of the agent that was first, whichever told of it first
            self._seconds["first_step"] = self._before + runner.tally.first_step - self._began
        resumed_from = self._resumed.path if self._resumed else None
        summary = summarise(runner, end, self._job.config.run.seed, error, self._seconds, resumed_from, _versions())
        if summary.bad_records:
            where = f"{self._place.shown}/{self._folder.bad.name}"
            self._shows.on_stage(f"{summary.bad_records:,} records of the data could not be used; they are named in {where}")
        trouble = self._save(runner.t(), summary, model)
        return Ended(
            run_dir=self._place.shown,
            summary=asdict(summary),
            reason=trouble or end.reason,
            exit_code=1 if trouble else exit_code(end, self._signals.caught),
            model_state=state,
            history=runner.tally.history,
            returns={agent: cloudpickle.loads(data) for agent, data in sorted(runner.returns.items())},
        )

    def _save(self, t: float, summary: Summary, model: bytes | None) -> str:
        """Write the end; what went wrong, with the place where all of it lies instead, or nothing."""
        assert self._records is not None
        assert self._bad is not None
        self._finished = True
        faults: list[str] = []
        if self._place.location.is_local and self._place.lost is not None:
            faults.append(str(self._place.lost))  # it is another driver's now
        else:
            faults += close_folder(self._records, self._bad, self._folder, t, summary, model)
        try:
            self._place.publish(self._records.waiting)
        except OSError as error:
            faults.append(str(error))
        if not faults:
            return ""
        text = f"the end is not saved in {self._place.shown}: {'; '.join(faults)}"
        text += f"; {keep(self._folder, self._records, self._bad, summary, model)}"
        log.error("%s", text)
        return text

    # ---- small things --------------------------------------------------------------------------------------------------

    def _stage(self, name: str) -> None:
        self._seconds[name] = self._before + self._clock.now() - self._began

    def broken_off(self, error: BaseException) -> None:
        """The run ended before its loop did: say so in its folder. One that never began says nothing there."""
        record = self._record
        if record is None or self._finished:
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
            final=is_final(error),
            versions=record.versions,
        )
        self._save(record.t + self._clock.now() - self._began, summary, None)


def _cause(error: MpcaError, session: SparkSession) -> MpcaError:
    """A session that was stopped from outside, when that is why the JVM refused what was asked of it."""
    if isinstance(error, JvmError):
        try:
            check_alive(session)
        except RunFailed as stopped:
            return stopped
        except JvmError:
            pass  # nobody is left to ask: what is known already says so
    return error


def _close(cluster: Cluster) -> None:
    """A driver JVM that is gone has nothing left to free: its executors and their agents end with it."""
    try:
        cluster.close()
    except JvmError as error:
        log.warning("%s", error)


def _versions() -> dict[str, str]:
    """By the installed packages' own word: importing torch would cost the driver two seconds for nothing."""
    packages = {}
    for name in ("numpy", "pyspark", "torch"):
        with suppress(metadata.PackageNotFoundError):  # an archive for agents may lack what only the driver needs
            packages[name] = metadata.version(name)
    return {"mpca": __version__, "python": platform.python_version(), **packages}
