"""A simulated agent process: the production `AgentMachine` around a toy trainer, its pipe, and its being killed or stopped.

Steps cost no events. What the agent did since it was last looked at follows from its step time; it is looked at when a
message has come, at the end of the batch that is running then, as the real loop does it in the optimiser's hook.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from mpca.agent import events as e
from mpca.agent.state import CLOSED, STOPPING, TRAINING, AgentMachine
from mpca.methods.base import Method
from mpca.sim.trainers import SimTrainer
from mpca.sim.world import World
from mpca.wire.messages import Begin, Install

if TYPE_CHECKING:
    from mpca.sim.nodes import Node

__all__ = ["SimAgent"]


class SimAgent:
    """One process on one executor (`node`)."""

    def __init__(
        self,
        world: World,
        node: Node,
        agent: int,
        incarnation: int,
        pid: int,
        method: Method,
        trainer: SimTrainer,
        step_s: float,
        copy_s: float,
    ) -> None:
        self.agent, self.incarnation, self.pid = agent, incarnation, pid
        self.machine = AgentMachine(agent, incarnation, method.shards, method)
        self.trainer = trainer
        self.alive = True
        self.held = True  # a holding job waits for its end
        self.stopped = False
        self.attached = False
        self.poisoned = False  # its next snapshot is not finite, nor any after it, until it takes a joint model
        self.updates = 0
        #: What tau must be, counted here and not by the machine: updates at the last snapshot of each shard.
        self.updates_at = [0] * method.shards
        self._world, self._node = world, node
        self._step_s, self._copy_s = step_s, copy_s
        self._steps_to_hold = method.hold_after
        self._lazy = method.install == "exchange" and not method.hold_after
        self._inbox: list[Any] = []
        self._trained_to = 0.0  # when the batch began that is running now
        self._awake = False  # a look is planned
        self._told = False  # the driver knows of its first update
        #: Where its stream is, as in Progress; of the data it has nothing but what it was told of who reads.
        self.position: list[int] = []
        self.members: dict[str, Any] = {}

    # ---- what befalls the process --------------------------------------------------------------------------------------

    def boot(self) -> None:
        """The user's function has reached `attach`."""
        if not self.alive:
            return
        if self.stopped:
            self._inbox.insert(0, e.Attached())
            return
        self.attached = True
        self._perform(self.machine.handle(e.Attached(), self._world.now), self._world.now)

    def receive(self, message: Any) -> None:
        self._inbox.append(message)
        # an arrival that waits for the next exchange changes nothing before it
        if self._lazy and type(message) is Install and message.mode == "install" and self.machine.stage is TRAINING:
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
        if self.machine.stage is TRAINING and not self._told:
            self._world.after(self._step_s, self._tell_first_step)

    def die(self) -> None:
        self.alive = False

    # ---- training ------------------------------------------------------------------------------------------------------

    def _plan_look(self) -> None:
        if self._awake or not self.alive or self.stopped:
            return
        self._awake = True
        delay = 0.0
        if self.machine.stage is TRAINING:
            since = self._world.now - self._trained_to
            delay = max(0.0, ceil(since / self._step_s - 1e-9) * self._step_s - since) + self._copy_s
        self._world.after(delay, self._look)

    def _look(self) -> None:
        """Between two batches: take the steps that fitted in, then do what was asked."""
        self._awake = False
        if not self.alive or self.stopped:
            return
        machine, now = self.machine, self._world.now
        begun = any(type(message) is Begin for message in self._inbox)
        self._train_to(now - self._copy_s)
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            if type(message) is e.Attached:
                self.boot()
            else:
                self._perform(machine.handle(message, now), now)
        if machine.stage is STOPPING:
            self._world.after(self._step_s, self._return)
        elif machine.stage is TRAINING:
            self._trained_to = now
            if begun:
                self._world.after(self._step_s + self._copy_s, self._tell_first_step)
            if self._steps_to_hold:  # in step with others: its machine wants to know of every update
                self._awake = True
                self._world.after(self._step_s + self._copy_s, self._look)

    def _tell_first_step(self) -> None:
        """The driver asks an agent for nothing before it knows of its first update."""
        if not self.alive or self.stopped or self._told:
            return
        self._train_to(self._world.now)
        if self.updates:
            self._told = True
            self._node.progress(self)

    def _train_to(self, now: float) -> None:
        machine = self.machine
        if machine.stage is not TRAINING or self.stopped:
            return
        count = int((now - self._trained_to) / self._step_s + 1e-6)
        if self._steps_to_hold:
            for _ in range(count):
                if machine.stage is not TRAINING:
                    return
                self._step(1, now)
        elif count > 0:
            self._step(count, now)

    def _step(self, count: int, now: float) -> None:
        self.trainer.advance(count, self.machine.pulls)
        self.updates += count
        self._trained_to += count * self._step_s
        self._perform(self.machine.handle(e.Stepped(count), now), now)

    def _return(self) -> None:
        if self.alive and not self.stopped and self.machine.stage is not CLOSED:
            self._perform(self.machine.handle(e.Returned(b""), self._world.now), self._world.now)

    # ---- instructions ----------------------------------------------------------------------------------------------------

    def _perform(self, instructions: Any, now: float) -> None:
        for one in instructions:
            kind = type(one)
            if kind is e.Publish:
                self._publish(one, now)
            elif kind is e.Take:
                data = self._node.arrival(self.agent, one.shard)
                self.trainer.install(one.shard, data, one.version, one.mode)
                if one.mode == "replace":
                    self.poisoned = False
                self._node.took(self, one)
            elif kind is e.Release:
                self._node.installed(self, one.shard, one.version)
            elif kind is e.TakeMembers:
                self.members = one.members
            elif kind is e.SayHello:
                self._node.hello(self)
            elif kind is e.SayFinished:
                self.alive = False
                self._node.finished(self)
            else:
                raise AssertionError(f"the simulator does not know {one!r}")

    def _publish(self, one: e.Publish, now: float) -> None:
        bounds = self.trainer.bounds
        data = np.empty(bounds[one.shard + 1] - bounds[one.shard], np.float32)
        self.trainer.snapshot(one.shard, data)
        if self.poisoned:
            data[:1] = np.nan
        tau = self.updates - self.updates_at[one.shard]
        self.updates_at[one.shard] = self.updates
        self._node.snapshot(self, one, data, tau, now - self._copy_s, now)
