"""Each invariant has teeth: a bug planted into the production module turns a named check red within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mpca.agent.events import Publish
from mpca.agent.state import AgentMachine
from mpca.algorithm.joint import JointShard, blend, extrapolate, trajectory
from mpca.driver import agent_table
from mpca.driver.cycle_record import CycleRecordBuilder
from mpca.driver.cycle_state import BetweenCycles, Reduced
from mpca.driver.dispatcher import OrderDispatcher
from mpca.driver.events import JointPublished
from mpca.driver.exchange import Exchange
from mpca.driver.joining import Joining
from mpca.driver.late_agents import LateAgents
from mpca.driver.runner import Runner
from mpca.driver.snapshots import ShardSnapshots
from mpca.driver.states import AgentState
from mpca.driver.stopping import Stopping
from mpca.methods import mpca
from mpca.sim.check import Violation
from mpca.sim.clocks import NodeClock
from mpca.sim.cluster import SimCluster
from mpca.sim.faults import Fault
from mpca.sim.run import Scenario, simulate
from mpca.wire.orders import NEVER, Order, Part

pytestmark = pytest.mark.long

Patch = Callable[[pytest.MonkeyPatch], None]

PLAIN = Scenario(agents=4, cycles=12, method={"name": "mpca", "gamma_ramp": 0, "beta_ramp": 5})
LONG = replace(PLAIN, cycles=80)


def with_faults(scenario: Scenario, *faults: Fault, **changes: Any) -> Scenario:
    return replace(scenario, faults=faults, **changes)


@dataclass(frozen=True)
class Planted:
    name: str
    patch: Patch
    scenario: Scenario
    red: set[str]  # the checks that may find it
    seeds: int = 3


PLANTED: list[Planted] = []


def planted(scenario: Scenario, *red: str, seeds: int = 3) -> Callable[[Patch], Patch]:
    def add(patch: Patch) -> Patch:
        PLANTED.append(Planted(patch.__name__, patch, scenario, set(red), seeds))
        return patch

    return add


@planted(
    with_faults(LONG, Fault("kill_agent", 1, 3, "started"), Fault("kill_agent", 2, 5, "frozen"), echo_s=2.5),
    "fence", "live", "hold", "I12",
)  # fmt: skip
def incarnations_are_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_table.AgentTable, "find", lambda self, who: self.agents[who.agent])


@planted(PLAIN, "I2")
def the_mean_is_not_weighted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Exchange._reduce

    def wrong(self: Exchange, contributors: list[int]) -> Any:
        reduce = right(self, contributors)
        return reduce and replace(reduce, parts=[Part(part.executor, 1.0) for part in reduce.parts])

    monkeypatch.setattr(Exchange, "_reduce", wrong)


@planted(PLAIN, "I2")
def one_part_is_left_out_of_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Exchange._reduce

    def wrong(self: Exchange, contributors: list[int]) -> Any:
        reduce = right(self, contributors)
        return reduce and replace(reduce, parts=reduce.parts[:-1])

    monkeypatch.setattr(Exchange, "_reduce", wrong)


@planted(PLAIN, "I2")
def a_part_is_added_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Exchange._reduce

    def wrong(self: Exchange, contributors: list[int]) -> Any:
        reduce = right(self, contributors)
        return reduce and replace(reduce, parts=[*reduce.parts, reduce.parts[0]])

    monkeypatch.setattr(Exchange, "_reduce", wrong)


@planted(PLAIN, "I2")
def the_trajectory_is_fed_by_the_extrapolated_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(state: JointShard, mean: Any, beta: float, delta: float, into: Any, v_into: Any) -> JointShard:
        moved, p = blend(state.x, mean, beta), state.v.size
        return JointShard(moved, trajectory(state.v, extrapolate(state, 0.7)[:p], moved[:p], delta), state.k + 1)

    monkeypatch.setattr(mpca, "update", wrong)


@planted(PLAIN, "I2")
def the_extrapolated_state_is_blended(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mpca.update

    def wrong(state: JointShard, mean: Any, beta: float, delta: float, into: Any, v_into: Any) -> JointShard:
        return right(state._replace(x=extrapolate(state, 0.7)), mean, beta, delta, into, v_into)

    monkeypatch.setattr(mpca, "update", wrong)


@planted(PLAIN, "I10")
def what_is_broadcast_is_not_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpca.MPCA, "outgoing", lambda self, state, into: state.x)


@planted(replace(PLAIN, method={**PLAIN.method, "install": "exchange"}), "once")
def an_arrival_is_installed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AgentMachine._exchange

    def wrong(self: AgentMachine, asked: Any) -> Any:
        pending = dict(self._pending)
        out = right(self, asked)
        self._pending.update(pending)
        return out

    monkeypatch.setattr(AgentMachine, "_exchange", wrong)


@planted(PLAIN, "I2")
def tau_goes_on_after_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentMachine, "_exchange", lambda self, asked: (Publish(asked.cycle, asked.shard, self._updates),))


@planted(with_faults(LONG, Fault("non_finite", 1, 4, "submit")), "I2")
def updates_that_were_thrown_away_are_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AgentMachine._take

    def wrong(self: AgentMachine, event: Any) -> Any:
        counted = list(self._tau_from)
        out = right(self, event)
        self._tau_from[:] = counted
        return out

    monkeypatch.setattr(AgentMachine, "_take", wrong)


@planted(with_faults(LONG, Fault("non_finite", 1, 4, "submit")), "cured", seeds=1)
def shards_are_replaced_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpca.agent import state
    from mpca.wire.messages import Install

    monkeypatch.setitem(state._DECISIONS, Install, lambda self, event, now: (self._take(event),))


@planted(replace(PLAIN, method={"name": "sync", "tau": 4}), "I2", "live")
def an_agent_in_step_answers_early(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpca.agent import state
    from mpca.wire.messages import SnapshotRequest

    monkeypatch.setitem(state._DECISIONS, SnapshotRequest, lambda self, event, now: self._exchange(event))


@planted(with_faults(PLAIN, Fault("non_finite", 2, 3, "submit")), "I5")
def what_is_not_finite_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ShardSnapshots, "contributors", lambda self: [a for a in self.frozen if self.executor[a] in self.weights]
    )


@planted(with_faults(PLAIN, Fault("kill_executor", 1, 3, "frozen"), Fault("kill_executor", 2, 3, "frozen"), min_agents=3), "I9")
def a_commit_goes_below_min_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchange, "_needed", property(lambda self: 1))


@planted(PLAIN, "I6")
def a_cycle_number_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Exchange._end_cycle

    def wrong(self: Exchange, now: float) -> Any:
        out = right(self, now)
        self.cycle -= self.cycle == 5
        return out

    monkeypatch.setattr(Exchange, "_end_cycle", wrong)


@planted(with_faults(LONG, Fault("kill_agent", 1, 3, "started"), Fault("kill_agent", 2, 15, "started")), "I10")
def a_joiner_takes_the_joint_model_of_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Joining.targets

    def wrong(self: Joining) -> Any:
        self._for |= {a.id for a in self._table.in_state(AgentState.JOINING)}
        return right(self)

    monkeypatch.setattr(Joining, "take_done", lambda self, given_up: [])
    monkeypatch.setattr(Joining, "targets", wrong)


@planted(with_faults(PLAIN, Fault("kill_agent", 1, 2, "started"), cycles=30), "I10")
def a_joiner_takes_the_extrapolated_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Runner) -> JointPublished:
        states = enumerate(self.joint.state(shard) for shard in range(3)) if self.joint else ()
        return JointPublished([(n, self.cluster.publish(self.method.outgoing(s)), s.k, s.x.nbytes) for n, s in states])

    monkeypatch.setattr(Runner, "_publish_joint", wrong)


@planted(PLAIN, "I12")
def executors_do_not_forget_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    right = OrderDispatcher.drop

    def wrong(self: OrderDispatcher, broadcasts: Any) -> Any:
        out = right(self, broadcasts)
        self._waste.clear()
        return out

    monkeypatch.setattr(OrderDispatcher, "drop", wrong)


@planted(PLAIN, "I12")
def the_driver_keeps_its_broadcasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderDispatcher, "drop", lambda self, broadcasts: [])


@planted(PLAIN, "I12")
def yields_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Exchange._with_joiners

    def wrong(self: Exchange, draft: Any) -> Any:
        right(self, draft).forget_cycle = NEVER
        return draft

    monkeypatch.setattr(Exchange, "_with_joiners", wrong)


@planted(with_faults(LONG, Fault("misplace", 1, 3, "submit")), "hold")
def everyone_is_held_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: LateAgents, event: Any, now: float) -> Any:
        return [x for one in event.agents for x in self._table.hold_again(one.id, event.executor)]

    monkeypatch.setattr(LateAgents, "on_found", wrong)


@planted(with_faults(LONG, Fault("stop_agent", 1, 3, "submit", for_s=7.0)), "live")
def a_stopped_agent_is_not_welcome_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_table.AgentTable, "back", lambda self, who, now, reason: [])


@planted(with_faults(LONG, Fault("misplace", 1, 3, "submit")), "live")
def who_owes_nothing_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: LateAgents, agent: Any, reason: str, now: float) -> Any:
        self._table.late(agent.id, reason, now)
        return self._table.given_up(agent.id, reason)

    monkeypatch.setattr(LateAgents, "left_out", wrong)


@planted(PLAIN, "I2")
def a_sum_is_lost_when_the_run_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Stopping.advance

    def wrong(self: Stopping, now: float) -> Any:
        if isinstance(self._exchange.state, (BetweenCycles, Reduced)):
            self._exchange.state.made = None
        return right(self, now)

    monkeypatch.setattr(Stopping, "advance", wrong)


@planted(
    with_faults(LONG, *(Fault("kill_agent", 1, cycle, "submit") for cycle in (3, 12, 21, 30, 39))),
    "I11",
)
def deaths_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_table, "QUARANTINE_DEATHS", 99)


@planted(with_faults(LONG, Fault("skew_executor", 1, 3, "submit", by_s=600.0)), "live")
def deadlines_are_judged_by_wall_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SimCluster.submit

    def wrong(self: SimCluster, order: Order) -> None:
        clock = self._world.clock
        right(self, replace(order, deadline=order.deadline - clock.now() + clock.wall()))

    monkeypatch.setattr(SimCluster, "submit", wrong)
    monkeypatch.setattr(NodeClock, "here", lambda self, wall: self.now() + wall - self.wall())


@planted(with_faults(LONG, Fault("kill_agent", 1, 3, "started")), "said")
def nothing_is_said_of_who_was_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CycleRecordBuilder.line

    def wrong(self: CycleRecordBuilder, *given: Any) -> dict[str, Any]:
        self.left_out = {agent: why for agent, why in self.left_out.items() if not why.startswith(("starting", "joining"))}
        return right(self, *given)

    monkeypatch.setattr(CycleRecordBuilder, "line", wrong)


def noticed(scenario: Scenario, seed: int) -> set[str]:
    """The invariant that was violated; a run that gives up before its last cycle lives no more."""
    try:
        return set() if simulate(scenario, seed).status == "max_cycles" else {"live"}
    except Violation as violation:
        return {violation.invariant}


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(bug.seeds):  # the schedule is harmless without the bug
        assert noticed(bug.scenario, seed) == set()
    bug.patch(monkeypatch)
    found = set().union(*(noticed(bug.scenario, seed) for seed in range(bug.seeds)))
    assert found, "nothing noticed"
    assert found <= bug.red


def test_every_invariant_has_a_planted_bug() -> None:
    assert {"I2", "I5", "I6", "I9", "I10", "I11", "I12", "cured", "fence", "hold", "live", "once", "said"} <= set().union(
        *(bug.red for bug in PLANTED)
    )
