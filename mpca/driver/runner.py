"""The shell around the driver's state machine: feeds it events, carries its instructions out, looks at the objectives.

One loop, one thread. Everything that takes long happens elsewhere: bytes in the cluster, evaluation in a process of its
own, backups in a thread. The simulator runs this same class over virtual time by calling `step` itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from mpca.algorithm.joint import JointShard
from mpca.clock import Clock
from mpca.driver import cluster as c
from mpca.driver import instructions as i
from mpca.driver.backups import BackupWriter
from mpca.driver.cycle import CycleMachine
from mpca.driver.joint import JointModel
from mpca.driver.objectives import Goals
from mpca.driver.status import RunStatus
from mpca.driver.tally import Tally
from mpca.errors import EnvironmentRefused
from mpca.methods.base import Method
from mpca.records import Sink, make
from mpca.wire.messages import Hello

__all__ = ["Evaluation", "Evaluator", "Runner"]

log = logging.getLogger("mpca.run")

POLL_S = 0.02
STATUS_EVERY_S = 0.5


class Evaluation(Protocol):
    cycle: int
    error: float | None
    loss: float | None
    seconds: float


class Evaluator(Protocol):
    """A process beside the driver; never blocks."""

    @property
    def busy(self) -> bool: ...
    def submit(self, cycle: int, joint: JointModel) -> None: ...
    def poll(self) -> list[Evaluation]: ...


class Runner:
    """See the module's text. Times: `clock.now` inside, wall clock in orders, seconds since the start in records."""

    def __init__(
        self,
        machine: CycleMachine,
        cluster: c.Cluster,
        method: Method,
        spec: c.AgentSpec,
        goals: Goals,
        records: Sink,
        clock: Clock,
        evaluator: Evaluator | None = None,
        backups: BackupWriter | None = None,
        restore: Callable[[JointModel], None] | None = None,
        on_status: Callable[[RunStatus], None] = lambda status: None,
        on_output: Callable[[int, str], None] = lambda agent, line: None,
        check_model: Callable[[Hello], None] = lambda hello: None,  # raises when the model does not fit
        software: dict[str, str] | None = None,  # versions that executors must have too
        earlier_s: float = 0.0,  # training time of earlier attempts
        earlier_t: float = 0.0,  # t at which this attempt begins: records of an earlier attempt go on
    ) -> None:
        self.machine, self.cluster, self.clock = machine, cluster, clock
        self.method, self.goals, self.records = method, goals, records
        machine.max_cycles = goals.max_cycles
        self.joint: JointModel | None = None
        self.tally = Tally(len(machine.roster.agents))
        self.returns: dict[int, bytes] = {}
        self.reached: list[JointShard | None] | None = None  # the states that reached the target, which are the result
        self.error: float | None = None
        self.loss: float | None = None
        self._spec = spec
        self._evaluator, self._backups, self._restore = evaluator, backups, restore
        self._on_status, self._on_output = on_status, on_output
        self._software = software or {}
        self._check_model = check_model
        self.earlier_s = earlier_s
        self._wall0 = clock.wall() - earlier_t
        self._now0 = clock.now() - earlier_t
        self._next_evaluation = 0.0
        self._evaluated_cycle = -1
        self._evaluated: list[JointShard | None] = []  # the states that the newest evaluation is of
        self._next_backup = clock.now() + (float(goals.dump.interval) if goals.dump else 0.0)
        self._next_status = 0.0
        self._paused_reason = ""
        self._perform: dict[type, Callable[[Any], Iterable[Any]]] = {
            i.StartAgent: self._start_agent,
            i.SubmitOrder: self._submit,
            i.CancelOrder: lambda one: self._call(self.cluster.cancel, one.order, one.reason),
            i.Withdraw: lambda one: self._call(self.cluster.withdraw, one.broadcast),
            i.Rediscover: lambda one: self._call(self.cluster.rediscover, one.executors),
            i.AdoptInitial: self._adopt,
            i.Prepare: self._prepare,
            i.PublishJoint: self._publish_joint,
            i.Write: self._write,
            i.End: lambda one: (),
        }

    # ---- the loop ------------------------------------------------------------------------------------------------------

    def once(self) -> None:
        """One turn of the loop: events, then what goes on beside."""
        self.step(self.cluster.poll(POLL_S))
        self.beside()

    def stop(self, status: str, reason: str, final: bool = False) -> None:
        """Ask for an orderly end: Ctrl-C, SIGTERM, a failure beside the engine."""
        self.step([i.StopRequested(status, reason, final)])

    def step(self, events: Iterable[Any]) -> None:
        """Apply events, and a Tick after them; carry out what follows, at once and in order."""
        queue = deque(events)
        queue.append(i.Tick())
        while queue:
            event = queue.popleft()
            self._note(event)
            for instruction in self.machine.handle(event, self.clock.now()):
                queue.extendleft(reversed(list(self._perform[type(instruction)](instruction))))

    def beside(self) -> None:
        """Objectives, evaluation, backups and the status line: all that must never hold a cycle up."""
        now = self.clock.now()
        self._collect_evaluations()
        if self.machine.stage in ("RUNNING", "PAUSED"):
            ended = self.goals.reached(self.error, self.trained_s)
            if ended is not None:
                self.reached = self._evaluated if ended[0] == "reached" else None
                self.stop(*ended)
        self._evaluate(now)
        self._back_up(now)
        if now >= self._next_status:
            self._next_status = now + STATUS_EVERY_S
            self._on_status(self.status())

    @property
    def trained_s(self) -> float | None:
        """Seconds since the first optimiser update, earlier attempts included."""
        if self.tally.first_step is None:
            return self.earlier_s or None
        return self.earlier_s + self.clock.now() - self.tally.first_step

    def t(self) -> float:
        """Seconds since the run began."""
        return self.t_of(self.clock.now())

    def t_of(self, now: float) -> float:
        """Machine time as seconds since the run began."""
        return now - self._now0

    # ---- events the machine does not need --------------------------------------------------------------------------------

    def _note(self, event: Any) -> None:
        if isinstance(event, c.AgentProgress):
            self.tally.progress(event, self.clock.now())
        elif isinstance(event, c.Output):
            for line in event.lines:
                self._on_output(event.agent, line)
        elif isinstance(event, c.AgentFinished):
            self.returns[event.agent] = event.returns
        elif isinstance(event, c.AgentHello):
            self._check_hello(event)
            if self.joint is None:
                self._check_model(event.hello)
                self.joint = JointModel(self.method, event.hello)
                if self._restore is not None:
                    self._restore(self.joint)
                    self.machine.versions = self.joint.versions()

    def _check_hello(self, event: c.AgentHello) -> None:
        """An executor with another Python or torch would unpickle, or compute, something else than the driver means."""
        hello = event.hello
        for what, theirs in (("python", hello.python), ("torch", hello.torch), ("mpca", hello.mpca)):
            ours = self._software.get(what, theirs)
            digits = 2 if what == "python" else 3
            if ours.split("+")[0].split(".")[:digits] != theirs.split("+")[0].split(".")[:digits]:
                raise EnvironmentRefused(
                    f"{what} differs: the driver has {ours}, agent {hello.agent} on host {event.host} (executor "
                    f"{event.executor}) has {theirs}; use one environment everywhere, or set cluster.python"
                )

    # ---- instructions ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _call(function: Callable[..., None], *arguments: Any) -> Iterable[Any]:
        function(*arguments)
        return ()

    def _start_agent(self, one: i.StartAgent) -> Iterable[Any]:
        self.cluster.start_agent(one.agent, one.incarnation, one.executor, self._spec)
        return ()

    def _submit(self, one: i.SubmitOrder) -> Iterable[Any]:
        offset = self.clock.wall() - self.clock.now()
        self.cluster.submit(replace(one.order, deadline=one.order.deadline + offset))
        return ()

    def _adopt(self, one: i.AdoptInitial) -> Iterable[Any]:
        assert self.joint is not None
        self.joint.adopt(one.shard, self.cluster.take_sum(one.order, one.length))
        return (i.Initial(one.shard),)

    def _prepare(self, one: i.Prepare) -> Iterable[Any]:
        assert self.joint is not None
        start = self.clock.wall()
        state = self.joint.merge(one.shard, self.cluster.take_sum(one.order, one.length))
        broadcast = None
        if self.method.exchanges and self.machine.stage != "STOPPING":
            broadcast = self.cluster.publish(self.method.outgoing(state))
        return (i.Prepared(one.cycle, one.shard, broadcast, state.k, start, self.clock.wall()),)

    def _publish_joint(self, one: i.PublishJoint) -> Iterable[Any]:
        assert self.joint is not None
        published = []
        for shard in range(len(self.joint.states)):
            state = self.joint.state(shard)
            published.append((shard, self.cluster.publish(state.x), state.k, state.x.nbytes))
        return (i.JointPublished(published),)

    def _write(self, one: i.Write) -> Iterable[Any]:
        fields = dict(one.fields)
        if one.kind == "cycle":
            self.tally.cycle(fields)
            fields["stages"] = {
                name: {**stage, "start": stage["start"] - self._wall0, "end": stage["end"] - self._wall0}
                for name, stage in fields["stages"].items()
            }
        elif one.kind == "pause":
            fields["start"] -= self._now0
            fields["end"] = None if fields["end"] is None else fields["end"] - self._now0
            self._paused_reason = fields["reason"] if fields["end"] is None else ""
        self.records.write(make(one.kind, self.t(), fields))
        return ()

    # ---- beside training -------------------------------------------------------------------------------------------------

    def _evaluate(self, now: float) -> None:
        evaluator, wanted = self._evaluator, self.goals.evaluate
        if evaluator is None or wanted is None:
            return
        due = self.machine.stage == "RUNNING" and now >= self._next_evaluation and self.machine.cycle > self._evaluated_cycle
        if due and not evaluator.busy and self.joint is not None and self.joint.complete:
            self._next_evaluation = now + float(wanted.every)
            self._evaluated_cycle = self.machine.cycle
            self._evaluated = list(self.joint.states)
            evaluator.submit(self.machine.cycle, self.joint)

    def _collect_evaluations(self) -> None:
        for done in self._evaluator.poll() if self._evaluator is not None else ():
            self.take_evaluation(done)

    def take_evaluation(self, done: Evaluation) -> None:
        self.error, self.loss = done.error, done.loss
        fields = {"cycle": done.cycle, "seconds": done.seconds, "error": done.error, "loss": done.loss}
        t = self.t()
        self.tally.history.append({"t": t, **fields})
        self.records.write(make("evaluation", t, fields))
        self._next_status = 0.0

    def _back_up(self, now: float) -> None:
        backups = self._backups
        if backups is None or self.goals.dump is None:
            return
        self.take_backups()
        due = self.machine.stage == "RUNNING" and now >= self._next_backup
        if due and not backups.busy and self.joint is not None and self.joint.complete:
            self._next_backup = now + float(self.goals.dump.interval)
            backups.submit(self.joint, self.machine.cycle, self.progress(), self.machine.readers.position())

    def take_backups(self) -> None:
        """Records of backups that have ended since."""
        for fields in self._backups.poll() if self._backups is not None else ():
            self.tally.backups += fields["ok"]
            self.records.write(make("backup", self.t(), fields))

    def progress(self) -> dict[str, Any]:
        """What a later attempt needs besides the model, in a backup's `progress`."""
        errors = [one["error"] for one in self.tally.history if one["error"] is not None]
        return {
            "trained_s": self.trained_s or 0.0,
            "t": self.t(),
            "steps": self.tally.steps,
            "samples": self.tally.samples,
            "best_error": min(errors, default=None),
        }

    def status(self) -> RunStatus:
        stages = {
            "STARTING": "starting",
            "READING": "starting",
            "PAUSED": "paused",
            "STOPPING": "stopping",
            "CLOSED": "stopping",
        }
        trained, limit = self.trained_s, self.goals.max_time
        return RunStatus(
            seconds=self.t(),
            stage=stages.get(self.machine.stage, "training"),
            reason=self._paused_reason,
            cycle=self.machine.cycle,
            evaluations=len(self.tally.history),
            error=self.error,
            loss=self.loss,
            target_error=self.goals.target_error,
            images_per_s=self.tally.samples_per_s,
            tau=self.tally.tau,
            agents_alive=self.machine.roster.count("ACTIVE", "BEGUN", "READY", "JOINING"),
            agents_wanted=len(self.machine.roster.agents),
            seconds_left=None if limit is None or trained is None else max(0.0, limit - trained),
        )
