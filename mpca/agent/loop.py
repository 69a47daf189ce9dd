"""The agent's single-threaded loop: reads the pipe between two batches, and carries out the state machine's instructions.

The optimiser's post-step hook calls it (as do `attach` and `stopping`), so its thread is always between two batches. No other
thread runs beside the user's training, but for one that sleeps until a GPU's copy is done (`deliveries.py`). While the agent
waits or holds, the loop waits for the pipe. The user's own threads may ask whether the run is stopping; two that step at the
same time are refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mpca.agent.deliveries import Deliveries
from mpca.agent.eager import EagerOuter
from mpca.agent.events import (
    STEPPED,
    Ask,
    Attached,
    CloseOwn,
    CutAnew,
    EndGroup,
    LinkLost,
    Publish,
    Raised,
    Release,
    ResetOptimizer,
    Returned,
    SaveOwn,
    SayFailed,
    SayFinished,
    SayHello,
    SayProgress,
    Stepped,
    StopSeen,
    Take,
    TakeReaders,
)
from mpca.agent.link import Link, LinkClosed
from mpca.agent.metrics import Metrics
from mpca.agent.outbox import Outbox
from mpca.agent.own_state import OwnState
from mpca.agent.process import end_group
from mpca.agent.reading import Reading
from mpca.agent.stall import StallWatch
from mpca.agent.state import ASKING, HOLDING, LEAVING, STOPPING, WAITING, AgentMachine
from mpca.agent.trainer import Trainer, Wait
from mpca.clock import Clock
from mpca.errors import ConfigError
from mpca.shm import AgentSegment
from mpca.wire.messages import (
    Exchange,
    Failed,
    Files,
    Finished,
    Hello,
    Installed,
    Progress,
    SaveState,
    Snapshot,
    StateSaved,
    Stop,
    metrics_every_s,
)

__all__ = ["PROGRESS_INTERVAL_S", "AgentLoop", "Laid"]

#: A model that is cut into shards: what reads and changes it, the slots of its shards, and the Hello that names them.
Laid = tuple[Trainer, AgentSegment, Hello]
#: "At most twice a second" (wire.messages.Progress).
PROGRESS_INTERVAL_S = 0.5


class AgentLoop:
    """Carries out the instructions of one `AgentMachine`."""

    def __init__(self, link: Link, machine: AgentMachine, clock: Clock, metrics: Metrics) -> None:
        self._link = link
        self._machine = machine
        self._clock = clock
        self._metrics = metrics  # what mpca.log was given
        self._trainer: Trainer | None = None
        self._segment: AgentSegment | None = None
        self._hello: Hello | None = None
        self._lay: Callable[[int], Laid] | None = None
        self._outbox: Outbox | None = None  # of a method whose agents ask by themselves
        self._eager: EagerOuter | None = None  # of a method with eager updates
        self._own: OwnState | None = None
        self.samples = 0
        self.reading = Reading()
        self.stall = StallWatch(clock)
        self._pause_s = 0.0
        self._steps = threading.Lock()  # of the thread that steps
        self._trains: int | None = None  # the thread that attached or stepped last
        self._told_beside = False  # another thread than this was told of Stop, and the driver was not told so
        self._access = threading.RLock()  # to the machine and the link
        self._deliveries = Deliveries(self._access)
        self._began: float | None = None
        self._next_progress = 0.0
        self._next_metrics = 0.0
        self._perform_one: dict[type, Callable[[Any], None]] = {
            SayHello: self._say_hello,
            CutAnew: self._cut_anew,
            Publish: self._publish,
            Ask: self._ask,
            Take: self._take,
            Release: self._release,
            ResetOptimizer: self._reset_optimizer,
            TakeReaders: self._take_readers,
            SaveOwn: self._save_own,
            CloseOwn: self._close_own,
            SayProgress: lambda _: self._report(),
            SayFinished: self._say_finished,
            SayFailed: self._say_failed,
            EndGroup: self._end_group,
        }

    @property
    def stopping(self) -> bool:
        """Whether Stop has come. Looks into the pipe, and leaves all other messages there until the end of the batch.

        What Stop lets an agent do changes the model. So only the thread that trains takes it out of the pipe.
        """
        if not self._access.acquire(blocking=False):  # another thread is here, and may wait for the executor
            return self._machine.state is STOPPING
        try:
            return self._look_for_stop()
        finally:
            self._access.release()

    def _look_for_stop(self) -> bool:
        if self._machine.state is not STOPPING:
            try:
                if self._trains not in (None, threading.get_ident()):
                    self._told_beside = self._told_beside or self._link.waiting(Stop)
                    return self._told_beside
                stop = self._link.peek(Stop)
            except LinkClosed:
                self.tell(LinkLost())
                return True
            if stop is not None:
                self.tell(stop)
        if self._machine.state is not STOPPING:
            return False
        self.tell(StopSeen())
        return True

    def join(self, lay: Callable[[int], Laid], own: OwnState | None = None) -> None:
        """Send Hello and wait until all agents have the same x_0. The driver may read and replace it meanwhile.

        Args:
            lay: cuts the model into a number of shards. It is called again when the driver decides another number.
            own: what is saved when the driver asks for this agent's own state.
        """
        machine, self._lay, self._trains, self._own = self._machine, lay, threading.get_ident(), own
        # Nothing else here holds the trainer: before a Cut makes another one it must be gone.
        self._trainer, self._segment, self._hello = lay(machine.shards)
        parts = self._trainer.bounds, self._trainer.parameters, machine.shards, self._trainer.snapshot
        if machine.side.asks:
            self._outbox = Outbox(machine.side, *parts)
        if machine.side.outer is not None:
            self._eager = EagerOuter(machine.side.outer, *parts)
        del parts
        self.tell(Attached(local=bool(self._hello.local)))
        self.stall.waits()
        while self._machine.state is WAITING:
            self._serve(None)
        self._began = self._clock.now()
        self.stall.alive()

    def go_on(self, data: bytes) -> None:
        """Be where the agent was that has saved this. After `join`, before the first update.

        Raises:
            ConfigError: the script has changed since, or these are other bytes.
        """
        assert self._own is not None
        assert self._trainer is not None
        engine = self._own.go_on(data)
        self._trainer.go_on(engine["trainer"])
        self._machine.go_on(engine["machine"], self._clock.now())
        if self._machine.updates:  # it held; another reports its first update, which this report would put off
            with self._access:
                self._report()
        if self._eager is not None:
            self._eager.go_on(engine["eager"])
        if engine["between"]:  # it was saved before that
            self._hold_and_pull()

    def between_batches(self) -> None:
        """After every optimiser update: count it, serve requests, hold or wait for an answer if the method does, and pull.

        Raises:
            ConfigError: another thread is in here.
        """
        if not self._steps.acquire(blocking=False):
            raise ConfigError(
                "two threads step attached optimizers at the same time: parameters must not change under another thread's "
                "backward pass; step them on one thread"
            )
        self._trains = threading.get_ident()
        try:
            self._serve_between_batches()
        finally:
            self._steps.release()

    def _serve_between_batches(self) -> None:
        machine = self._machine
        self._finish_saving()
        self.tell(Stepped(1, self._metrics.newest("loss")) if machine.side.asks_at_loss else STEPPED)
        self._serve(0.0)
        if self._told_beside and machine.state is STOPPING:  # a thread that reads ahead may be all that asks
            self._told_beside = False
            self.tell(StopSeen())
        if self._clock.now() >= self._next_progress:
            with self._access:
                self._report()
            self.stall.alive()
        self._hold_and_pull()

    def _hold_and_pull(self) -> None:
        """The end of what comes between two batches."""
        machine = self._machine
        if machine.state in (HOLDING, ASKING):
            self.stall.waits()
            while machine.state in (HOLDING, ASKING):
                self._serve(None)
            self.stall.alive()
        if machine.pulls and not machine.tilts:
            assert self._trainer is not None
            self._trainer.pull(machine.pulls)

    def before_step(self, optimizer: Any) -> None:
        """The gradients are there, and this optimiser is about to take its step."""
        if self._machine.pulls:
            assert self._trainer is not None
            self._trainer.tilt(self._machine.pulls, optimizer)

    def leave(self, returns: bytes) -> None:
        """Report that the user's function returned, and serve further requests for the model."""
        self.stall.waits()
        self._finish_saving()
        self._save_at_last()
        self.tell(Returned(returns))
        while self._machine.state is LEAVING:
            self._serve(None)

    def fail(self, error: str, traceback: str) -> None:
        """Report that the user's function raised, or that the GPU failed behind its return, before the last message."""
        with self._access:
            self.tell(Raised(error, traceback))
            if not self._link.ended:  # the machine had closed, to say Finished
                with suppress(LinkClosed):
                    self._say_failed(SayFailed(error, traceback))

    def say(self, message: Files) -> None:
        """Send a message that needs no decision."""
        with self._access:
            self._link.send(message)

    def tell(self, event: Any) -> None:
        """Give an event to the machine, and carry out its instructions."""
        with self._access:
            for instruction in self._machine.handle(event, self._clock.now()):
                try:
                    self._perform_one[type(instruction)](instruction)
                except LinkClosed:
                    self.tell(LinkLost())

    def _serve(self, timeout_s: float | None) -> None:
        with self._access:
            try:
                if timeout_s == 0.0:
                    self._deliveries.check()
                else:  # while this thread waits, the lock keeps the other one from answering
                    self._deliveries.finish()
                messages = self._link.receive(timeout_s)
            except LinkClosed:
                self.tell(LinkLost())
                return
            for message in messages:
                self.tell(message)

    # ---- instructions ----

    def _cut_anew(self, one: CutAnew) -> None:
        assert self._lay is not None
        assert self._segment is not None
        self._trainer = None  # a GPU may have no room for two
        self._segment.close()
        self._trainer, self._segment, self._hello = self._lay(one.shards)

    def _say_hello(self, _: SayHello) -> None:
        assert self._hello is not None
        self._link.send(self._hello)

    def _publish(self, one: Publish) -> None:
        assert self._trainer is not None
        assert self._segment is not None
        segment, start = self._segment, self._clock.now()
        out, waits = segment.begin_snapshot(one.shard, one.cycle, one.updates), list[Wait]()
        if self._eager is not None and one.shard < self._machine.shards:
            self._trainer.snapshot(one.shard, out)
            self._trainer.install(one.shard, self._eager.hand_over(one.shard, out), 0, "replace")
        else:
            self._trainer.snapshot(one.shard, out, waits.append)
        end = self._clock.now()
        self._pause_s += end - start

        def answer() -> None:
            segment.end_snapshot()
            self._link.send(Snapshot(one.cycle, one.shard, one.updates, start, end))

        self._deliveries.put(waits, answer)

    def _ask(self, one: Ask) -> None:
        assert self._trainer is not None
        assert self._segment is not None
        assert self._outbox is not None
        self._deliveries.finish()  # what was asked for before has the slot
        start = self._clock.now()
        out = self._segment.begin_snapshot(one.shard, one.number, one.updates)
        self._trainer.snapshot(one.shard, out)
        self._outbox.fill(one.shard, out)
        self._segment.end_snapshot()
        end = self._clock.now()
        self._pause_s += end - start
        self._link.send(Exchange(one.number, one.shard, one.updates, one.version, start, end))

    def _take(self, one: Take) -> None:
        assert self._trainer is not None
        assert self._segment is not None
        start, waits = self._clock.now(), list[Wait]()
        data = self._segment.read_arrival(one.shard, one.version, one.mode)
        self._trainer.install(one.shard, data, one.version, one.mode, waits.append)
        if self._outbox is not None:
            self._outbox.installed(one.shard, data, one.mode)
        if self._eager is not None:
            self._eager.installed(one.shard, data, one.mode, one.share)
        elif one.share:
            self._trainer.pull(((one.shard, one.share),))
        end = self._clock.now()
        self._pause_s += end - start
        said = Installed(one.shard, one.version, one.mode, start, end)
        self._deliveries.put(waits, lambda: self._link.send(said))

    def _release(self, one: Release) -> None:
        now = self._clock.now()
        self._link.send(Installed(one.shard, one.version, one.mode, now, now))

    def _reset_optimizer(self, _: ResetOptimizer) -> None:
        assert self._trainer is not None
        self._trainer.reset_optimizer()

    def _save_own(self, one: SaveOwn) -> None:
        assert self._trainer is not None
        assert self._own is not None
        if one.error:
            self._link.send(StateSaved(one.number, -1, 0, "", one.error))
            return
        start = self._clock.now()
        engine: dict[str, Any] = {
            "trainer": self._trainer.own(),
            "machine": self._machine.own(start),
            "between": self._steps.locked(),
        }
        if self._eager is not None:
            engine["eager"] = self._eager.own()
        error = self._own.begin(one.number, engine)
        self._pause_s += self._clock.now() - start
        if error:
            self._link.send(StateSaved(one.number, -1, 0, "", error))

    def _finish_saving(self) -> None:
        """The iteration in which the agent's own state was taken is over."""
        start = self._clock.now()
        said = None if self._own is None else self._own.finish()
        if said is not None:
            self._pause_s += self._clock.now() - start
            with self._access:
                self._link.send(said)

    def _close_own(self, one: CloseOwn) -> None:
        assert self._own is not None
        self._own.taken(one.number)

    def _save_at_last(self) -> None:
        """The order that stops agents has them saved before; `stopping` takes Stop alone out of the pipe."""
        try:
            asked = self._link.peek(SaveState)
        except LinkClosed:
            return  # what follows meets it too
        if asked is not None:
            self.tell(asked)
            self._finish_saving()

    def _take_readers(self, one: TakeReaders) -> None:
        self.reading.told(one.readers)

    def _say_finished(self, one: SayFinished) -> None:
        self._deliveries.finish()
        self._report_all()
        self._link.send(Finished(one.returns))

    def _say_failed(self, one: SayFailed) -> None:
        self._deliveries.drop()
        self._report_all()
        self._link.send(Failed(one.error, one.traceback))

    def _report_all(self) -> None:
        self._next_metrics = 0.0
        self._report()
        while self.reading.bad:
            self._report()

    def _report(self) -> None:
        now = self._clock.now()
        self._next_progress = now + PROGRESS_INTERVAL_S
        train_s = 0.0 if self._began is None else now - self._began
        steps, function, data, bad = self._machine.updates, self._machine.function, self.reading.position, self.reading.bad
        metrics = {}
        if now >= self._next_metrics:
            self._next_metrics = now + metrics_every_s(train_s)
            metrics = self._metrics.take()
        said = Progress(steps, self.samples, train_s, self._pause_s, metrics, data, function, bad.take(), bad.dropped)
        self._link.send(said)

    def _end_group(self, _: EndGroup) -> None:
        end_group()
