"""A simulated agent process: the production `AgentMachine` around a toy trainer, with its pipe; it can be killed and stopped.

Steps cost no events. The step time tells what the agent did since the simulator last looked at it. The simulator looks when a
message has come, at the end of the batch that is running then, as the real loop does in the optimiser's hook.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

import numpy as np

from mpca.agent.eager import EagerOuter
from mpca.agent.events import (
    Ask,
    Attached,
    CloseOwn,
    CutAnew,
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
from mpca.agent.outbox import Outbox
from mpca.agent.state import CLOSED, LEAVING, STOPPING, TRAINING, AgentMachine
from mpca.methods import Method, When
from mpca.sim.clocks import NodeClock
from mpca.sim.trainers import SimTrainer
from mpca.sim.world import World
from mpca.storage.words import from_words, to_words
from mpca.wire.agent_ref import AgentId
from mpca.wire.messages import Begin, Install

__all__ = ["LOCAL_BYTES", "Behind", "Host", "SimAgent"]

LOCAL_BYTES = 4
REPORT_EVERY_S = 0.5  # between two Progress messages, as in real agents


@dataclass(frozen=True, slots=True)
class Behind:
    """What an agent's train function does behind its loop, once the run stops."""

    agent: int
    work_s: float = 0.0
    ends: str = "returns"  # or "raises", "dies"; "overruns": the function never leaves its loop
    silent: bool = False  # the loop had ended by itself, so the agent does not hear that its function left it


_NOTHING_BEHIND = Behind(-1)


class Host(Protocol):
    """What a process asks of the executor that it runs on."""

    clock: NodeClock

    @property
    def local(self) -> bool:
        """Whether models have a tensor that stays local."""
        ...

    def hello(self, agent: SimAgent) -> None:
        """The process says hello."""
        ...

    def progress(self, agent: SimAgent) -> None:
        """The process reports its progress."""
        ...

    def stepped(self, agent: SimAgent, updates: int) -> None:
        """The trainer has made so many updates."""
        ...

    def snapshot(self, agent: SimAgent, one: Publish, data: np.ndarray, start: float, end: float) -> None:
        """The process hands a shard over.

        Args:
            agent: the process.
            one: which cycle and shard, and tau.
            data: float32, the shard.
            start: seconds of the host's clock: the interruption began.
            end: seconds of the host's clock: it ended.
        """
        ...

    def ask(self, agent: SimAgent, one: Ask, data: np.ndarray, start: float) -> None:
        """The process asks for an exchange, and waits.

        Args:
            agent: the process.
            one: which shard, and tau.
            data: float32, what it sends.
            start: seconds of the host's clock: the interruption began.
        """
        ...

    def arrival(self, agent: int, shard: int) -> np.ndarray:
        """What lies in the arrival slot of this agent's shard, float32."""
        ...

    def took(self, agent: SimAgent, one: Take) -> None:
        """The process has taken an arrival in."""
        ...

    def installed(self, agent: SimAgent, shard: int, version: int) -> None:
        """The process has read the arrival slot: it is free."""
        ...

    def non_finite_again(self, agent: SimAgent) -> None:
        """An update came between two shards that replace the agent's own: its parameters are not finite again."""
        ...

    def saved(self, agent: SimAgent, number: int, state: dict[str, Any], error: str) -> None:
        """The process hands over what is its own, or says why not.

        Args:
            agent: the process.
            number: of the SaveState.
            state: what `SimAgent.resume` takes.
            error: empty: `state` is there.
        """
        ...

    def went_on(self, agent: SimAgent, taus: list[int]) -> None:
        """The process is where an earlier attempt's was.

        Args:
            agent: the process.
            taus: by shard, updates since its last snapshot.
        """
        ...

    def finished(self, agent: SimAgent) -> None:
        """The train function has returned, and the process ends."""
        ...

    def failed(self, agent: SimAgent, error: str, traceback: str) -> None:
        """The train function has raised, and the process ends."""
        ...

    def crash(self, agent: SimAgent) -> None:
        """The process dies by itself."""
        ...


class SimAgent:
    """One process on one executor (`node`).

    Args:
        world: virtual time.
        node: the executor.
        who: which process of which agent.
        pid: number of the process.
        method: what its machine runs.
        shards: into which the model is cut at first.
        lay: makes what stands in for model and optimiser, for a number of shards.
        step_s: seconds of one update.
        copy_s: seconds of an interruption.
    """

    def __init__(
        self,
        world: World,
        node: Host,
        who: AgentId,
        pid: int,
        method: Method,
        shards: int,
        lay: Callable[[int], SimTrainer],
        step_s: float,
        copy_s: float,
    ) -> None:
        self.id, self.agent, self.pid = who, who.agent, pid
        self.machine = AgentMachine(*who, shards, method.agent_side)
        self.trainer, self._lay = lay(shards), lay
        trainer = self.trainer
        side = method.agent_side
        parts = trainer.bounds, trainer.parameters, shards, trainer.snapshot
        self._outbox = Outbox(side, *parts, trainer.runs) if side.asks else None
        self._eager = EagerOuter(side.outer, *parts) if side.outer is not None else None
        self.behind = _NOTHING_BEHIND
        self._free_at: float | None = None  # when its function is through, once it was told to stop
        self.alive = True
        self.held = True  # a holding job waits for the process to end
        self.stopped = False
        self.attached = False
        #: No snapshot is finite from now on, until all shards are replaced with no update in between: one shard that is not
        #: finite makes the others non-finite again.
        self.non_finite = False
        self._cured: set[int] = set()
        self.updates = 0
        #: The local tensor, an int32 behind the model's shards: it counts this agent's updates. When the agent takes the
        #: tensor of another agent, it counts on from there.
        self.counted = 0
        self._world, self._node = world, node
        self._step_s, self._copy_s = step_s, copy_s
        self._holds = side.holds
        self._lazy = side.when is not When.ON_ARRIVAL and not self._holds
        self._inbox: list[Any] = []
        self._trained_to = 0.0  # seconds of virtual time: when the batch began that is running now
        self._awake = False  # a look is planned
        self._due = False  # a look is planned for when a deferred request is to be answered
        self._told = False  # the driver knows of its first update
        #: The position in its data stream, as in Progress.
        self.position: list[int] = []
        #: The newest list of readers that it was told. A simulated agent reads no data, and only keeps the list.
        self.readers: dict[str, Any] = {}
        #: What an earlier attempt's process has saved; it goes on there when it begins.
        self.resume: dict[str, Any] = {}

    # ---- what happens to the process -----------------------------------------------------------------------------------

    def boot(self) -> None:
        """The user's function has reached `attach`."""
        if not self.alive:
            return
        if self.stopped:
            self._inbox.insert(0, Attached())
            return
        self.attached = True
        self._perform(self.machine.handle(Attached(self._node.local), self._world.now), self._world.now)

    def receive(self, message: Any) -> None:
        """A message has come through the pipe."""
        self._inbox.append(message)
        # an arrival that waits for the next exchange changes nothing before that exchange
        if self._lazy and type(message) is Install and message.mode == "install" and self.machine.state is TRAINING:
            return
        self._plan_look()

    def stop_process(self) -> None:
        """SIGSTOP."""
        self._train_to(self._world.now)
        self.stopped = True

    def continue_process(self) -> None:
        """SIGCONT."""
        self.stopped = False
        self._trained_to = self._world.now
        self._plan_look()
        if self.machine.state is TRAINING and not self._told:
            self._world.after(self._step_s, self._tell_first_step)

    def die(self) -> None:
        """The process is gone, without a word."""
        self.alive = False

    # ---- training ------------------------------------------------------------------------------------------------------

    def _plan_look(self) -> None:
        if self._awake or not self.alive or self.stopped:
            return
        self._awake = True
        delay = 0.0
        if self.machine.state is TRAINING:
            since = self._world.now - self._trained_to
            delay = max(0.0, ceil(since / self._step_s - 1e-9) * self._step_s - since) + self._copy_s
        self._world.after(delay, self._look)

    def _look(self) -> None:
        """Between two batches: take the steps that fitted in, then do what the messages ask."""
        self._awake = False
        if not self.alive or self.stopped:
            return
        machine, now = self.machine, self._world.now
        begun = any(type(message) is Begin for message in self._inbox)
        self._train_to(now - self._copy_s)
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            if type(message) is Attached:
                self.boot()
            else:
                self._perform(machine.handle(message, now), now)
        if self.resume and machine.state is TRAINING:
            self._go_on(now)
        if machine.state is STOPPING:
            self._leave_loop()
        elif machine.state is TRAINING:
            self._trained_to = now
            if begun:
                self._world.after(self._step_s + self._copy_s, self._tell_first_step)
            if self._holds:  # an agent in step with others: its machine must hear of every update
                self._awake = True
                self._world.after(self._step_s + self._copy_s, self._look)
            elif machine.due_in > 0 and not self._due:
                self._due = True
                updates = 1 if machine.side.asks_at_loss else machine.due_in
                self._world.after(updates * self._step_s, self._look_when_due)

    def _look_when_due(self) -> None:
        """The updates that a deferred request waits for are made by now, or almost: each look in between took time."""
        self._due = False
        if not self.machine.side.asks_at_loss or self.machine.state is not TRAINING:
            self._plan_look()
        elif self.alive and not self.stopped:
            self._train_to(self._world.now)  # to look at a loss is no interruption
            if self.machine.state is TRAINING:
                self._due = True
                self._world.after(self._step_s, self._look_when_due)

    def _tell_first_step(self) -> None:
        """The driver asks an agent for nothing before it knows of its first update."""
        if not self.alive or self.stopped or self._told:
            return
        self._train_to(self._world.now)
        if self.updates:
            self._told = True
            self._node.progress(self)
        elif self.machine.state is TRAINING:  # an arrival came into its first step, which began anew
            self._world.after(self._step_s, self._tell_first_step)

    def _train_to(self, now: float) -> None:
        machine = self.machine
        if machine.state is not TRAINING or self.stopped:
            return
        count = int((now - self._trained_to) / self._step_s + 1e-6)
        while count and (machine.bursting or machine.due_in > 0):  # each update changes the pulls, or may be the last for now
            self._step(1, now)
            count -= 1
            if machine.state is not TRAINING:
                return
        if self._holds:
            for _ in range(count):
                if machine.state is not TRAINING:
                    return
                self._step(1, now)
        elif count > 0:
            self._step(count, now)

    def _step(self, count: int, now: float) -> None:
        self.trainer.advance(count, self.machine.pulls)
        self.updates += count
        self.counted += count
        if self.non_finite and self._cured:
            self._node.non_finite_again(self)
        self._node.stepped(self, count)
        self._trained_to += count * self._step_s
        self._perform(self.machine.handle(Stepped(count, self.trainer.loss), now), now)

    # ---- behind the loop -----------------------------------------------------------------------------------------------

    def _leave_loop(self) -> None:
        """The agent was told to stop. Also called when a process is continued in which nothing happened for a while."""
        now = self._world.now
        if self._free_at is None:
            self._free_at = now + self._step_s + self.behind.work_s
        elif self.behind.ends == "overruns":
            return
        if self.behind.ends == "overruns":
            self._world.after(self._step_s, self._overrun)
            return
        if not self.behind.silent:
            self._world.after(self._step_s, self._see_stop)
        self._world.after(max(self._step_s, self._free_at - now), self._return)

    def _see_stop(self) -> None:
        if self.alive and not self.stopped and self.machine.state is STOPPING:
            self._perform(self.machine.handle(StopSeen(), self._world.now), self._world.now)

    def _overrun(self) -> None:
        if self.alive and not self.stopped and self.machine.state is STOPPING:
            self._step(max(1, int(REPORT_EVERY_S / self._step_s)), self._world.now)
            self._node.progress(self)
            self._world.after(REPORT_EVERY_S, self._overrun)

    def _return(self) -> None:
        if not self.alive or self.stopped or self.machine.state in (CLOSED, LEAVING):
            return
        now = self._world.now
        if self.behind.ends == "dies":
            self._node.crash(self)
        elif self.behind.ends == "raises":
            self._perform(self.machine.handle(Raised("ValueError: behind the loop", "Traceback ..."), now), now)
        else:
            self._perform(self.machine.handle(Returned(b""), now), now)

    # ---- instructions ----------------------------------------------------------------------------------------------------

    def _perform(self, instructions: Any, now: float) -> None:
        for one in instructions:
            kind = type(one)
            if kind is Publish:
                self._publish(one)
            elif kind is Ask:
                self._ask(one)
            elif kind is Take:
                data = self._node.arrival(self.agent, one.shard)
                if one.shard >= self.machine.shards:
                    self.counted = int.from_bytes(from_words(data, LOCAL_BYTES), "little")
                else:
                    self.trainer.install(one.shard, data, one.version, one.mode)
                    if self._outbox is not None:
                        self._outbox.installed(one.shard, data, one.mode)
                    if self._eager is not None:
                        self._eager.installed(one.shard, data, one.mode, one.share)
                    elif one.share:
                        self.trainer.pull(((one.shard, one.share),))
                    if one.mode == "replace" and self.non_finite:
                        self._cured.add(one.shard)
                        if len(self._cured) == self.machine.shards:
                            self.non_finite = False
                            self._cured.clear()
                self._node.took(self, one)
            elif kind is Release:
                self._node.installed(self, one.shard, one.version)
            elif kind is ResetOptimizer:
                self.trainer.reset_optimizer()
            elif kind is TakeReaders:
                self.readers = one.readers
            elif kind is CutAnew:
                self.trainer = self._lay(one.shards)
            elif kind is SaveOwn:
                self._node.saved(self, one.number, {} if one.error else self._own(now), one.error)
            elif kind is CloseOwn:
                pass
            elif kind is SayHello:
                self._node.hello(self)
            elif kind is SayProgress:
                self._node.progress(self)
            elif kind is SayFinished:
                self.alive = False
                self._node.finished(self)
            elif kind is SayFailed:
                self.alive = False
                self._node.failed(self, one.error, one.traceback)
            else:
                raise AssertionError(f"the simulator does not know {one!r}")

    def _own(self, now: float) -> dict[str, Any]:
        eager = [] if self._eager is None else self._eager.own()
        return {
            "trainer": deepcopy(self.trainer),
            "machine": self.machine.own(now),
            "eager": deepcopy(eager),
            "counted": self.counted,
        }

    def _go_on(self, now: float) -> None:
        state, self.resume = deepcopy(self.resume), {}
        self.trainer, self.counted = state["trainer"], state["counted"]
        self.machine.go_on(state["machine"], now)
        if self._eager is not None:
            self._eager.go_on(state["eager"])
        self._node.went_on(self, state["machine"]["taus"])
        self.updates = self.machine.updates
        self._told = self.updates > 0
        self._node.progress(self)

    def _publish(self, one: Publish) -> None:
        end = self._node.clock.now()
        if one.shard >= self.machine.shards:
            words = np.empty(LOCAL_BYTES // 2, np.float32)
            to_words(self.counted.to_bytes(LOCAL_BYTES, "little"), words)
            self._node.snapshot(self, one, words, end - self._copy_s, end)
            return
        self._node.snapshot(self, one, self._read(one.shard), end - self._copy_s, end)

    def _ask(self, one: Ask) -> None:
        assert self._outbox is not None
        data = self._read(one.shard)
        self._outbox.fill(one.shard, data)
        self._node.ask(self, one, data, self._node.clock.now() - self._copy_s)

    def _read(self, shard: int) -> np.ndarray:
        bounds = self.trainer.bounds
        data = np.empty(bounds[shard + 1] - bounds[shard], np.float32)
        self.trainer.snapshot(shard, data)
        if self._eager is not None:
            self.trainer.install(shard, self._eager.hand_over(shard, data), 0, "replace")
        if self.non_finite:
            data[:1] = np.nan
        return data
