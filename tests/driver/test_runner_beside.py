"""What the driver's shell does beside cycles: joint models for joiners, evaluations, backups, the record of a pause, status.

The cluster behind its port is a few lines here: orders are answered by hand, and a sum is what the test says it is.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from mpca import methods
from mpca.api.finish import back_up_last, result_of, summarise
from mpca.clock import ManualClock
from mpca.driver.cluster import AgentSpec, Outgoing
from mpca.driver.events import AgentDied, AgentHello, ClusterEvent, ExecutorReady, ReadLocal
from mpca.driver.instructions import End
from mpca.driver.objectives import DumpModel, Evaluate, Goals, KeepBest, MaxTime, Target
from mpca.driver.runner import LOCAL_EVERY, Runner
from mpca.driver.status import RunStatus
from mpca.records import BackupRecord, CycleRecord, EvaluationRecord, MemorySink, PauseRecord
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Order
from tests.driver.support import Machine, hello, progress

#: Seconds of the run before this attempt: `t` is so much more than the machine's time.
EARLIER_T = 31.0
COUNT = 123456789012345  # the local tensor, an int64


class Cluster:
    """Keeps what it is told. A sum of shard s is `given[s]`."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.published: dict[int, np.ndarray] = {}
        self.given: dict[int, list[float]] = {}

    def submit(self, order: Order) -> None:
        self.orders.append(order)

    def room(self, elements: int) -> np.ndarray:
        return np.empty(elements, np.float32)

    def take_sum(self, order: int, length: int, into: np.ndarray | None = None) -> np.ndarray:
        (one,) = (one for one in self.orders if one.order == order)
        assert one.reduce is not None
        assert one.reduce.length == length
        return np.float32(self.given[one.reduce.shard])

    def publish(self, vector: np.ndarray, joint: Outgoing | None = None) -> int:
        number = 100 + len(self.published)
        self.published[number] = vector.copy()
        return number

    def start_agent(self, who: AgentRef, spec: AgentSpec) -> None: ...
    def cancel(self, order: int, reason: str) -> None: ...
    def withdraw(self, broadcast: int) -> None: ...
    def rediscover(self, executors: list[str]) -> None: ...
    def close(self) -> None: ...
    def poll(self, timeout_s: float) -> list[ClusterEvent]:
        return []


@dataclass
class Evaluation:
    cycle: int
    values: dict[str, float]
    seconds: float = 0.5


class Evaluator:
    """Keeps what it is to evaluate: the cycle, the vector and the local tensor as they were then."""

    def __init__(self) -> None:
        self.busy = False
        self.asked: list[tuple[int, list[float], int]] = []
        self.done: list[Evaluation] = []

    def submit(self, cycle: int, joint: Any) -> None:
        self.asked.append((cycle, joint.vector().tolist(), count_of(joint)))

    def poll(self) -> list[Evaluation]:
        done, self.done = self.done, []
        return done

    def answer(self, error: float) -> None:
        """To what was asked first."""
        self.done.append(Evaluation(self.asked[0][0], {"error": error}))

    def close(self) -> None: ...


class Writer:
    """Keeps what it is to write, as `Evaluator` does."""

    def __init__(self) -> None:
        self.busy = False
        self.asked: list[tuple[int, list[float], int]] = []
        self.done: list[dict[str, Any]] = []

    def state(self, joint: Any, cycle: int, progress: dict[str, Any], data: dict[str, Any]) -> tuple[int, list[float], int]:
        return cycle, joint.vector().tolist(), count_of(joint)

    def submit(self, state: tuple[int, list[float], int]) -> None:
        self.asked.append(state)

    def poll(self) -> list[dict[str, Any]]:
        done, self.done = self.done, []
        return done

    def close(self, timeout_s: float) -> None: ...


def count_of(joint: Any) -> int:
    return int.from_bytes(joint.layout.local["n"][2], "little") if joint.layout.local else 0


def words(count: int) -> list[float]:
    """An int64 on its way: sixteen bits an element, the lowest first."""
    return [float(count >> shift & 0xFFFF) for shift in (0, 16, 32, 48)]


class Run:
    """A run of two agents with three shards of two parameters, up to its first cycle; with `local`, an int64 in two shards."""

    def __init__(self, goals: Goals, local: bool = False, writer: Any = None, **shape: Any) -> None:
        self.hand, self.clock, self.cluster, self.records = (
            Machine(2, goals=goals, **shape),
            ManualClock(),
            Cluster(),
            MemorySink(),
        )
        self.evaluator, self.writer, self.seen, self.local = Evaluator(), writer or Writer(), [], local
        self.answered = 0  # the newest order that was
        self.cluster.given = {shard: [float(shard), float(shard)] for shard in range(3)}
        self.count(COUNT)
        self.runner = Runner(
            self.hand.machine,
            self.cluster,
            methods.from_dict({"name": "mpca"}),
            AgentSpec("python", {}, {}),
            self.records,
            self.clock,
            evaluator=self.evaluator,
            backups=self.writer,
            on_status=self.seen.append,
            earlier_t=EARLIER_T,
        )
        for agent in range(2):
            self.runner.step([ExecutorReady(f"e{agent}", f"host{agent}", 2)])
        for agent in range(2):
            self.runner.step([self.greeting(agent)])
        while self.cluster.orders[-1].description != "begin":
            self.answer(tau=0)
        self.answer()
        for agent in range(2):
            self.runner.step([progress(agent)])

    def greeting(self, agent: int, incarnation: int = 0) -> AgentHello:
        one = hello(agent, incarnation)
        if not self.local:
            return one
        return replace(one, hello=replace(one.hello, bounds=[0, 2, 4, 6, 9, 10], local={"n": ["int64", [], 8]}))

    def count(self, value: int) -> None:
        """What the agents' local tensor is from now on."""
        self.cluster.given |= {3: words(value)[:3], 4: words(value)[3:]}

    @property
    def order(self) -> Order:
        return self.cluster.orders[-1]

    def answer(self, tau: int = 4) -> None:
        """The newest order ends well, with everything that it brings."""
        order = self.order
        assert order.order > self.answered, "nothing is asked for"
        self.answered = order.order
        for ack in self.hand.acks(order):
            self.runner.step([ack])
        self.runner.step([self.hand.done(order, tau)])

    def cycles(self, count: int) -> None:
        until = self.hand.machine.cycle + count
        while self.hand.machine.cycle < until:
            self.answer()

    def at(self, now: float) -> None:
        self.clock.set(now)
        self.runner.beside()

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.records.records if isinstance(one, kind)]


# ---- joint models for joiners ------------------------------------------------------------------------------------------


def test_a_joiner_is_sent_every_shard_as_it_is_and_the_local_tensors_behind_them() -> None:
    run = Run(Goals(), local=True)
    run.cluster.given |= {0: [10.0, 20.0]}  # what cycle 0 makes of shard 0: at the first exchange the mean itself
    run.cycles(1)
    run.runner.step([AgentDied("e1", 1, 0, 101, 137, "")])
    run.runner.step([run.greeting(1, incarnation=1)])
    run.cycles(2)
    joined = {one.shard: one for order in run.cluster.orders for one in order.downloads if one.mode == "replace"}
    assert sorted(joined) == [0, 1, 2, 3, 4]
    assert all(one.agents == [AgentRef("e1", 1, 1)] for one in joined.values())
    sent = {shard: run.cluster.published[one.broadcast] for shard, one in joined.items()}
    assert {shard: part.tolist() for shard, part in sent.items()} == {
        0: [10.0, 20.0],
        1: [1.0, 1.0],
        2: [2.0, 2.0],
        3: words(COUNT)[:3],
        4: words(COUNT)[3:],
    }
    assert {shard: one.length for shard, one in joined.items()} == {0: 8, 1: 8, 2: 8, 3: 12, 4: 4}
    assert [joined[shard].version for shard in (2, 3, 4)] == [0, 0, 0]
    assert joined[0].version == 1


def test_how_far_the_joint_model_moved_is_a_measure_of_the_norm_limit() -> None:
    """The others rest. Each shard of the joint model moved by 50 at its first exchange, (30, 40) from (0, 0) or nearly so, and
    ten times that is no stray; a hundred times is."""
    run = Run(Goals(), norm_limit=10.0)
    run.cluster.given = {shard: [30.0, 40.0] for shard in range(3)}
    run.cycles(3)
    run.hand.moved = {0: 1e-3, 1: 450.0}
    run.cycles(3)
    run.hand.moved = {0: 1e-3, 1: 5000.0}
    run.cycles(3)
    out = [one.cycle for one in run.of(CycleRecord) if 1 in one.left_out]
    assert out
    assert min(out) > 5


# ---- pauses ----------------------------------------------------------------------------------------------------------


def test_a_pause_is_recorded_in_seconds_of_the_run_and_shown_while_it_lasts() -> None:
    run = Run(Goals(), min_agents=2)
    run.clock.set(7.0)
    run.runner.step([AgentDied("e1", 1, 0, 101, 137, "")])
    assert run.of(PauseRecord) == [], "the order that is out goes on"
    run.clock.set(9.0)
    run.answer()
    why = "1 of 2 agents alive, min_agents=2"
    assert run.of(PauseRecord) == [PauseRecord(9.0 + EARLIER_T, 9.0 + EARLIER_T, None, why)]
    shown = run.runner.status()
    assert (shown.state, shown.reason, shown.seconds) == ("paused", why, 9.0 + EARLIER_T)
    run.runner.step([run.greeting(1, incarnation=1)])
    run.clock.set(12.5)
    run.answer()
    assert run.of(PauseRecord)[1:] == [PauseRecord(12.5 + EARLIER_T, 9.0 + EARLIER_T, 12.5 + EARLIER_T, why)]
    shown = run.runner.status()
    assert (shown.state, shown.reason) == ("training", "")


# ---- evaluations and backups -------------------------------------------------------------------------------------------


def test_an_evaluation_is_asked_for_when_it_is_due_and_the_evaluator_is_free_and_there_is_a_new_cycle() -> None:
    run = Run(Goals.of([Evaluate(lambda state: {}, every="2s")]))
    run.at(1.0)
    assert [cycle for cycle, _, _ in run.evaluator.asked] == [0]
    run.at(3.5)
    assert len(run.evaluator.asked) == 1, "nothing new to evaluate"
    run.cycles(2)
    run.evaluator.busy = True
    run.at(4.0)
    assert len(run.evaluator.asked) == 1, "busy"
    run.evaluator.busy = False
    run.at(4.5)
    run.cycles(1)
    run.at(6.0)
    assert len(run.evaluator.asked) == 2, "two seconds after the one before, and no sooner"
    run.at(6.5)
    assert [cycle for cycle, _, _ in run.evaluator.asked] == [0, 2, 3]


def reading(run: Run) -> bool:
    return run.order.description.startswith(("freeze local", "read local"))


def read(run: Run, seconds: float) -> None:
    """The read of local tensors that the newest order begins, in so much time."""
    assert reading(run)
    run.clock.advance(seconds)
    while reading(run):
        run.answer(tau=0)


def test_an_evaluation_takes_local_tensors_as_they_are_and_older_ones_while_reading_them_again_would_cost_too_much() -> None:
    run = Run(Goals.of([Evaluate(lambda state: {}, every="1s")]), local=True)
    run.answer()
    run.count(77)
    run.at(1.0)
    assert run.evaluator.asked == [], "they are read first"
    run.answer()
    read(run, seconds=0.5)
    run.at(1.5)
    assert [count for _, _, count in run.evaluator.asked] == [77]
    run.count(88)
    again = 1.5 + LOCAL_EVERY * 0.5  # a twentieth of the time at most goes into reading
    assert again == 11.5
    for now in (4.0, 11.0):
        run.cycles(1)
        run.at(now)
    assert not reading(run)
    assert [count for _, _, count in run.evaluator.asked] == [77, 77, 77]
    run.cycles(1)
    run.at(12.0)
    run.answer()
    read(run, seconds=0.1)
    run.at(12.5)
    assert [count for _, _, count in run.evaluator.asked] == [77, 77, 77, 88]


def test_a_backup_never_takes_older_local_tensors_than_an_agent_has() -> None:
    run = Run(Goals.of([DumpModel(interval="2s")]), local=True)
    run.answer()
    for number, now in enumerate((1.0, 2.0, 5.0, 8.0)):
        run.count(number)
        run.at(now)
        if now < 2.0:
            assert not reading(run), "not due"
            continue
        run.answer()
        read(run, seconds=0.5)
        run.at(now + 1.0)
    assert [count for _, _, count in run.writer.asked] == [1, 2, 3]


def test_a_backup_is_asked_for_when_it_is_due_and_the_one_before_has_ended() -> None:
    run = Run(Goals.of([DumpModel(interval="2s")]))
    run.at(1.9)
    assert run.writer.asked == []
    run.at(2.0)
    run.cycles(1)
    run.at(3.9)
    assert [cycle for cycle, _, _ in run.writer.asked] == [0]
    run.writer.busy = True
    run.at(4.5)
    assert len(run.writer.asked) == 1
    run.writer.busy = False
    run.at(5.0)
    assert [cycle for cycle, _, _ in run.writer.asked] == [0, 1]
    said = {"path": "/backups/one", "cycle": 1, "bytes": 9, "seconds": 0.5, "ok": True, "reason": None}
    run.writer.done = [said]
    run.at(5.25)
    assert run.of(BackupRecord) == [BackupRecord(5.25 + EARLIER_T, **said)]
    assert run.runner.tally.backups == 1


# ---- objectives and status ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goals", "then", "status", "kept"),
    [
        (
            [Target("error", at_most=0.1)],
            lambda run: run.evaluator.done.append(Evaluation(run.evaluator.asked[0][0], {"error": 0.1})),
            "reached",
            True,
        ),
        ([MaxTime("60s")], lambda run: run.clock.advance(100.0), "max_time", False),
    ],
)
def test_the_result_is_the_model_that_reached_the_target_and_otherwise_the_last_one(
    goals: list[Any], then: Callable[[Run], None], status: str, kept: bool
) -> None:
    run = Run(Goals.of([Evaluate(lambda state: {}), *goals]))
    run.cycles(3)
    run.at(1.0)
    (asked,) = run.evaluator.asked
    run.cluster.given |= {0: [10.0, 20.0]}
    run.cycles(3)
    then(run)
    run.at(run.clock.now() + 1.0)
    assert run.hand.machine.run.ending is not None
    assert run.hand.machine.run.ending.status == status
    assert (run.runner.reached is not None) is kept
    if run.runner.reached is not None:
        assert np.concatenate(run.runner.reached.x).tolist() == asked[1]
        assert run.runner.joint is not None
        assert run.runner.joint.vector().tolist() != asked[1], "training went on meanwhile"
        assert [(one.error, one.cycle) for one in run.of(EvaluationRecord)] == [(0.1, asked[0])]


def test_a_model_that_reached_nothing_is_kept_no_longer_than_its_evaluation() -> None:
    run = Run(Goals.of([Evaluate(lambda state: {}), Target("error", at_most=0.1)]))
    run.cycles(3)
    run.at(1.0)
    assert run.runner.joint is not None
    there = weakref.ref(run.runner.joint.state(0).x)
    run.cycles(3)
    gc.collect()
    assert there() is not None, "it is being evaluated"
    run.evaluator.done.append(Evaluation(run.evaluator.asked[0][0], {"error": 0.5}))
    run.at(1.5)
    gc.collect()
    assert there() is None


def kept_best() -> tuple[Run, list[float], list[float]]:
    """A run that has ended, with the best model by f1 and the newest one."""
    run = Run(Goals.of([Evaluate(lambda state: {}, every="1s"), KeepBest("f1", mode="max")]))
    seen = []
    for n, f1 in enumerate((0.9, 0.5, 0.7, 0.7, 0.6)):  # the first is of x_0
        run.at(1.0 + 2 * n)
        seen.append(run.evaluator.asked[-1])
        run.evaluator.done.append(Evaluation(seen[-1][0], {"error": 1 - f1, "f1": f1}))
        run.cluster.given |= {shard: [10.0 * n + shard] * 2 for shard in range(3)}
        run.cycles(3)
    run.at(20.0)
    assert [one.metrics["f1"] for one in run.of(EvaluationRecord)] == [0.9, 0.5, 0.7, 0.7, 0.6]
    assert run.runner.reached is None
    assert run.runner.joint is not None
    return run, seen[2][1], run.runner.joint.vector().tolist()


def test_the_best_model_is_kept_and_becomes_the_result() -> None:
    run, best, _ = kept_best()
    data, state, values = result_of(run.runner)
    assert values == {"error": pytest.approx(0.3), "f1": 0.7}
    assert np.concatenate([part.ravel() for part in state.values()]).tolist() == best
    assert data is not None
    assert np.concatenate([part.ravel() for part in load(data).values()]).tolist() == best


def test_the_last_backup_is_of_the_newest_model_whatever_the_result_is() -> None:
    """A run that was interrupted goes on from there. From the best, all training since would be lost."""
    run, best, newest = kept_best()
    run.runner.stop("interrupted", "SIGINT")
    back_up_last(run.runner, run.writer, 0.0, lambda: True, lambda line: None)  # type: ignore[arg-type]
    assert newest != best
    assert run.writer.asked == [(run.hand.machine.cycle, newest, 0)]


def test_the_seconds_to_a_target_are_those_of_training_and_x0_reaches_none() -> None:
    run = Run(Goals.of([Evaluate(lambda state: {}, every="1s"), Target("error", at_most=0.95)]))
    for now, cycles in ((1.0, 0), (4.0, 3)):
        run.cycles(cycles)
        run.at(now)
        run.evaluator.answer(0.9)
        run.evaluator.asked.clear()
        run.at(now + 0.5)
    ending, began = run.hand.machine.run.ending, run.hand.machine.began
    assert ending is not None
    assert began is not None
    assert [(one.cycle, one.t) for one in run.of(EvaluationRecord)] == [(0, 1.5 + EARLIER_T), (3, 4.5 + EARLIER_T)]
    summary = summarise(run.runner, End(ending.status, ending.reason), 0, None, {}, None, {})
    assert (summary.status, summary.seconds_to_target) == ("reached", 4.5 - began)


def test_the_status_is_shown_at_the_first_look_half_a_second_after_the_one_before() -> None:
    run = Run(Goals())
    shown: list[float] = []
    for tick in range(8):
        before = len(run.seen)
        run.at(0.3 * tick)
        shown += [0.3 * tick] * (len(run.seen) - before)
    assert shown == pytest.approx([0.0, 0.6, 1.2, 1.8])
    last: RunStatus = run.seen[-1]
    assert last.seconds == pytest.approx(1.8 + EARLIER_T)


def test_a_read_that_nobody_asked_for_changes_nothing_of_the_exchange() -> None:
    run = Run(Goals(), local=True)
    run.answer()
    run.runner.step([ReadLocal()])
    run.answer()
    read(run, seconds=0.1)
    assert run.order.description == "cycle 1: reduce shard 1"
