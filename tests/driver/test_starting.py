"""The start of a run by event lists: hellos, x_0, what ends the run before its first cycle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpca.driver.events import AgentDied, AgentFinished, ExecutorReady, OrderFailed, StopRequested, Tick
from mpca.driver.failures import DEADLINE
from mpca.driver.instructions import AdoptInitial, StartAgent, Write
from mpca.driver.states import RunState
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Download, Freeze, Part, Reduce
from tests.driver.support import E0, E1, Machine, hello, order_of, progress, reducing, written


def test_an_executor_gets_an_agent_at_once() -> None:
    assert Machine().tell(ExecutorReady("e0", "host0", 2)) == [StartAgent(AgentRef("e0", 0, 0))]


def test_x0_is_read_from_the_first_agent_shard_by_shard_with_weight_one() -> None:
    machine = Machine()
    out = machine.started()
    freezes, reduces = [], []
    while order_of(out).description != "begin":
        order = order_of(out)
        freezes += [order.freeze] if order.freeze else []
        reduces += [order.reduce] if order.reduce else []
        out = machine.run(machine.done(order, tau=0))
    assert freezes == [Freeze(cycle, cycle + 3, [E0]) for cycle in (-3, -2, -1)]
    assert reduces == [Reduce(cycle, cycle + 3, 8, [Part("e0", 1.0)]) for cycle in (-3, -2, -1)]
    assert order_of(out).begin == [E0, E1]
    assert machine.sums == 0


def test_the_sum_of_x0_may_take_as_long_as_the_start_and_its_snapshot_as_long_as_any() -> None:
    """A third of a large model, over two slow links one after the other."""
    machine = Machine()
    freeze = order_of(machine.started())
    assert freeze.deadline == 5.0
    assert order_of(machine.run(machine.done(freeze, tau=0))).deadline == 60.0


def test_x0_that_takes_too_long_twice_ends_the_run_with_what_to_raise() -> None:
    machine = Machine()
    summing = order_of(machine.run(machine.done(order_of(machine.started()), tau=0)))
    why = "deadline passed while pushing the sum of cycle -3"
    machine.run(OrderFailed(summing.order, "e1", why, [], damages=False))
    summing = order_of(machine.tell(Tick(), at=machine.now + 2.0))
    machine.run(OrderFailed(summing.order, "e1", why, [], damages=False))
    machine.tell(Tick(), at=machine.now + 2.0)
    assert machine.machine.state is RunState.STOPPING
    newest = machine.machine.run.story.lines()[-1]
    assert f"the reading of x_0 failed 2 times: {why}; if links are slow" in newest
    assert "raise cluster.start_timeout=60s" in newest


def test_executors_say_of_an_order_that_took_too_long_what_the_driver_looks_for() -> None:
    waits = Path(__file__).parents[2] / "jvm" / "src" / "main" / "java" / "org" / "mpca" / "rdd" / "Waits.java"
    assert f'"{DEADLINE} while "' in waits.read_text(encoding="utf-8")


def test_x0_is_of_one_agent_alone_though_the_first_source_dies_while_its_sum_is_made() -> None:
    machine = Machine(agents=2)
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0, x0="one"))
    out = machine.run(hello(1, x0="other"))
    for _ in range(3):  # shard 0 is frozen and summed, shard 1 is frozen
        out = machine.run(machine.done(order_of(out), tau=0))
    summing = order_of(out)
    assert summing.reduce is not None
    machine.run(AgentDied("e0", 0, 0, 100, 137, ""))
    out = machine.run(machine.done(summing, tau=0))
    assert not [one for one in out if isinstance(one, AdoptInitial)], "of an agent that is not the source any more"
    again = order_of(out)
    assert again.freeze is not None
    assert (again.freeze.shard, again.freeze.agents) == (0, [AgentRef("e1", 1, 0)])


def test_an_agent_with_another_x0_takes_the_joint_model_before_it_begins() -> None:
    machine = Machine()
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    out = machine.run(hello(1, x0="another"))
    while order_of(out).description.startswith("read"):
        out = machine.run(machine.done(order_of(out), tau=0))
    order = order_of(out)
    assert order.begin == [E0]
    assert order.downloads == [Download(900 + shard, shard, 1, "replace", 8, [E1]) for shard in range(3)]


def test_another_model_ends_the_run_and_names_the_first_difference() -> None:
    machine = Machine()
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    machine.run(hello(1, layout=[["weight", [7], "parameter", 0]]))
    assert machine.machine.state == "STOPPING"
    assert machine.machine.run.ending is not None
    assert "agent 0 has weight [6], agent 1 has weight [7]" in machine.machine.run.ending.reason
    assert machine.machine.run.ending.final, "the train function would build them again"


def test_other_bounds_of_the_same_tensors_end_the_run_too() -> None:
    machine = Machine()
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    other = hello(1)
    machine.run(replace(other, hello=replace(other.hello, bounds=[0, 1, 4, 6])))
    assert machine.machine.state == "STOPPING"
    assert machine.machine.run.ending is not None
    assert machine.machine.run.ending.final


def test_too_few_hellos_in_time_end_the_run() -> None:
    machine = Machine(agents=3, min_agents=2)
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(hello(0))
    assert machine.tell(Tick(), at=59.0) == []
    out = machine.tell(Tick(), at=60.0)
    assert order_of(out).stop[0][:3] == E0
    assert machine.machine.run.ending is not None
    assert (machine.machine.run.ending.status, machine.machine.run.ending.final) == ("failed", False)
    assert "1/3 agents called mpca.attach within cluster.start_timeout=60s" in machine.machine.run.ending.reason


def test_a_function_that_returns_without_attach_ends_the_run_when_it_does() -> None:
    machine = Machine(agents=2)
    for executor in ("e0", "e1"):
        machine.run(ExecutorReady(executor, "host", 2))
    end = machine.run(AgentFinished("e1", 1, 0, b""))[-1]
    assert (end.status, end.final) == ("failed", True)
    assert end.reason == (
        "agent 1 (executor e1): the train function returned without mpca.attach; "
        "call mpca.attach(model, optimizer) when both are made, before the loop"
    )


def test_the_start_is_given_up_with_a_word_on_attach_when_processes_run_and_on_logs_when_none_does() -> None:
    machine = Machine(agents=2)
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.tell(Tick(), at=60.0)
    assert "0/2 agents called mpca.attach" in machine.machine.run.ending.reason
    assert "1 were started and have not: is it called, before the loop?" in machine.machine.run.ending.reason
    nobody = Machine(agents=2)
    nobody.tell(Tick(), at=60.0)
    assert "look at the logs of executors, or raise cluster.start_timeout" in nobody.machine.run.ending.reason


def test_a_silent_agent_is_told_of_a_minute_after_its_last_answer() -> None:
    machine = Machine(agents=2)
    out = reducing(machine)
    machine.now = 50.0
    out = machine.cycle(out)  # both hand a yield over
    machine.late = {1: "no answer before the deadline"}
    machine.run(machine.done(order_of(out)))
    assert machine.machine.run.table.agents[1].state == "LATE"

    def silent(at: float) -> list[tuple[int, str]]:
        said = written(machine.tell(Tick(), at=at), "agent")
        return [(one["index"], one["reason"]) for one in said if one["event"] == "silent"]

    assert silent(109.9) == []
    assert silent(110.0) == [(1, "has taken no optimizer step for 1m00s")]


def test_training_is_counted_from_when_all_agents_of_the_start_have_taken_an_update() -> None:
    machine = Machine(agents=3)
    out = machine.started()
    while order_of(out).description != "begin":
        out = machine.run(machine.done(order_of(out), tau=0))
    machine.run(machine.done(order_of(out)))
    for agent, at in ((0, 2.0), (2, 9.0)):
        assert machine.tell(progress(agent), at=at) == []
        assert machine.machine.began is None
    out = machine.tell(progress(1), at=20.0)
    assert machine.machine.began == 20.0
    assert [one.fields for one in out if isinstance(one, Write) and one.kind == "begin"] == [{"agents": 3}]
    for _ in range(3):
        machine.now += 1.0
        out = machine.cycle(out)
        assert not written(out, "begin")
    assert machine.machine.began == 20.0


@pytest.mark.parametrize("trains", [[0], []])
def test_training_is_counted_from_the_start_timeout_when_somebody_does_not_begin(trains: list[int]) -> None:
    machine = Machine(agents=3)
    out = machine.started()
    while order_of(out).description != "begin":
        out = machine.run(machine.done(order_of(out), tau=0))
    machine.run(machine.done(order_of(out)))
    for agent in trains:
        machine.run(progress(agent))
    assert machine.tell(Tick(), at=59.9) == []
    out = machine.tell(Tick(), at=60.0)
    assert machine.machine.began == 60.0
    assert written(out, "begin") == [{"agents": len(trains)}]


@pytest.mark.parametrize(("cycles", "status"), [(0, "failed"), (1, "max_time")])
def test_a_limit_that_is_met_before_the_first_commit_is_no_success(cycles: int, status: str) -> None:
    machine = Machine()
    out = machine.training()
    for _ in range(cycles + 1):  # the freeze of cycle 0, and its sum
        out = machine.cycle(out)
    machine.tell(OrderFailed(order_of(out).order, "x", "e0", []))
    machine.run(StopRequested("max_time", "5 s of training"))
    machine.tell(Tick(), at=machine.now + 3.0)
    machine.run(Tick())
    machine.tell(Tick(), at=machine.now + 400.0)  # nobody says a word: after `cluster.finish_timeout` nobody is waited for
    assert machine.machine.ended is not None
    assert machine.machine.ended.status == status
    assert any(machine.machine.exchange.versions) == bool(cycles)
    assert "5 s of training" in machine.machine.ended.reason


def dies_three_times(machine: Machine, executor: str, agent: int) -> list[object]:
    out: list[object] = []
    for incarnation in range(3):
        out = machine.run(AgentDied(executor, agent, incarnation, 0, 3, "ImportError: libcudart.so.12"))
    return out


def test_an_executor_on_which_nothing_starts_is_left_empty_where_others_have_room() -> None:
    machine = Machine(agents=2, per_executor=2, min_agents=2)
    for executor in ("e0", "e1"):
        machine.run(ExecutorReady(executor, f"host-{executor}", 4))
    assert dies_three_times(machine, "e0", 1)[-1] == StartAgent(AgentRef("e1", 1, 3))  # both had begun on e0, which came first
    assert machine.machine.run.ending is None


def test_the_start_ends_with_the_place_when_too_few_agents_could_start() -> None:
    machine = Machine(agents=2, min_agents=2)
    for executor in ("e0", "e1"):
        machine.run(ExecutorReady(executor, f"host-{executor}", 2))
    dies_three_times(machine, "e1", 1)
    ending = machine.machine.run.ending
    assert ending is not None
    assert ending.reason.startswith("agent 1 on host host-e1 (executor e1) cannot start: exit code 3; ")
    assert ending.reason.splitlines()[-1] == "ImportError: libcudart.so.12"


def test_executors_that_have_yet_to_come_are_waited_for_and_the_deaths_are_told_when_they_do_not() -> None:
    machine = Machine(agents=2, min_agents=1)
    machine.run(ExecutorReady("e0", "host-e0", 2))
    dies_three_times(machine, "e0", 0)
    assert machine.machine.run.ending is None, "the other one may be well"
    machine.tell(Tick(), at=60.0)
    ending = machine.machine.run.ending
    assert ending is not None
    assert "agent 0 was lost: exit code 3" in ending.reason
    assert "1 executors are there and min_agents=1" in ending.reason


def test_a_run_begins_on_the_executor_that_comes_after_one_on_which_nothing_starts() -> None:
    machine = Machine(agents=2, min_agents=1)
    machine.run(ExecutorReady("e0", "host-e0", 2))
    dies_three_times(machine, "e0", 0)
    assert machine.run(ExecutorReady("e1", "host-e1", 2)) == [StartAgent(AgentRef("e1", 0, 3))]
    assert machine.machine.run.ending is None
