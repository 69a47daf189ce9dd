"""Agents that push to each other: no weight and no progress is lost but with an agent, and the same seed gives the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpca.errors import ConfigError
from mpca.methods import Gossip, How
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault
from mpca.sim.gossip import Gossips, simulate_gossip
from mpca.sim.run import Scenario
from mpca.sim.trainers import Flat, LinearTrainer
from mpca.sim.world import World

COSTS = Costs(step_s=0.02, spread=0.3, rate=5e7)
BASE = Scenario(agents=6, method={"name": "gossip", "tau": 5}, trainer="quadratic", max_time_s=20.0, costs=COSTS)


class Still(Flat):
    """On a flat loss: each agent is somewhere else, and learns nothing."""

    def __init__(self, agent: int) -> None:
        super().__init__([0, 4], 3, How.REPLACE)
        self.x[:] = [agent, agent * agent, -agent, 1]

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        """Nothing changes."""


class Noted(Gossips):
    """Notes what left and what came, in order: both may happen between the same two batches."""

    def __init__(self, *args: Any) -> None:
        self.happened: list[tuple[bool, int]] = []
        super().__init__(*args)

    def _send(self, *args: Any) -> None:
        super()._send(*args)
        self.happened.append((False, self._flights))

    def _mix(self, flight: Any, receiver: Any) -> None:
        super()._mix(flight, receiver)
        if flight not in receiver.coming:  # it may wait for the end of a batch
            self.happened.append((True, flight.number))


@settings(max_examples=60, deadline=None)
@given(
    agents=st.integers(2, 9),
    tau=st.integers(1, 30),
    rate=st.sampled_from([1e6, 1e7, 1e9]),
    correction=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_on_a_flat_loss_no_mass_is_lost_with_messages_on_their_way(
    agents: int, tau: int, rate: float, correction: bool, seed: int
) -> None:
    world = World(seed)
    trainers = [Still(agent) for agent in range(agents)]
    run = Gossips(Gossip(tau, correction), Costs(rate=rate), world, trainers)
    total = sum(one.x.astype(np.float64) for one in trainers) / agents
    flying = 0
    for moment in np.arange(0.1, 4.0, 0.37):
        world.run(moment, [])
        weight, moved = run.mass()
        assert weight == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(moved, total, rtol=1e-4, atol=1e-5)
        flying += sum(len(one.coming) for one in run.agents)
    assert flying or rate == 1e9 or tau > 1
    assert all(one.weight > 0 for one in run.agents)


def test_a_lost_agent_takes_its_weight_along_and_what_was_on_its_way() -> None:
    world = World(3)
    run = Gossips(Gossip(tau=2), Costs(rate=2e6), world, [Still(agent) for agent in range(4)])
    run.kill_at(9, 2)
    while run.agents[2].alive:
        before, own = run.mass()[0], run.agents[2]
        lost = own.weight + sum(
            flight.weight for one in run.agents for flight in one.coming if 2 in (flight.sender, flight.receiver)
        )
        world.run(world.now + 0.001, [])
    assert before == pytest.approx(1)
    assert run.mass()[0] == pytest.approx(1 - lost, abs=own.weight / 2), "one message may have left in between"
    left = run.mass()[0]
    world.run(world.now + 5, [])
    assert run.mass()[0] == pytest.approx(left)
    assert all(2 not in (one.sender, one.receiver) for one in run.messages[-10:])
    expected = sum(one.weight * one.trainer.x for one in run.agents if one.alive) / sum(
        one.weight for one in run.agents if one.alive
    )
    np.testing.assert_allclose(run.mean(), expected, rtol=1e-5)


@pytest.mark.parametrize("correction", [False, True])
def test_a_history_is_that_of_exact_fractions(correction: bool) -> None:
    """Computed anew from who sent when, and who mixed when; on a flat loss there is nothing that a correction could add."""
    world, count = World(2), 5
    run = Noted(Gossip(4, correction), Costs(rate=4e6, spread=0.2), world, [Still(agent) for agent in range(count)])
    x = [[Fraction(value) for value in one.trainer.x.tolist()] for one in run.agents]
    w = [Fraction(1, count)] * count
    world.run(10.0, [])
    flying = [flight for one in run.agents for flight in one.coming]
    known = {one.number: one for one in [*run.messages, *flying]}
    sent = {}
    for came, number in run.happened:
        one = known[number]
        if not came:
            w[one.sender] /= 2
            sent[one.number] = (x[one.sender], w[one.sender])
            continue
        (values, weight), own = sent.pop(one.number), w[one.receiver]
        w[one.receiver] = own + weight
        x[one.receiver] = [
            (own * old + weight * new) / w[one.receiver] for old, new in zip(x[one.receiver], values, strict=True)
        ]
        assert one.weight == pytest.approx(float(weight), rel=1e-12)
        assert one.share == pytest.approx(float(weight / w[one.receiver]), rel=1e-12)
    assert len(run.messages) > 50
    assert set(sent) == {one.number for one in flying}
    for agent, exact, weight in zip(run.agents, x, w, strict=True):
        assert agent.weight == pytest.approx(float(weight), rel=1e-12)
        np.testing.assert_allclose(agent.trainer.x, [float(value) for value in exact], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("correction", [False, True])
def test_agents_meet_on_a_flat_loss(correction: bool) -> None:
    world = World(1)
    run = Gossips(Gossip(3, correction), COSTS, world, [Still(agent) for agent in range(8)])
    world.run(20.0, [])
    for one, other in pairwise(run.agents):
        np.testing.assert_allclose(one.trainer.x, other.trainer.x, atol=0.01)


def test_a_correction_adds_what_the_receiver_learnt_meanwhile() -> None:
    """With constant gradients both rules differ by exactly that: no update of a receiver is damped."""
    seen = {}
    for correction in (False, True):
        world = World(4)
        trainers = [LinearTrainer([0, 3], 3, How.REPLACE, agent, 0) for agent in range(2)]
        run = Gossips(Gossip(20, correction), Costs(rate=4e5, copy_s=0.0, spread=0.0), world, trainers)
        while not run.messages:
            world.run(world.now + 0.01, [])
        (message, *_), receiver = run.messages, run.agents[run.messages[0].receiver]
        assert message.updates > 5
        made, gradient = receiver.updates, receiver.trainer.gradient
        seen[correction] = receiver.trainer.x.copy()
        alone = -LinearTrainer.lr * made * gradient
        sender = trainers[message.sender].gradient * -LinearTrainer.lr * round(message.sent / 0.02)
        late = -LinearTrainer.lr * message.updates * gradient if correction else 0
        np.testing.assert_allclose(seen[correction], alone + message.share * (sender + late - alone), rtol=1e-5)
    assert np.abs(seen[True] - seen[False]).max() > 0.1


@pytest.mark.parametrize("correction", [False, True])
def test_the_same_seed_gives_the_same_ledger_and_agents_near_the_joint_optimum(correction: bool) -> None:
    scenario = replace(BASE, method={**BASE.method, "correction": correction}, faults=(Fault("kill_agent", 4, 60, "sent"),))
    first, again = (simulate_gossip(scenario, 5) for _ in range(2))
    assert first.ledger == again.ledger
    assert first.mean.tobytes() == again.mean.tobytes()
    assert first.ledger != simulate_gossip(scenario, 6).ledger
    assert 100 < len(first.messages) < sum(first.updates) / 3
    whole = simulate_gossip(replace(scenario, faults=()), 5)
    np.testing.assert_allclose(whole.mean[:3], [2.5, 3.5, 4.5], atol=1.2)
    assert all(0.5 < b / a < 2 for a, b in pairwise(whole.updates))


@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize("tau", [1, 5])
@pytest.mark.parametrize("copy_s", [0.0, 0.002])
def test_an_exchange_costs_an_agent_its_copies_and_no_batch(correction: bool, tau: int, copy_s: float) -> None:
    world, costs = World(3), replace(COSTS, copy_s=copy_s)
    run = Gossips(Gossip(tau, correction), costs, world, [Still(agent) for agent in range(6)])
    world.run(20.0, [])
    for one in run.agents:
        one.train_to(20.0)
        sent = sum(each.sender == one.number for each in run.messages) + sum(
            flight.sender == one.number for each in run.agents for flight in each.coming
        )
        came = sum(each.receiver == one.number for each in run.messages)
        copies = sent + came + (came + len(one.coming) if correction else 0)
        free_s = 20.0 - costs.copy_s * copies
        assert one.updates == pytest.approx(free_s / one.step_s, abs=2)
    for each in run.messages:  # what it did while the message was on its way
        assert each.updates <= (each.mixed - each.sent) / run.agents[each.receiver].step_s + 1


def test_a_slow_link_bounds_how_often_an_agent_sends() -> None:
    slow = simulate_gossip(replace(BASE, method={"name": "gossip", "tau": 1}, costs=replace(COSTS, rate=4.8e6)), 1)
    sent = sorted(one.sent for one in slow.messages if one.sender == 0)
    assert min(b - a for a, b in pairwise(sent)) >= 1.0, "a message takes 1 s"


def test_what_it_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_time_s"):
        simulate_gossip(replace(BASE, max_time_s=0.0), 0)
    with pytest.raises(ConfigError, match="can only be killed"):
        simulate_gossip(replace(BASE, faults=(Fault("stop_agent", 0, 1, "sent"),)), 0)
