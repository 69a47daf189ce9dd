"""Agents that ask by themselves, on the production driver and agents in virtual time: who is served when, what a loss costs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from mpca.driver.instructions import Serve
from mpca.driver.joint import JointModel
from mpca.driver.server import Serving
from mpca.methods import Served
from mpca.methods.easgd import EASGD
from mpca.sim.check import Violation
from mpca.sim.cluster import SimCluster
from mpca.sim.costs import Costs
from mpca.sim.executor import Acknowledge, ExecutorState, Write
from mpca.sim.faults import EXCHANGE_POINTS, Fault, random_faults
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.server import ExchangeServer
from mpca.wire.agent_ref import AgentId

pytestmark = pytest.mark.long

QUICK = Costs(rate=1e9, spread=0.0)
BASE = Scenario(agents=4, min_agents=2, method={"name": "easgd", "tau": 5}, cycles=200, costs=QUICK)


def test_agents_exchange_after_tau_updates_each_at_its_own_pace() -> None:
    outcome = simulate(replace(BASE, costs=Costs(rate=1e9, spread=1.0)), 0)
    assert (outcome.status, outcome.cycles, len(outcome.exchanges), outcome.commits) == ("max_cycles", 200, 200, [])
    assert {one.tau for one in outcome.exchanges} == {5}
    counts = [sum(one.agent == agent for one in outcome.exchanges) for agent in range(4)]
    assert counts[0] > 1.7 * counts[3], "the slowest agent's updates take twice the time"
    assert [one.number for one in outcome.exchanges if one.agent == 2] == list(range(1, counts[2] + 1))


def test_one_is_served_at_a_time_and_the_others_wait_for_their_turn() -> None:
    """With a slow link every exchange takes longer than the updates, so that all wait in a ring."""
    costs = Costs(rate=1e7, spread=0.0)
    outcome = simulate(replace(BASE, cycles=40, costs=costs), 0)
    late = outcome.exchanges[8:]
    assert [one.agent for one in late] == [n % 4 for n in range(len(late))]
    turn = costs.send_s(BASE.parameters + BASE.buffers)
    assert [b.t - a.t for a, b in pairwise(late)] == pytest.approx([turn] * (len(late) - 1))
    assert {one.staleness for one in late} == {3}


def test_who_is_there_first_waits_until_all_train() -> None:
    outcome = simulate(replace(BASE, cycles=8, costs=Costs(rate=1e9, spread=30.0)), 0)
    begin = next(one.t for one in outcome.records if one.kind == "begin")
    assert begin > 31 * 0.02
    assert outcome.exchanges[0].t >= begin
    assert outcome.exchanges[0].wait < begin


def asked_by(outcome: Outcome, agent: int, after: int) -> int:
    """The number of the first exchange of this agent, over all agents, from `after` on."""
    return next(n for n, one in enumerate(outcome.exchanges, start=1) if n >= after and one.agent == agent)


@pytest.mark.parametrize("kind", ["kill_agent", "kill_executor"])
@pytest.mark.parametrize("point", EXCHANGE_POINTS)
@pytest.mark.parametrize("slow", [False, True])
def test_an_agent_that_is_lost_in_the_middle_of_its_exchange_is_replaced(kind: str, point: str, slow: bool) -> None:
    base = replace(BASE, costs=Costs(rate=1e7, spread=0.0) if slow else QUICK, echo_s=2.5)
    number = asked_by(simulate(base, 0), 2, 30)
    fault = Fault(kind, 2, number, point)
    outcome = simulate(replace(base, faults=(fault,), cycles=100 if slow else 1500), 0)
    assert (outcome.status, outcome.faults, outcome.settled) == ("max_cycles", [fault], True)
    mine = [one for one in outcome.exchanges if one.agent == 2]
    assert {one.incarnation for one in mine} == {0, 1}
    taken = {"asked": False, "sending": False, "arrived": True, "answering": True}[point]
    assert (outcome.exchanges[number - 1].agent == 2) is taken, "the driver had all of it when it heard of the death, or not"


def test_what_is_not_finite_never_enters_and_the_agent_goes_on_from_the_joint_model() -> None:
    fault = Fault("non_finite", 1, 20, "asked")
    outcome = simulate(replace(BASE, faults=(fault,)), 0)
    refused = [one for one in outcome.exchanges if one.reason]
    assert [(one.agent, one.reason) for one in refused] == [(1, "not finite")]
    assert all(np.isfinite(one).all() for one in outcome.joint)
    later = [one for one in outcome.exchanges if one.agent == 1 and one.number > refused[0].number]
    assert {one.incarnation for one in later} == {0}
    assert later[0].tau == 5


def test_bytes_that_are_damaged_once_are_fetched_again_and_twice_are_asked_for_again() -> None:
    for times in (1, 2):
        number = asked_by(simulate(BASE, 0), 1, 20)
        fault = Fault("damage", 1, number - 1, "asked", times=times)
        outcome = simulate(replace(BASE, faults=(fault,), cycles=1000), 0)
        assert (outcome.status, outcome.faults) == ("max_cycles", [fault])
        longest = max(b.t - a.t for a, b in pairwise(one for one in outcome.exchanges if one.agent == 1))
        assert (longest > 1.0) is (times == 2)
        assert all(one.incarnation == 0 for one in outcome.exchanges)


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(20, 100, 20))])
def test_schedules_with_faults_hold_all_invariants(first: int) -> None:
    for seed in range(first, first + 20):
        random = Random(seed)
        scenario = replace(
            BASE,
            agents=random.randint(3, 8),
            method={"name": "easgd", "tau": random.choice((1, 5, 20))},
            cycles=random.choice((60, 200)),
            per_executor=1 + seed % 2,
            local=seed % 3 == 0,
            echo_s=random.choice((0.0, 2.5)),
            costs=Costs(rate=random.choice((1e7, 1e8, 1e9))),
        )
        faults = random_faults(random, scenario.agents, scenario.cycles, 4.0, scenario.deadline_s, EXCHANGE_POINTS)
        assert simulate(replace(scenario, faults=faults), seed).status == "max_cycles"


def test_the_same_seed_gives_the_same_ledger() -> None:
    assert simulate(BASE, 7).ledger == simulate(BASE, 7).ledger


# ---- the invariants have teeth -----------------------------------------------------------------------------------------------


def served_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = JointModel.serve

    def wrong(self: JointModel, shard: int, sent: np.ndarray, staleness: int, agents: int) -> Served | None:
        return right(self, shard, sent * np.float32(1.01), staleness, agents)

    monkeypatch.setattr(JointModel, "serve", wrong)


def answered_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SimCluster.answer

    def wrong(self: SimCluster, who: AgentId, number: int, vector: np.ndarray, *rest: Any) -> None:
        right(self, who, number, vector + np.float32(1), *rest)

    monkeypatch.setattr(SimCluster, "answer", wrong)


def not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Serving, "arrived", lambda self, event, now: [Serve(event, take=True)])
    monkeypatch.setattr(ExchangeServer, "take", lambda self, who, number, length: self._newest[who].data.copy())


@pytest.mark.parametrize(
    ("bug", "red"),
    [(served_wrong, {"I2"}), (answered_by_another, {"I10"}), (not_fenced, {"fence", "I1"})],
    ids=["served_wrong", "answered_by_another", "not_fenced"],
)
def test_planted_bug_is_found(bug: Any, red: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    faults = (Fault("kill_agent", 1, 20, "asked"),)
    scenario = replace(BASE, faults=faults, echo_s=2.5, cycles=600)
    assert simulate(scenario, 0).status == "max_cycles"
    bug(monkeypatch)
    with pytest.raises(Violation) as caught:
        simulate(scenario, 0)
    assert caught.value.invariant in red


# ---- the parts ---------------------------------------------------------------------------------------------------------------


def test_an_answer_is_written_whatever_its_version_is() -> None:
    """The Java twin does so too: the agent waits, and the server's state need not have changed."""
    book, who = ExecutorState(), AgentId(0, 0)
    book.agent_up(who)
    for version in (3, 3, 2):
        assert book.offer(who, 0, version, "install", "x", answer=True) == [
            Write(0, 0, version, "install", "x"),
            Acknowledge(0, 0, version),
        ]
        book.installed(who, 0, version)
    assert book.offer(who, 0, 2, "install", "x") == [Acknowledge(0, 0, 2)], "a broadcast is not"


def test_easgd_moves_both_by_the_same_share_from_where_the_other_was() -> None:
    method = EASGD(beta=0.8)
    state = method.start(np.float32([1, 2, 10]), 2)
    served = method.serve(state, np.float32([5, 2, 20]), 7, 4)
    assert served.share == pytest.approx(0.2)
    np.testing.assert_allclose(served.state.x, [1.8, 2.0, 12.5])
    np.testing.assert_array_equal(served.answer, [1, 2, 10])
    assert (served.state.k, state.x.tolist()) == (1, [1.0, 2.0, 10.0])
