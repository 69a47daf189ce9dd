"""A run that decides its number of shards: the model is cut anew before the first step, whatever fails then."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from mpca.records import AgentRecord, BeginRecord
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault, random_faults
from mpca.sim.run import Outcome, Scenario, simulate

pytestmark = pytest.mark.long

AUTO = {"name": "mpca", "shards": "auto", "gamma_ramp": 0, "beta_ramp": 5}
#: A cycle that moves nothing takes 11 ms. 64 of 5.3 kB are read in 0.06 s at 10 MB/s, so the wire takes 0.13 s: S = 12.
SLOW = Scenario(agents=4, method=AUTO, cycles=30, parameters=57, buffers=7, costs=Costs(element_bytes=5.3e3), local=True)
DECIDED = 12
LONG = 250  # cycles: until agents that were left out are back


def begun(outcome: Outcome) -> BeginRecord:
    (record,) = (one for one in outcome.records if isinstance(one, BeginRecord))
    return record


def test_a_slow_wire_gets_more_shards_and_each_is_exchanged_in_its_turn() -> None:
    outcome = simulate(SLOW, 1)
    record = begun(outcome)
    assert (record.shards, len(outcome.joint), outcome.status) == (DECIDED, DECIDED, "max_cycles")
    assert record.fixed_s == pytest.approx(0.011, rel=0.1)
    assert record.period_s == pytest.approx(DECIDED * record.fixed_s + record.wire_s)
    assert round((12 * record.wire_s / record.fixed_s) ** 0.5) == DECIDED
    assert [one.shard for one in outcome.commits] == [n % DECIDED for n in range(30)]
    events = [one.event for one in outcome.records if isinstance(one, AgentRecord)]
    assert events.count("started") == 4, "each agent is in the ledger once"
    assert "replaced" not in events


def test_a_fast_wire_keeps_three_shards_and_exchanges_as_a_run_of_three() -> None:
    fast = replace(SLOW, costs=Costs(element_bytes=1.0, latency_s=0.0005))
    auto, three = (simulate(replace(fast, method=AUTO | {"shards": shards}), 1) for shards in ("auto", 3))
    assert begun(auto).shards == 3
    assert [(one.cycle, one.shard, set(one.contributors)) for one in auto.commits] == [
        (one.cycle, one.shard, set(one.contributors)) for one in three.commits
    ]


def test_the_same_seed_gives_the_same_ledger() -> None:
    faults = tuple(Fault(kind, agent, -1, "cut") for agent, kind in enumerate(("kill_agent", "kill_executor", "retry_task")))
    scenario = replace(SLOW, faults=faults)
    assert simulate(scenario, 5).ledger == simulate(scenario, 5).ledger


@pytest.mark.parametrize("after_s", [0.0, 0.0005, 0.3])
@pytest.mark.parametrize(
    "kind", ["kill_agent", "kill_executor", "stop_agent", "end_hold", "retry_task", "misplace", "join", "refuse_start"]
)
def test_whatever_happens_between_the_decision_and_the_start_all_agents_train_in_the_new_shards(
    kind: str, after_s: float
) -> None:
    for_s = 4.0 if kind == "stop_agent" else 0.0
    fault = Fault(kind, 1, -1, "cut", for_s=for_s, after_s=after_s)
    outcome = simulate(replace(SLOW, faults=(fault,), cycles=LONG), 2)
    assert outcome.faults == [fault] or kind == "retry_task", "a task that has ended is not run again"
    assert (begun(outcome).shards, len(outcome.joint)) == (DECIDED, DECIDED)
    assert set(outcome.commits[-1].contributors) == set(range(4))


@pytest.mark.parametrize("kind", ["kill_agent", "kill_executor"])
def test_all_agents_may_be_lost_between_the_decision_and_the_start(kind: str) -> None:
    faults = tuple(Fault(kind, agent, -1, "cut", after_s=0.0002 * agent) for agent in range(4))
    outcome = simulate(replace(SLOW, faults=faults, cycles=LONG), 3)
    assert len(outcome.faults) == 4
    assert set(outcome.commits[-1].contributors) == set(range(4))


def test_an_agent_whose_executor_comes_with_the_cut_is_started_with_the_new_number() -> None:
    slow = replace(SLOW, executors=3, cycles=LONG, start_timeout_s=5.0)  # the fourth executor comes with the cut
    outcome = simulate(replace(slow, faults=(Fault("join", 0, -1, "cut"),)), 4)
    assert len(outcome.joint) == DECIDED
    assert next(one.event for one in outcome.records if isinstance(one, AgentRecord) and one.index == 3) == "started"
    assert set(outcome.commits[-1].contributors) == set(range(4))


@pytest.mark.parametrize("seed", range(16))
def test_random_faults_break_nothing(seed: int) -> None:
    random = Random(seed)
    faults = random_faults(random, 4, SLOW.cycles, 3.0, SLOW.deadline_s)
    at_cut = Fault(random.choice(("kill_agent", "kill_executor", "stop_agent")), random.randrange(4), -1, "cut", for_s=2.0)
    scenario = replace(
        SLOW, faults=(*faults, replace(at_cut, after_s=random.uniform(0, 0.01))), echo_s=random.choice((0.0, 2.5))
    )
    outcome = simulate(scenario, seed)
    assert (begun(outcome).shards, outcome.status) == (DECIDED, "max_cycles")
