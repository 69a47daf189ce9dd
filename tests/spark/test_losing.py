"""Losing agents and executors, on real ones: what fails, how fast, and what goes on as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from mpca.driver.events import Acknowledged, AgentBack, AgentDied, AgentsFound, ExecutorLost, ExecutorReady, HoldEnded
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Download, Part, Rediscovered, Reduce
from tests.spark.support import alive, java_pids, kill, plain_value, weighted_sum

pytestmark = pytest.mark.spark

#: From a loss to the failed order. Measured 0.2 s on idle cores; the tests may have to share theirs.
SOON_S = 3.0


def test_an_executor_killed_between_freezing_and_summing(drive, work_dir) -> None:
    """The order fails within a second; without the lost one it gives the same frozen bytes, and nobody else notices."""
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    driver.done(driver.submit(begin=driver.everyone()))
    time.sleep(0.2)  # agents take steps of 5 ms
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    lost = executors[1]
    kill(java_pids(work_dir)[lost])
    killed = time.monotonic()
    failed = driver.failed(driver.submit(reduce=driver.reduce(0, answers), freeze=driver.freeze(1)))
    assert time.monotonic() - killed < SOON_S
    assert lost in (failed.executor, *failed.unfinished)
    driver.wait(ExecutorLost, lambda event: event.executor == lost, new=False)

    del driver.places[1]
    living = [answer for answer in answers if answer.executor != lost]
    order = driver.submit(reduce=driver.reduce(0, living), freeze=driver.freeze(1))
    done = driver.done(order)
    got = driver.cluster.take_sum(order, driver.shard_bytes(0))
    expected = [
        (plain_value(driver.elements, 3, 0, one.agent, one.tau), answer.weight) for answer in living for one in answer.frozen
    ]
    assert got.tobytes() == weighted_sum(expected).tobytes()
    assert sorted(one.agent for answer in done.answers for one in answer.frozen) == [0, 2]

    found = driver.rediscover([executors[0], executors[2]])
    assert {one.agent: one.pid for said in found.values() for one in said} == {0: driver.pids[0], 2: driver.pids[2]}
    assert not alive(driver.pids[1])
    # Its replacement takes an agent, which takes part like the others.
    replacement = driver.wait(ExecutorReady, lambda event: event.executor not in executors, new=False).executor
    driver.start_agent(1, replacement, incarnation=2)
    driver.done(driver.submit(begin=[AgentRef(replacement, 1, 2)]))
    answers = driver.done(driver.submit(freeze=driver.freeze(2))).answers
    order = driver.submit(reduce=driver.reduce(2, answers))
    assert len(driver.done(order).answers) == 3


def test_an_executor_killed_while_its_agent_is_awaited(drive, work_dir) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    driver.done(driver.submit(begin=driver.everyone()))
    os.kill(driver.pids[2], signal.SIGSTOP)
    order = driver.submit(freeze=driver.freeze(0))
    time.sleep(0.5)  # until the executor waits for its agent; neither says so
    kill(java_pids(work_dir)[executors[2]])
    killed = time.monotonic()
    failed = driver.failed(order)
    assert time.monotonic() - killed < SOON_S
    assert executors[2] in (failed.executor, *failed.unfinished)
    del driver.places[2]
    # The survivors' tasks of the failed order have let go of their cores, and what they froze is what they froze.
    again = driver.done(driver.submit(freeze=driver.freeze(0)))
    assert sorted(one.agent for answer in again.answers for one in answer.frozen) == [0, 1]


def test_an_agent_killed_is_reported_with_its_exit_code(drive) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    driver.done(driver.submit(begin=driver.everyone()))
    handed_over = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    kill(driver.pids[1])
    died = driver.wait(AgentDied, new=False)
    assert (died.executor, died.agent, died.incarnation, died.pid) == (executors[1], 1, 1, driver.pids[1])
    assert died.exit_code == 128 + signal.SIGKILL
    assert driver.wait(HoldEnded, new=False).agent == 1
    # What it had handed over counts; what it is asked for now does not come.
    order = driver.submit(reduce=driver.reduce(0, handed_over), freeze=driver.freeze(1))
    done = driver.done(order)
    assert driver.cluster.take_sum(order, driver.shard_bytes(0)).size
    assert [sorted(answer.late) for answer in done.answers] == [[], [1], []]
    # Another incarnation on the same executor.
    driver.start_agent(1, executors[1], incarnation=2)
    assert driver.pids[1] != died.pid


def test_a_stopped_agent_is_late_and_comes_back(drive) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    driver.done(driver.submit(begin=driver.everyone()))
    os.kill(driver.pids[0], signal.SIGSTOP)
    began = time.monotonic()
    answers = driver.done(driver.submit(freeze=driver.freeze(0), deadline_s=1.5)).answers
    assert time.monotonic() - began < 3
    assert list(answers[0].late) == [0]
    assert answers[0].frozen == []
    order = driver.submit(reduce=driver.reduce(0, answers))
    driver.done(order)
    got = driver.cluster.take_sum(order, driver.shard_bytes(0))
    assert len(driver.reduce(0, answers).parts) == 2
    assert np.all(np.isfinite(got))
    os.kill(driver.pids[0], signal.SIGCONT)
    back = driver.wait(AgentBack, new=False)
    assert (back.executor, back.agent, back.incarnation) == (executors[0], 0, 1)
    answers = driver.done(driver.submit(freeze=driver.freeze(3))).answers
    assert [list(answer.late) for answer in answers] == [[], [], []]


def until_tasks_end(spark, count: int, of: int) -> None:
    """Until so many tasks of a stage of `of` have ended."""
    tracker, until = spark.sparkContext.statusTracker(), time.monotonic() + 30
    while time.monotonic() < until:
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        if any(one and (one.numTasks, one.numCompletedTasks) == (of, count) for one in stages):
            return
        time.sleep(0.02)
    raise AssertionError(f"not {count} of {of} tasks: {stages}")


def test_a_stopped_executor_holds_an_order_until_its_deadline_at_most(drive, spark, work_dir) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    driver.done(driver.submit(begin=driver.everyone()))
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    reduce = driver.reduce(0, answers)
    order = driver.submit(reduce=reduce)  # then all have what it pushes of its part
    driver.done(order)
    driver.cluster.take_sum(order, driver.shard_bytes(0))
    stopped = java_pids(work_dir)[executors[2]]
    os.kill(stopped, signal.SIGSTOP)
    try:
        began = time.monotonic()
        # ranges of two are others than those of three, which it has pushed
        failed = driver.failed(driver.submit(reduce=reduce, deadline_s=2, executors=executors[:2]))
        assert time.monotonic() - began < 4
        assert failed.executor == executors[2]
        order = driver.submit(reduce=reduce, deadline_s=2)
        until_tasks_end(spark, 2, of=3)  # they have its part, and only the driver waits for it
        driver.cluster.cancel(order, "no answer")
        assert driver.failed(order).unfinished == [executors[2]]
        del driver.places[2]
        living = [answer for answer in answers if answer.executor != executors[2]]
        order = driver.submit(reduce=driver.reduce(0, living))
        driver.done(order)
        driver.cluster.take_sum(order, driver.shard_bytes(0))
    finally:
        os.kill(stopped, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.quiet
def test_bytes_that_a_stopped_executor_holds_too_come_from_another(drive, work_dir) -> None:
    """Spark's own reading of broadcasts, by which tasks get their code: it asks any executor that has one."""
    driver = drive(broadcast="torrent")
    holder, reader, _ = driver.executors(3)
    driver.start_agents([holder, reader])
    driver.done(driver.submit(begin=driver.everyone()))
    vector = np.zeros(driver.shard_bytes(0) // 4, np.float32)
    broadcasts = [driver.cluster.publish(vector) for _ in range(12)]  # the driver has each too: it may be asked by chance

    def download(version: int, agent: int, timeout_s: float) -> float:
        """Seconds until it is there."""
        place = driver.places[agent]
        want = Download(broadcasts[version], 0, version, "replace", vector.nbytes, [place])
        driver.submit(downloads=[want], executors=[place.executor])
        began = time.monotonic()
        driver.wait(Acknowledged, lambda one: (one.broadcast, one.agent) == (want.broadcast, agent), timeout_s=timeout_s)
        return time.monotonic() - began

    for version in range(12):
        download(version, 0, 30)
    stopped = java_pids(work_dir)[holder]
    os.kill(stopped, signal.SIGSTOP)
    try:
        # Three tries more after the first, of ten seconds each; with Spark's own settings, of two minutes.
        took = next((s for s in (download(version, 1, 100) for version in range(12)) if s > 9), None)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert took is not None, "the one that stands still was never asked: this showed nothing"
    print(f"from one that stands still: {took:.1f} s")


def test_an_executor_that_does_not_answer_holds_no_other_answer_up(drive, work_dir) -> None:
    """Asked twice meanwhile, as a driver does for agents that are left out, it answers once when it can."""
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    stopped = java_pids(work_dir)[executors[1]]
    os.kill(stopped, signal.SIGSTOP)
    try:
        for _ in range(2):  # it stands still for as long as this takes
            driver.cluster.rediscover(executors[1:2])
            found = driver.rediscover([executors[0], executors[2]])
            assert sorted(one.agent for said in found.values() for one in said) == [0, 2]
    finally:
        os.kill(stopped, signal.SIGCONT)
    driver.wait(AgentsFound, lambda event: event.executor == executors[1], new=False)
    assert driver.rediscover(executors[1:2]) == {executors[1]: [Rediscovered(1, 1, driver.pids[1])]}
    assert len([event for event in driver.of(AgentsFound) if event.executor == executors[1]]) == 2


def test_a_holding_job_that_is_cancelled_leaves_its_agent_alone(drive, spark) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    driver.done(driver.submit(begin=driver.everyone()))
    spark.sparkContext.cancelJobGroup(f"mpca {driver.run} hold/1/1")
    ended = driver.wait(HoldEnded, new=False)
    assert (ended.agent, "cancelled" in ended.reason) == (1, True)
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    assert [one.agent for answer in answers for one in answer.frozen] == [0, 1, 2]
    # Held again: the same process.
    driver.start_agent(1, executors[1], wait=False)
    assert {one.pid for said in driver.rediscover(executors).values() for one in said} == set(driver.pids.values())


def test_a_holding_job_for_a_lost_executor_starts_nothing(drive, work_dir) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agent(0, executors[0])
    kill(java_pids(work_dir)[executors[0]])
    ended = driver.wait(HoldEnded, new=False)
    assert ended.agent == 0
    assert "gone" in ended.reason
    driver.wait(ExecutorLost, new=False)
    driver.start_agent(0, executors[0], incarnation=2, wait=False)
    ended = driver.wait(HoldEnded, lambda event: event.incarnation == 2, new=False)
    assert ended.reason == f"executor {executors[0]} is gone"


def test_an_order_over_its_time_can_be_cancelled(drive) -> None:
    driver = drive()
    driver.start_agents(driver.executors(3))
    driver.done(driver.submit(begin=driver.everyone()))
    os.kill(driver.pids[1], signal.SIGSTOP)
    order = driver.submit(freeze=driver.freeze(0))
    time.sleep(0.5)  # until the executor waits for its agent; neither says so
    began = time.monotonic()
    driver.cluster.cancel(order, "enough")
    assert "enough" in driver.failed(order).reason
    assert time.monotonic() - began < SOON_S
    os.kill(driver.pids[1], signal.SIGCONT)
    # The same yields, asked for again.
    assert len(driver.done(driver.submit(freeze=driver.freeze(0))).answers[1].frozen) == 1


def test_an_owner_killed_while_it_relays_is_passed_over(drive, work_dir) -> None:
    """Survivors get their broadcast whole, the lost owner's pieces from the driver."""
    driver = drive(elements=3_000_000)
    executors = driver.executors(3)
    driver.start_agents(executors, step_s=0.05)
    driver.done(driver.submit(begin=driver.everyone()))
    vector = np.arange(driver.shard_bytes(0) // 4, dtype=np.float32)
    broadcast = driver.cluster.publish(vector)
    os.kill(java_pids(work_dir)[executors[1]], signal.SIGSTOP)
    driver.submit(downloads=[driver.download(broadcast, 0, 1)])
    time.sleep(0.5)  # until the others wait for pieces of the one that stands still; they do not say so
    kill(java_pids(work_dir)[executors[1]])
    acknowledged = driver.acknowledged(broadcast, 2)
    assert {event.agent for event in acknowledged} == {0, 2}
    del driver.places[1]
    answers = driver.done(driver.submit(freeze=driver.freeze(0), forget_broadcasts=[broadcast])).answers
    driver.cluster.withdraw(broadcast)
    order = driver.submit(reduce=Reduce(0, 0, driver.shard_bytes(0), [Part(executors[0], 1.0)]))
    driver.done(order)
    installed = driver.cluster.take_sum(order, driver.shard_bytes(0))
    # What agent 0 made of it: ones added to every element since it was installed.
    assert [one.agent for one in answers[0].frozen] == [0]
    steps = installed[0] - vector[0]
    assert np.allclose(installed, vector + steps, rtol=1e-6)
