"""The shell around the driver's state machine: it feeds the machine events, carries instructions out, looks at the objectives.

One loop, one thread. Everything that takes long happens elsewhere: the cluster moves bytes, a process of its own evaluates, a
thread writes backups. The simulator runs this same class over virtual time: it calls `step` itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NoReturn

from mpca.clock import Clock
from mpca.driver.agent_files import AgentFiles
from mpca.driver.backups import BackupWriter
from mpca.driver.cluster import AgentSpec, Cluster, Outgoing
from mpca.driver.evaluations import Evaluations, Evaluator, Kept
from mpca.driver.events import (
    AgentFinished,
    AgentHello,
    AgentProgress,
    AgentSaved,
    ClusterEvent,
    Event,
    ExchangeServed,
    ExecutorLost,
    Initial,
    JointPublished,
    JointRestored,
    Output,
    Prepared,
    ReadLocal,
    SaveAgents,
    StopRequested,
    Tick,
)
from mpca.driver.instructions import (
    AdoptInitial,
    CancelOrder,
    CutJoint,
    End,
    Instruction,
    Prepare,
    PublishJoint,
    Rediscover,
    SaveJoint,
    Serve,
    StartAgent,
    SubmitOrder,
    Withdraw,
    Write,
)
from mpca.driver.joint import JointModel
from mpca.driver.machine import Machine
from mpca.driver.metrics import LoggedMetrics
from mpca.driver.norms import measure
from mpca.driver.states import RunState
from mpca.driver.status import RunStatus
from mpca.driver.tally import Tally
from mpca.errors import EnvironmentRefused, JvmError
from mpca.methods.base import Method
from mpca.records import BadFile, Sink, make
from mpca.timeouts import AGENTS_LAST_S
from mpca.units import format_duration
from mpca.wire.agent_ref import AgentRef
from mpca.wire.messages import Hello

__all__ = ["Runner"]

log = logging.getLogger("mpca.run")

POLL_S = 0.02
STATUS_EVERY_S = 0.5
#: Of an agent, before its steps are judged: the first one may compile.
_FEW_STEPS = 3
#: Evaluations ask for local tensors again after this many times the seconds that the last read took: reads then take a
#: twentieth of the exchanges' time at most.
LOCAL_EVERY = 20.0


class Runner:
    """See the module's text. Times are seconds of `clock`; in records they are seconds since the run began.

    Args:
        machine: decides.
        cluster: holds the agents and carries orders out.
        method: moves the joint model.
        spec: what agent processes are started with.
        records: where records are written.
        clock: the machine's clock.
        evaluator: None: nothing is evaluated.
        backups: None: no backups are written.
        restore: fills the joint model of a run that goes on from a backup. A run that is cut anew does so with its x_0.
        on_status: is given the status every `STATUS_EVERY_S`.
        on_output: is given each line that an agent prints.
        check_model: raises when the model of the first Hello does not fit the run.
        software: versions that executors must have too.
        earlier_s: training time of earlier attempts, in seconds.
        earlier_t: t at which this attempt begins; records of an earlier attempt go on.
        states: by agent, `Start.state` of its first process: it goes on where an earlier attempt's agent was.
        bad: where bad records of the data are written down.
    """

    def __init__(
        self,
        machine: Machine,
        cluster: Cluster,
        method: Method,
        spec: AgentSpec,
        records: Sink,
        clock: Clock,
        evaluator: Evaluator | None = None,
        backups: BackupWriter | None = None,
        restore: Callable[[JointModel], None] | None = None,
        on_status: Callable[[RunStatus], None] = lambda status: None,
        on_output: Callable[[int, str], None] = lambda agent, line: None,
        check_model: Callable[[Hello], None] = lambda hello: None,
        software: dict[str, str] | None = None,
        earlier_s: float = 0.0,
        earlier_t: float = 0.0,
        bad: BadFile | None = None,
        states: Mapping[int, dict[str, Any]] = MappingProxyType({}),
    ) -> None:
        self.machine, self.cluster, self.clock = machine, cluster, clock
        self.method, self.records, self.bad = method, records, bad
        self.goals = goals = machine.shape.goals
        self.joint: JointModel | None = None
        self.tally = Tally(machine.agents_wanted)
        self.returns: dict[int, bytes] = {}
        #: The model that reached the target.
        self.reached: Kept | None = None
        self.evaluations = Evaluations(evaluator, goals, self._record_evaluation)
        self.metrics = LoggedMetrics()
        self._spec, self._states = spec, states
        self._backups, self._restore = backups, restore
        self._on_status, self._on_output = on_status, on_output
        self._software = software or {}
        self._check_model = check_model
        self.earlier_s = earlier_s
        self._now0 = clock.now() - earlier_t
        self._next_status = 0.0
        self._local_asked: int | None = None  # reads of local tensors that had ended when the awaited one was asked for
        self._next_local = 0.0  # until then evaluations take the local tensors that were read last
        self._files: AgentFiles | None = None  # those that a backup waits for
        self._agents_s: dict[int, float] = {}  # by cycle of a backup, what `AgentFiles.seconds` was
        self._save_asked = False  # agents are to be saved, and the machine is on its way to a still point
        self._next_backup = clock.now() + (float(goals.dump.interval) if goals.dump else 0.0)
        self._paused_reason = ""
        self._warned_of_steps = False

    # ---- the loop ------------------------------------------------------------------------------------------------------

    def once(self) -> None:
        """One turn of the loop: take events, then do what goes on beside training.

        Raises:
            AgentFailed: the user's evaluation raised.
            EnvironmentRefused: an agent has another Python, torch or mpca than the driver.
        """
        self.step(self.cluster.poll(POLL_S))
        self.beside()

    def stop(self, status: str, reason: str, final: bool = False) -> None:
        """Ask for an orderly end: Ctrl-C, SIGTERM, a failure beside the engine.

        Args:
            status: what the run is to end as: one of `records.STATUSES`.
            reason: why, for the user.
            final: whether another attempt would fail the same way.
        """
        self.step([StopRequested(status, reason, final)])

    def step(self, events: Iterable[ClusterEvent | Event]) -> None:
        """Apply events, and a Tick after them; carry out what follows, at once and in order.

        Args:
            events: oldest first.

        Raises:
            EnvironmentRefused: an agent has another Python, torch or mpca than the driver.
            LocalProtocolError: the machine knows no such event, or an illegal move.
        """
        queue: deque[ClusterEvent | Event] = deque(events)
        queue.append(Tick())
        while queue:
            event = queue.popleft()
            for told in self._note(event):
                for instruction in self.machine.handle(told, self.clock.now()):
                    queue.extendleft(reversed(list(self._perform(instruction))))

    def beside(self) -> None:
        """Look at objectives, evaluation, backups and the status line: none of them may ever hold a cycle up.

        Raises:
            AgentFailed: the user's evaluation raised.
            ConfigError: it does not return a number that a goal looks at.
        """
        now = self.clock.now()
        for failure in self.evaluations.collect(now):
            if self.machine.state != RunState.STOPPING:  # a run that ends needs no more evaluations
                self.stop("failed", failure.reason)
        if self.machine.state in (RunState.RUNNING, RunState.PAUSED):
            ended = self.goals.reached(self.evaluations.judged, self.evaluations.best, self.trained_s)
            if ended is not None:
                self.reached = self.evaluations.newest if ended[0] == "reached" else None
                self.stop(*ended)
            else:
                self.evaluations.looked_at()
        self._evaluate(now)
        self._back_up(now)
        if self.bad is not None:
            self.bad.flush()
        if now >= self._next_status:
            self._next_status = now + STATUS_EVERY_S
            self._on_status(self.status())

    @property
    def trained_s(self) -> float | None:
        """Seconds of training, with earlier attempts: from `Machine.began` until the run was asked to stop. None: none yet."""
        if self.machine.began is None:
            return self.earlier_s or None
        until = self.clock.now() if self.machine.stopped is None else self.machine.stopped
        return self.earlier_s + max(0.0, until - self.machine.began)

    def t(self) -> float:
        """Seconds since the run began."""
        return self.t_of(self.clock.now())

    def t_of(self, now: float) -> float:
        """A time of the machine as seconds since the run began."""
        return now - self._now0

    # ---- what the shell makes of an event ----------------------------------------------------------------------------------

    def _note(self, event: ClusterEvent | Event) -> list[Event]:
        """Take from an event what concerns the shell.

        Returns:
            What the machine is told, in that order.
        """
        told: list[Event] = []
        if isinstance(event, AgentSaved):
            if self._files is not None:
                self._files.saved(event)
            return told
        if isinstance(event, ExecutorLost) and self._files is not None:
            self._files.lost(event)
        if isinstance(event, AgentProgress):
            self.tally.progress(event, self.clock.now())
            self._look_at_steps(event)
            if event.metrics:
                who = {"agent": event.agent, "incarnation": event.incarnation}
                counted = {"steps": event.steps, "samples": event.samples or None}
                t = self._record("metrics", {**who, **counted, "metrics": event.metrics})
                self.metrics.heard(event, t)
            if self.bad is not None:
                self.bad.met(self.t(), *event.id, event.bad, event.bad_dropped)
        elif isinstance(event, Output):
            for line in event.lines:
                self._on_output(event.agent, line)
            return told
        elif isinstance(event, AgentFinished):
            self.returns[event.agent] = event.returns
        elif isinstance(event, AgentHello):
            self._check_hello(event)
            if self.joint is None and event.hello.shards == self.method.shards:
                self._check_model(event.hello)
                self.joint = JointModel(self.method, event.hello, self.cluster.room)
                restore, self._restore = self._restore, None  # what it restores from has two models, and stays no longer
                if restore is not None:
                    restore(self.joint)
                    told.append(JointRestored(tuple(self.joint.versions())))
        told.append(event)
        return told

    def _look_at_steps(self, event: AgentProgress) -> None:
        """Warn, once, of steps that are longer than a cycle may be: such an agent hands nothing over in time."""
        deadline_s = self.machine.shape.deadline_s
        if self._warned_of_steps or event.steps < _FEW_STEPS or event.train_s / event.steps <= deadline_s:
            return
        self._warned_of_steps = True
        step_s = event.train_s / event.steps
        log.warning(
            "cluster.cycle_deadline = %s is shorter than a step of agent %d, which takes %s: agents are asked between two "
            "steps, and those that do not answer in time take no part; set it to %s or more",
            format_duration(deadline_s), event.agent, format_duration(step_s), format_duration(3 * step_s),
        )  # fmt: skip

    def _check_hello(self, event: AgentHello) -> None:
        """Refuse an executor with another Python or torch: it would unpickle or compute something else than the driver."""
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

    def _perform(self, one: Instruction) -> Iterable[Event]:
        """Carry an instruction out.

        Returns:
            What the machine is told of it.
        """
        match one:
            case StartAgent():
                self.cluster.start_agent(one.who, self._spec_of(one.who))
            case SubmitOrder():
                self.cluster.submit(one.order)
            case CancelOrder():
                self.cluster.cancel(one.order, one.reason)
            case Withdraw():
                self.cluster.withdraw(one.broadcast)
            case Rediscover():
                self.cluster.rediscover(one.executors)
            case Write():
                self._write(one)
            case AdoptInitial():
                return [self._adopt(one)]
            case CutJoint():
                self._cut_joint(one.shards)
            case Prepare():
                return [self._prepare(one)]
            case Serve():
                return [self._serve(one)]
            case PublishJoint():
                return [self._publish_joint()]
            case SaveJoint():
                self._save_joint(one)
            case End():
                pass
            case _:
                _unknown(one)
        return []

    def _spec_of(self, who: AgentRef) -> AgentSpec:
        """A replacement begins at the joint model: what it replaces was further than the backup."""
        if who.incarnation or who.agent not in self._states:
            return self._spec
        return replace(self._spec, start=self._spec.start | {"state": self._states[who.agent]})

    def _adopt(self, one: AdoptInitial) -> Initial:
        assert self.joint is not None
        self.joint.adopt(one.shard, self.cluster.take_sum(one.order, one.length))
        return Initial(one.shard)

    def _cut_joint(self, shards: int) -> None:
        """x_0 goes into the joint model that the next Hello with so many shards describes."""
        assert self.joint is not None
        self._restore, self.joint = self.joint.begin_again, None
        self.method = self.method.cut(shards)
        self._spec = replace(self._spec, start=self._spec.start | {"shards": shards})

    def _prepare(self, one: Prepare) -> Prepared:
        assert self.joint is not None
        start = self.clock.now()
        before = self.joint.state(one.shard).x
        state = self.joint.merge(one.shard, self.cluster.take_sum(one.order, one.length, self.joint.room(one.shard)))
        moved, size = measure(before, state.x) if self.machine.shape.norm_limit else (0.0, 0.0)
        broadcast = None
        if self.method.exchanges and self.machine.state != RunState.STOPPING:
            broadcast = self.cluster.publish(self.joint.outgoing(one.shard), self._outgoing(one.shard, state.k))
        return Prepared(one.cycle, one.shard, broadcast, state.k, start, self.clock.now(), moved, size)

    def _outgoing(self, shard: int, version: int, *, replaces: bool = False) -> Outgoing:
        assert self.joint is not None
        return Outgoing(shard, version, self.joint.plan.parameters_in(shard), replaces)

    def _serve(self, one: Serve) -> ExchangeServed:
        assert self.joint is not None
        sent, served = one.sent, None
        before = self.joint.state(sent.shard)
        staleness = before.k - max(0, sent.version)
        if one.take:
            vector = self.cluster.take_sent(sent.id, sent.number, sent.length)
            served = self.joint.serve(sent.shard, vector, staleness, self.machine.agents_wanted)
        version = self.joint.state(sent.shard).k
        answer, share = (before.x, 0.0) if served is None else (served.answer, served.share)
        reason = "not finite together with the joint model" if one.take and served is None else one.reason
        self.cluster.answer(sent.id, sent.number, answer, version, "replace" if reason else "install", share)
        return ExchangeServed(sent, served is not None, reason, version, staleness, share, self.clock.now())

    def _save_joint(self, one: SaveJoint) -> None:
        self._save_asked = False
        if self._backups is None or self.joint is None or not self.joint.complete:
            return
        machine = self.machine
        state = self._backups.state(self.joint, machine.cycle, self.progress(), machine.position())
        self._backups.expect(state)
        self._files = AgentFiles(one, state, machine.agents_wanted, self.clock.now())

    def _publish_joint(self) -> JointPublished:
        assert self.joint is not None
        published = []
        for shard in range(len(self.joint.states)):
            state = self.joint.state(shard)
            joint = self._outgoing(shard, state.k, replaces=True)
            published.append((shard, self.cluster.publish(state.x, joint), state.k, state.x.nbytes))
        for shard, words in self.joint.local_parts():
            published.append((shard, self.cluster.publish(words), 0, words.nbytes))
        return JointPublished(published)

    def _write(self, one: Write) -> None:
        fields = dict(one.fields)
        if one.kind == "exchange":
            self.tally.exchange(fields)
        elif one.kind == "cycle":
            self.tally.cycle(fields)
            fields["stages"] = {
                name: {**stage, "start": self.t_of(stage["start"]), "end": self.t_of(stage["end"])}
                for name, stage in fields["stages"].items()
            }
            fields["pauses"] = {agent: [self.t_of(at) for at in pause] for agent, pause in fields["pauses"].items()}
        elif one.kind == "begin":
            fields["trained"] = self.earlier_s
        elif one.kind == "agent" and fields["event"] in ("lost", "rediscovered"):
            (self.metrics.lost if fields["event"] == "lost" else self.metrics.back)(fields["index"], fields["incarnation"])
        elif one.kind == "pause":
            fields["start"] -= self._now0
            fields["end"] = None if fields["end"] is None else fields["end"] - self._now0
            self._paused_reason = fields["reason"] if fields["end"] is None else ""
        self._record(one.kind, fields)

    def _record(self, kind: str, fields: dict[str, Any]) -> float:
        """Write a record of now; gives its t."""
        t = self.t()
        self.records.write(make(kind, t, fields))
        return t

    def _record_evaluation(self, kind: str, fields: dict[str, Any]) -> float:
        """As `_record`; what evaluations say is shown at once."""
        self._next_status = 0.0
        return self._record(kind, fields)

    # ---- beside training -------------------------------------------------------------------------------------------------

    def _evaluate(self, now: float) -> None:
        joint, machine = self.joint, self.machine
        due = machine.state == RunState.RUNNING and self.evaluations.due(now, machine.cycle)
        if due and joint is not None and joint.complete and self._local_read(now, saved=False):
            self.evaluations.begin(now, machine.cycle, joint)

    def _local_read(self, now: float, saved: bool) -> bool:
        """Whether the local tensors are what an agent has now; if they are not, ask for them.

        A cycle waits while they are read. So evaluations take older ones when reading them is slow; what is saved (`saved`)
        never does.
        """
        assert self.joint is not None
        machine = self.machine
        if not self.joint.layout.local or (not saved and self._local_asked is None and now < self._next_local):
            return True
        if self._local_asked is None:
            self._local_asked = machine.local_reads
            self.step([ReadLocal()])
        if machine.local_reads == self._local_asked:
            return False
        self._local_asked = None
        self._next_local = now + LOCAL_EVERY * machine.local_read_s
        return True

    def _back_up(self, now: float) -> None:
        backups = self._backups
        if backups is None or self.goals.dump is None:
            return
        self.take_backups()
        self.write_saved(now)
        due = self.machine.state == RunState.RUNNING and now >= self._next_backup
        busy = backups.busy or self._files is not None or self._save_asked
        if due and not busy and self.joint is not None and self.joint.complete and self._local_read(now, saved=True):
            self._next_backup = now + float(self.goals.dump.interval)
            if self.machine.shape.saves_to and self.machine.began is not None:
                self._save_asked = True
                self.step([SaveAgents()])
            else:
                backups.submit(backups.state(self.joint, self.machine.cycle, self.progress(), self.machine.position()))

    def write_saved(self, now: float) -> bool:
        """Write the backup that waits for agents' files, once they are there or cannot come. Returns whether none waits."""
        state = None if self._files is None or self._backups is None else self._files.complete(now)
        if state is not None and self._backups is not None and self._files is not None:
            if state.agents:
                self._agents_s[state.cycle] = self._files.seconds
            self._files = None
            self._backups.submit(state)
        return self._files is None

    def back_up_saved(self) -> None:
        """Write the backup that waits for agents' files, if executors write them in time."""
        deadline, why = self.clock.now() + AGENTS_LAST_S, f"not written within {AGENTS_LAST_S:.0f} s"
        try:
            while not self.write_saved(self.clock.now()) and self.clock.now() < deadline:
                self.step(self.cluster.poll(POLL_S))
        except JvmError as error:  # no executor can be heard any more
            why = str(error)
        if self._files is not None:
            log.warning("the last backup is without the agents' own states: %s", why)
            self._files = None

    def back_up_last(self) -> None:
        """Write the joint model as it is at the end. Where one of this cycle with agents' own states is whole, that is kept."""
        assert self._backups is not None
        assert self.joint is not None
        state = self._backups.state(self.joint, self.machine.cycle, self.progress(), self.machine.position())
        self._backups.submit(state)

    def take_backups(self) -> None:
        """Write records of the backups that have ended since the last call."""
        for fields in self._backups.poll() if self._backups is not None else ():
            self.tally.backups += fields["ok"]
            self._record("backup", fields | {"agents_s": self._agents_s.pop(fields["cycle"], None)})

    def progress(self) -> dict[str, Any]:
        """What a later attempt needs besides the model, for a backup's `progress`."""
        errors = [one["error"] for one in self.evaluations.history if one["error"] is not None]
        return {
            "trained_s": self.trained_s or 0.0,
            "t": self.t(),
            "steps": self.tally.steps,
            "samples": self.tally.samples,
            "best_error": min(errors, default=None),
        }

    def history(self) -> list[dict[str, Any]]:
        """What was evaluated and logged, oldest first, to the end of the run."""
        self.metrics.note(self.t())
        return sorted([*self.evaluations.history, *self.metrics.history], key=lambda one: float(one["t"]))

    def status(self) -> RunStatus:
        """The run as it is now, for a display."""
        states = {
            RunState.STARTING: "starting",
            RunState.READING: "starting",
            RunState.PAUSED: "paused",
            RunState.STOPPING: "stopping",
            RunState.CLOSED: "stopping",
        }
        trained, limit = self.trained_s, self.goals.max_time
        return RunStatus(
            seconds=self.t(),
            state=states.get(self.machine.state, "training"),
            reason=self.machine.at_work or self._paused_reason,
            cycle=self.machine.cycle,
            counts=self.machine.counts,
            evaluations=len(self.evaluations.history),
            error=self.evaluations.values.get("error"),
            loss=self.evaluations.values.get("loss"),
            evaluated=self.evaluations.shown,
            logged=self.metrics.first,
            target_error=self.goals.target_error,
            targets=[str(one) for one in self.goals.targets if one.metric != "error"],
            images_per_s=self.tally.samples_per_s,
            updates_per_s=self.tally.updates_per_s,
            tau=self.tally.tau,
            agents_alive=self.machine.agents_alive,
            agents_wanted=self.machine.agents_wanted,
            seconds_left=None if limit is None or trained is None else max(0.0, limit - trained),
        )


def _unknown(one: NoReturn) -> NoReturn:
    """mypy refuses a call: an instruction is not carried out."""
    raise TypeError(f"the runner knows no such instruction: {one!r}")
