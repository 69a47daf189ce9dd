"""One door for every run: put the pieces together, run, and leave nothing behind.

`mpca train`, `mpca.Distributor` and `mpca submit` come through here. This file knows the order in which a run's parts come and
go. `parts.py` makes the parts.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from mpca.agent.returned import unpack
from mpca.api.evaluation import JointEvaluator
from mpca.api.finish import back_up_last, evaluate_last, exit_code, is_final, result_of, summarise
from mpca.api.job import Ended, Job, Listeners, resolve
from mpca.api.location import choose_location
from mpca.api.parts import (
    agent_spec,
    first_record,
    goals_of,
    open_session,
    refuse_open,
    run_shape,
    saves_to,
    unjudged,
    versions,
)
from mpca.api.resume import Resumed, find_backup
from mpca.api.run_files import RunFiles
from mpca.api.signals import Signals
from mpca.api.stores import open_store
from mpca.clock import SystemClock
from mpca.driver.agent_table import AgentTable
from mpca.driver.backups import BackupWriter
from mpca.driver.budget import check_heaps, kept_for_codec
from mpca.driver.cluster import Cluster
from mpca.driver.coding import Coding
from mpca.driver.finishing import HURRIED
from mpca.driver.instructions import End
from mpca.driver.runner import Runner
from mpca.driver.server import machine_for
from mpca.driver.states import RunState
from mpca.driver.status import RunStatus
from mpca.errors import BackupError, ConfigError, JvmError, MpcaError, RemoteProtocolError, RunFailed
from mpca.extras import require
from mpca.spark.run.machine import machine_warning
from mpca.spark.yarn.sizing import driver_budget, executor_budget
from mpca.spark.yarn.submitted import ApplicationInfo, check_alive, settings_of
from mpca.storage import Backups, Location, Store
from mpca.units import parse_size
from mpca.wire.messages import Hello

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.spark.run.tokens import TokenWatch

__all__ = ["Ended", "Job", "Listeners", "launch", "resolve"]

log = logging.getLogger("mpca.run")
_LOOK_S = 1.0  # between two looks at whether the application is still there


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

    When it raises before the run began, the run's folder is as it was, or was not made.
    """
    from mpca.spark.jvm.errors import thrown_errors

    with ExitStack() as stack:
        launching = _Launch(job, Listeners(on_status, on_output, on_stage), stack)
        try:
            with thrown_errors("the driver's JVM refused"):
                return launching.run()
        except BaseException as error:
            launching.broken_off(error)  # before `stack` gives the folder up
            raise


class _Launch:
    """One run, from its folder to its summary. `stack` closes everything that the run opens, in reverse order."""

    def __init__(self, job: Job, listeners: Listeners, stack: ExitStack) -> None:
        self._job, self._listeners, self._stack = job, listeners, stack
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._application = ApplicationInfo.of(job.session) if job.session is not None else None
        config, application = job.config, self._application
        given = job.run_dir or config.run.dir or (application.run_folder(config.run.name) if application else "")
        self._location = choose_location(given, config.run.name, self._clock.wall(), stack)
        self._backup_at = Location.parse(config.backup.path) if config.backup.path else self._location.root / "backups"
        refuse_open(self._backup_at)
        self._goals = goals_of(job, self._backup_at.text)
        self._saves_to = saves_to(job, self._backup_at, application)
        self._before = application.since_submit(self._clock.wall()) if application else 0.0
        self._seconds = application.stages() if application else {}  # seconds by stage of the start
        self._signals = Signals()
        self._files: RunFiles | None = None  # made when the run begins
        self._coding: Coding | None = None  # made with the cluster
        self._warned_of_memory = False
        self._tokens: TokenWatch | None = None  # of a run with anything on HDFS, in a Kerberos realm

    def run(self) -> Ended:
        """Make the parts of a run, in their order, and run it."""
        job, tell = self._job, self._listeners.on_stage
        require(*job.config.track.names)
        self._stack.enter_context(self._signals)
        session = self._open_session() if self._needs_session() else None
        open_at = partial(open_store, stack=self._stack, session=session, private=True)
        again = self._application is not None and self._application.attempt > 1
        resumed = self._resumed(session, open_at, again)
        backup_store = open_at(self._backup_at.parent)
        above = Backups(backup_store, self._backup_at.name).highest_term()
        term = self._location.take(session, resumed is not None, self._application, above)
        tell(f"run folder {self._location.shown}")
        for line in (*(resumed.told if resumed is not None else ()), *unjudged(job)):
            tell(line)
        if session is None:
            session = self._open_session()
        self._stage("session")
        self._signals.again()
        runner, backups = self._put_together(session, term, resumed, backup_store)
        self._signals.looked_at = True
        self._watch_tokens(session)
        end = self._train(runner, session)
        assert self._files is not None
        return self._finish(runner, end, backups, self._files, resumed)

    def _resumed(self, session: SparkSession | None, open_at: Callable[[Location], Store], again: bool) -> Resumed | None:
        """The backup to go on from, if any; a driver that lives in the folder is named, though it may have no backup yet."""
        try:
            return find_backup(self._job.resume, self._backup_at, open_at, again)
        except BackupError:
            self._location.refuse_rival(session, self._application)
            raise
        except OSError as error:
            raise BackupError(f"backups cannot be read: {error}") from error

    def _put_together(
        self, session: SparkSession, term: int, resumed: Resumed | None, store: Store
    ) -> tuple[Runner, BackupWriter]:
        """The parts of the run, and the writer of its backups into `store`."""
        job, run_name = self._job, f"{self._location.root.name}-{term}"
        if resumed is not None:
            job = replace(job, config=replace(job.config, method=resumed.method(job.config.method)))
        cluster = self._open_cluster(session, run_name, term)
        evaluator = None
        if job.evaluate is not None:
            from mpca.spark.hdfs.store import serve_files

            evaluator = JointEvaluator(job.evaluate.function, partial(serve_files, session))
            self._stack.callback(evaluator.close)
        backups = self._open_backups(store, term)
        machine = machine_for(
            job.config.method,
            run_shape(job, self._goals, run_name, term, resumed, session, self._saves_to),
            AgentTable(job.agents, job.config.cluster.agents_per_executor),
            self._clock.now(),
        )
        record = first_record(job, term, resumed, self._goals)
        files = self._files = RunFiles(
            self._location, term, self._job.config, record, self._job.callbacks, lambda: self._signals.caught is not None
        )
        self._stack.callback(files.trackers.close)
        runner = Runner(
            machine,
            cluster,
            job.config.method,
            agent_spec(job, run_name, on_yarn=self._application is not None and self._application.yarn),
            files.sink,
            self._clock,
            evaluator=evaluator,  # type: ignore[arg-type]  # its evaluations are frozen, the port's fields can be set
            backups=backups,
            restore=resumed.restore if resumed else None,
            on_status=self._listeners.on_status,
            on_output=self._listeners.on_output,
            check_model=partial(self._check_model, settings_of(session)),
            software=versions(),
            earlier_s=resumed.trained_s if resumed else 0.0,
            earlier_t=resumed.t if resumed else 0.0,
            bad=files.bad,
            states=resumed.agent_states(job.agents, job.config.method) if resumed and self._saves_to else {},
        )
        return runner, backups

    def broken_off(self, error: BaseException) -> None:
        """Note that the run ended before its loop did. A run that never began leaves no trace in the folder."""
        if self._files is not None:
            self._files.broken_off(error, self._clock.now() - self._began, self._seconds)

    # ---- in the order of a run -----------------------------------------------------------------------------------------

    def _needs_session(self) -> bool:
        """Whether the session must come before the folder: the run's storage, or that of the backups, is reached through it."""
        resume = self._job.resume
        named = Location.parse(resume) if resume and resume != "auto" else self._backup_at
        return any(not one.is_local for one in (self._location.root, self._backup_at, named))

    def _open_session(self) -> SparkSession:
        return open_session(self._job, self._listeners, self._application, self._location.folder.path, self._stack)

    def _watch_tokens(self, session: SparkSession) -> None:
        """A run that has nothing on HDFS needs none."""
        from mpca.spark.run.tokens import watch_tokens

        data = self._job.config.places()["data.path"]
        if data.startswith("hdfs:") or not (self._location.root.is_local and self._backup_at.is_local):
            self._tokens = watch_tokens(session, partial(log.warning, "%s"))
            if self._tokens is not None:
                self._stack.callback(self._tokens.close)

    def _open_cluster(self, session: SparkSession, run_name: str, term: int) -> Cluster:
        from mpca.spark.run.cluster import SparkCluster

        config, how = self._job.config.cluster, self._job.config.method.agent_side.how
        self._coding = None if config.codec == "none" else Coding(config.codec, how, term)
        over_spark = SparkCluster(
            session,
            run_name,
            term=term,
            reducer=config.reducer,
            broadcast=config.broadcast,
            chunk_bytes=config.chunk,
            coding=self._coding,
        )
        cluster = self._job.wrap_cluster(over_spark)
        self._stack.callback(_close, cluster)
        return cluster

    def _open_backups(self, store: Store, term: int) -> BackupWriter:
        config, terms = self._job.config, {*self._location.terms, term}
        backups = Backups(store, self._backup_at.name, config.backup.keep, self._location.check, terms)
        writer = BackupWriter(backups, config.run.name, term, config.run.seed, versions())
        self._stack.callback(writer.close, 0.0)
        return writer

    def _check_model(self, conf: dict[str, str], hello: Hello) -> None:
        """The first hello describes the model: does it fit the heaps that were asked for?"""
        executor, driver = (parse_size(conf.get(f"spark.{one}.memory", "1g")) for one in ("executor", "driver"))
        answers = self._job.agents if self._job.config.method.asks else 0
        check = partial(check_heaps, hello.bounds, self._job.agents_per_executor, executor, driver, answers)
        kept = 0
        if self._coding is not None:
            executors = ceil(self._job.agents / self._job.agents_per_executor)
            kept = kept_for_codec(4 * hello.bounds[-1], self._coding.rests, executors)
        try:
            line = check(kept_bytes=kept)
        except ConfigError as error:
            if self._coding is None or self._job.config.origins.get("cluster.codec") != "default":
                raise
            line = f'{check()}; cluster.codec = "none" in this run, since by default it would be {self._coding.codec}: {error}'
            self._coding.off()
            kept = 0
        self._listeners.on_stage(line)
        config, model = self._job.config, 4 * hello.bounds[-1]
        if conf.get("spark.master", "").startswith("local") and not self._warned_of_memory:  # "auto" cuts a model twice
            warning = machine_warning(config, hello.bounds, answers, kept)
            self._warned_of_memory = bool(warning)
            if warning:
                self._listeners.on_stage(warning)
        if self._application is None or not self._application.yarn:
            return
        self._listeners.on_stage(executor_budget(config, conf, model))
        if self._application.cluster_mode:
            torch, evaluates = "torch" in sys.modules, self._job.evaluate is not None
            self._listeners.on_stage(driver_budget(config, conf, model, torch=torch, evaluates=evaluates))

    def _train(self, runner: Runner, session: SparkSession) -> End:
        """Run the loop. Signals, and failures beside the engine, become an orderly end."""
        machine = runner.machine
        try:
            self._loop(runner, session)
        except MpcaError as error:  # such as one of the user's evaluation, of a backup of another model, or of the cluster
            error = _cause(error, session)
            end = End("failed", str(error), is_final(error))
            try:
                runner.stop(end.status, end.reason, end.final)
                while machine.ended is None:
                    runner.step(runner.cluster.poll(0.02))
            except JvmError as gone:  # no agent can be told any more, but the driver saves the joint model that it holds
                log.warning("%s", gone)
                return end
        assert machine.ended is not None
        return machine.ended

    def _loop(self, runner: Runner, session: SparkSession) -> None:
        from mpca.spark.run.session import check_executors

        machine, job = runner.machine, self._job
        next_look, came = 0.0, False
        while machine.ended is None:
            if self._clock.now() >= next_look:
                check_alive(session)
                if job.session is None and not came:
                    check_executors(self._location.folder.path, job.executors, job.config.spark)
                next_look = self._clock.now() + _LOOK_S
            if self._signals.caught is not None:
                runner.stop("interrupted", signal.Signals(self._signals.caught).name)
            runner.once()
            came = came or bool(machine.executors)
            if (lost := self._lost()) is not None:
                raise lost
            capacity = machine.executors * job.config.cluster.agents_per_executor
            if "executors" not in self._seconds and capacity >= job.agents:
                self._stage("executors")
            if "agents" not in self._seconds and machine.state != RunState.STARTING:
                self._stage("agents")

    def _lost(self) -> MpcaError | None:
        """What ends the run at any time: its folder is another attempt's, or its tokens end soon."""
        return self._location.lost or (self._tokens.lost if self._tokens is not None else None)

    def _finish(self, runner: Runner, end: End, backups: BackupWriter, files: RunFiles, resumed: Resumed | None) -> Ended:
        tell = self._listeners.on_stage
        final = None

        def interrupted() -> bool:
            return end.status == "interrupted" or self._signals.caught is not None or self._lost() is not None

        def hurried() -> bool:
            return end.status in HURRIED or interrupted()

        if runner.joint is not None and runner.joint.complete:
            tell("saving the joint model")
        back_up_last(runner, backups, self._job.config.cluster.finish_timeout, interrupted, tell)
        try:
            if runner.reached is None and runner.evaluations.evaluator is not None:
                tell("evaluating the joint model")
                final = evaluate_last(runner, self._job.config.cluster.finish_timeout, hurried)
        except MpcaError as failure:
            log.warning("the last joint model was not evaluated: %s", failure)
        model, state, kept = result_of(runner)
        final = kept or final
        if runner.tally.first_step is not None:  # of the fastest agent, whichever agent reported first
            self._seconds["first_step"] = self._before + runner.tally.first_step - self._began
        resumed_from = resumed.path if resumed else None
        summary = summarise(runner, end, self._job.config.run.seed, final, self._seconds, resumed_from, versions())
        if summary.bad_records:
            tell(f"{summary.bad_records:,} records of the data could not be used; they are named in {files.bad_shown}")
        trouble = files.save(runner.t(), summary, model)
        returns, damaged = _returned(runner.returns)
        trouble = trouble or damaged
        return Ended(
            run_dir=self._location.shown,
            summary=asdict(summary),
            reason=trouble or end.reason,
            exit_code=1 if trouble else exit_code(end, self._signals.caught),
            model_state=state,
            history=runner.history(),
            returns=returns,
        )

    def _stage(self, name: str) -> None:
        self._seconds[name] = self._before + self._clock.now() - self._began


def _cause(error: MpcaError, session: SparkSession) -> MpcaError:
    """The error of a session that was stopped from outside, when that is why the JVM refused a call."""
    if isinstance(error, JvmError):
        try:
            check_alive(session)
        except RunFailed as stopped:
            return stopped
        except JvmError:
            pass  # the JVM cannot be asked any more: the error that is known already says so
    return error


def _returned(packed: dict[int, bytes]) -> tuple[dict[int, Any], str]:
    """What train functions returned, by agent, and what is wrong with the first one that cannot be read, or nothing."""
    returns, damaged = {}, ""
    for agent, data in sorted(packed.items()):
        try:
            returns[agent] = unpack(data)
        except RemoteProtocolError as error:
            damaged = damaged or f"what the train function of agent {agent} returned cannot be read: {error}"
    return returns, damaged


def _close(cluster: Cluster) -> None:
    """A driver's JVM that is gone has nothing left to free: its executors, and their agents, end with it."""
    try:
        cluster.close()
    except JvmError as error:
        log.warning("%s", error)
