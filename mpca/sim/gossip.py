"""Agents that push to each other (`methods.gossip`), in virtual time: no driver, no joint model, no production machine.

An agent draws after how many updates it pushes. Then it copies its model, halves its weight, and trains on; the message leaves
its port and comes in at the receiver's, one at a time. The receiver mixes between two batches. A copy takes `Costs.copy_s`.

Of the faults there is one, an agent that is killed: with it go its weight, what it was sending, and what was on its way to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from math import ceil, log
from typing import Any

import numpy as np

from mpca.checks import refused
from mpca.methods import Gossip, How, from_dict
from mpca.sim.costs import Costs
from mpca.sim.run import Scenario
from mpca.sim.trainers import TRAINERS, Lesson, SimTrainer
from mpca.sim.world import World

__all__ = ["Gossiped", "Gossips", "Message", "simulate_gossip"]

_Vector = np.ndarray


@dataclass(frozen=True)
class Message:
    """One that has come. Times are seconds of training."""

    number: int
    sender: int
    receiver: int
    sent: float
    mixed: float
    updates: int
    """Of the receiver, while it was on its way."""
    weight: float
    share: float
    """Of it in what the receiver has then."""


@dataclass(frozen=True)
class Gossiped:
    """What a simulated run has brought."""

    messages: list[Message]
    mean: _Vector
    """Of the living agents, by their weights."""
    updates: list[int]
    """By agent."""

    @property
    def ledger(self) -> list[str]:
        """The messages as lines of JSON."""
        return [json.dumps(asdict(one)) for one in self.messages]


@dataclass(eq=False)
class _Flight:
    """A message on its way; `learnt_from` is where its receiver was when it left, moved by what the receiver mixed since."""

    number: int
    sender: int
    receiver: int
    x: _Vector
    weight: float
    sent: float
    updates: int
    learnt_from: _Vector | None


@dataclass(eq=False)
class _Agent:
    number: int
    trainer: SimTrainer
    step_s: float
    weight: float
    alive: bool = True
    updates: int = 0
    due: int = 0
    """The update after which it pushes."""
    trained_to: float = 0.0
    port_free: tuple[float, float] = (0.0, 0.0)
    """When its outgoing and its incoming port are."""
    coming: list[_Flight] = field(default_factory=list)

    def train_to(self, now: float) -> None:
        """Make the updates that have ended by now."""
        count = int((now - self.trained_to) / self.step_s + 1e-6)
        if count > 0:
            self.trainer.advance(count, ())
            self.updates += count
            self.trained_to += count * self.step_s

    def between(self, at: float) -> float:
        """The first moment between two batches, from `at` on."""
        return max(at, self.trained_to + ceil((at - self.trained_to) / self.step_s - 1e-6) * self.step_s)

    def read(self) -> _Vector:
        """Its parameters and buffers."""
        out = np.empty(self.trainer.bounds[-1], np.float32)
        self.trainer.snapshot(0, out)
        return out


class Gossips:
    """One run; its agents train from 0 s on.

    Args:
        method: of the run.
        costs: what things take.
        world: virtual time.
        trainers: one an agent.
    """

    def __init__(self, method: Gossip, costs: Costs, world: World, trainers: list[SimTrainer]) -> None:
        self.messages: list[Message] = []
        self._method, self._costs, self._world = method, costs, world
        self._flights = 0
        self._kills: dict[int, list[int]] = {}  # by number of the message that leaves then
        count = len(trainers)
        self.agents = [_Agent(n, one, costs.step_of(n, count), 1 / count) for n, one in enumerate(trainers)]
        for one in self.agents:
            self._draw(one)
            self._plan(one)

    def kill_at(self, number: int, agent: int) -> None:
        """The agent is killed at the moment when message `number` leaves."""
        self._kills.setdefault(number, []).append(agent)

    def kill(self, agent: int) -> None:
        """It is gone, with its weight and what is on its way to it or from it."""
        self.agents[agent].alive = False
        for one in self.agents:
            one.coming = [flight for flight in one.coming if agent not in (flight.sender, flight.receiver)]

    def mean(self) -> _Vector:
        """Of the living agents' models as they are now, by their weights."""
        living = [one for one in self.agents if one.alive]
        for one in living:
            one.train_to(self._world.now)
        total = sum(one.weight for one in living)
        found = sum(one.read().astype(np.float64) * (one.weight / total) for one in living)
        return np.asarray(found, np.float32)

    def mass(self) -> tuple[float, _Vector]:
        """The sum of w and of w x, of living agents and of what is on its way to them."""
        weight, moment = 0.0, np.zeros(self.agents[0].trainer.bounds[-1])
        for one in self.agents:
            if not one.alive:
                continue
            for x, w in [(one.read(), one.weight), *((self._moved(one, flight), flight.weight) for flight in one.coming)]:
                weight += w
                moment += w * x.astype(np.float64)
        return weight, moment

    # ---- pushing ---------------------------------------------------------------------------------------------------------

    def _draw(self, one: _Agent) -> None:
        """After each update with probability 1 / tau: geometric."""
        chance = self._world.random.random()
        more = 1 if self._method.tau == 1 else 1 + int(log(1 - chance) / log(1 - 1 / self._method.tau))
        one.due = one.updates + more

    def _plan(self, one: _Agent) -> None:
        ended = one.trained_to + (one.due - one.updates) * one.step_s
        self._world.after(max(0.0, ended - self._world.now), self._push, one)

    def _push(self, one: _Agent) -> None:
        now = self._world.now
        if not one.alive:
            return
        one.train_to(now)
        if one.updates < one.due:  # it copied something meanwhile
            self._plan(one)
            return
        if self._waits(one, one.port_free[0], self._push, one):
            return
        others = [each for each in self.agents if each.alive and each is not one]
        if not others:
            return
        self._flights += 1
        for agent in self._kills.pop(self._flights, ()):
            self.kill(agent)
        receiver = self._world.random.choice(others)
        self._draw(one)
        if one.alive and receiver.alive:
            self._send(one, receiver, now)
        self._plan(one)

    def _send(self, one: _Agent, receiver: _Agent, now: float) -> None:
        one.weight /= 2
        start = None
        receiver.train_to(now)
        if self._method.correction:
            start = receiver.read()
            receiver.trained_to += self._costs.copy_s  # its batch ends so much later
        one.trained_to = now + self._costs.copy_s
        flight = _Flight(self._flights, one.number, receiver.number, one.read(), one.weight, now, receiver.updates, start)
        receiver.coming.append(flight)
        stream_s = self._costs.peer_s(flight.x.size)
        end = max(now + self._costs.copy_s, receiver.port_free[1]) + stream_s
        one.port_free, receiver.port_free = (end, one.port_free[1]), (receiver.port_free[0], end)
        self._world.after(end - now, self._come, flight, receiver)

    def _waits(self, one: _Agent, at: float, work: Callable[..., None], *arguments: Any) -> bool:
        """Whether work between two batches must wait: for that moment, or since the agent has copied something meanwhile."""
        wait_s = one.between(max(at, self._world.now)) - self._world.now
        if wait_s <= 1e-6 * one.step_s:
            return False
        self._world.after(wait_s, work, *arguments)
        return True

    # ---- mixing ----------------------------------------------------------------------------------------------------------

    def _come(self, flight: _Flight, receiver: _Agent) -> None:
        if flight in receiver.coming:
            self._world.after(receiver.between(self._world.now) - self._world.now, self._mix, flight, receiver)

    def _mix(self, flight: _Flight, receiver: _Agent) -> None:
        if flight not in receiver.coming:
            return
        now = self._world.now
        receiver.train_to(now)
        if self._waits(receiver, now, self._mix, flight, receiver):
            return
        receiver.coming.remove(flight)
        before, sent, own = receiver.read(), self._moved(receiver, flight), receiver.weight
        after = Gossip.mix(before, sent, own, flight.weight)
        receiver.weight += flight.weight
        receiver.trainer.install(0, after, flight.number, "install")
        receiver.trained_to = max(receiver.trained_to, now) + self._costs.copy_s
        for other in receiver.coming:
            if other.learnt_from is not None:
                other.learnt_from = other.learnt_from + (after - before)
        updates, share = receiver.updates - flight.updates, flight.weight / receiver.weight
        self.messages.append(
            Message(flight.number, flight.sender, receiver.number, flight.sent, now, updates, flight.weight, share)
        )

    @staticmethod
    def _moved(receiver: _Agent, flight: _Flight) -> _Vector:
        """What was sent, moved along with its receiver."""
        return flight.x if flight.learnt_from is None else flight.x + (receiver.read() - flight.learnt_from)


def simulate_gossip(
    scenario: Scenario,
    seed: int,
    lesson: Lesson | None = None,
    every_s: float = 1.0,
    point: Callable[[float, int, Callable[[], _Vector]], None] = lambda now, messages, mean: None,
) -> Gossiped:
    """Run a scenario whose method is `gossip`, for `Scenario.max_time_s`. Equal arguments give an equal ledger.

    Args:
        scenario: what is simulated.
        seed: of every chance in it.
        lesson: what is learnt, where `Scenario.trainer` learns from data.
        every_s: seconds between two calls of `point`.
        point: called with the time, the messages so far, and what gives the mean of the agents.

    Raises:
        ConfigError: another fault than `kill_agent`, or no time.
    """
    method, costs = from_dict(scenario.method), scenario.costs
    assert isinstance(method, Gossip)
    if not scenario.max_time_s > 0:
        raise refused("max_time_s", scenario.max_time_s, "must be above 0: gossip has no cycles to count")
    if lesson is None:
        elements = scenario.parameters + scenario.buffers
        make: Callable[..., Any] = partial(TRAINERS[scenario.trainer], [0, elements], scenario.parameters)
    else:
        bounds, _ = lesson.plan(1)
        costs, make = lesson.costs(costs), partial(lesson.trainer, bounds)
    world = World(seed)
    run = Gossips(method, costs, world, [make(How.REPLACE, agent, 0) for agent in range(scenario.agents)])
    for fault in scenario.faults:
        if fault.kind != "kill_agent":
            raise refused("faults", fault.kind, "agents that gossip can only be killed")
        run.kill_at(fault.cycle, fault.agent)
    for number in range(int(scenario.max_time_s / every_s + 1e-9) + 1):
        world.run(number * every_s, [])
        point(world.now, len(run.messages), run.mean)
    world.run(scenario.max_time_s, [])
    return Gossiped(run.messages, run.mean(), [one.updates for one in run.agents])
