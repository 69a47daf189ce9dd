"""The cluster port on real executors: agents, orders, sums and broadcasts, by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from mpca.driver.events import AgentDied, AgentFailedEvent, AgentFinished, AgentProgress, HoldEnded, OrderFailed, Output
from mpca.errors import EnvironmentRefused, JvmError
from mpca.spark.run.session import session
from mpca.wire.orders import BY_UPDATES, EQUAL, Rediscovered, Reduce, StopAgent
from tests.spark.support import SUMS, plain_value, weighted_sum

pytestmark = pytest.mark.spark


def begin(driver, executors, **conf) -> None:
    driver.start_agents(executors, **conf)
    driver.done(driver.submit(begin=driver.everyone()))


def local_means(driver, shard: int, answers: list, weight=float) -> list[tuple[np.ndarray, float]]:
    """What each executor's part must be, from the updates that its agents say they made, which count by `weight`."""
    parts = []
    for answer in answers:
        taus = [(one, plain_value(driver.elements, driver.shards, shard, one.agent, one.tau)) for one in answer.frozen]
        assert [one.agent for one, _ in taus] == sorted(one.agent for one, _ in taus)
        part = taus[0][1] if len(taus) == 1 else weighted_sum([(value, weight(one.tau)) for one, value in taus])
        parts.append((part, answer.weight))
    return parts


@pytest.mark.parametrize(
    ("reducer", "per_executor", "weights"),
    [("ranges", 1, BY_UPDATES), ("ranges", 2, BY_UPDATES), ("ranges", 2, EQUAL), ("tree", 1, BY_UPDATES)],
)
def test_a_sum_has_the_bytes_that_numpy_computes(drive, reducer, per_executor, weights) -> None:
    driver = drive(reducer=reducer)
    executors = driver.executors(3)
    driver.start_agents(executors, per_executor=per_executor)
    driver.done(driver.submit(begin=driver.everyone()))
    time.sleep(0.3)  # agents take steps of 5 ms, and not equally many
    freeze = replace(driver.freeze(0), weights=weights)
    answers = driver.done(driver.submit(freeze=freeze)).answers
    assert [answer.executor for answer in answers] == executors
    assert all(len(answer.frozen) == per_executor and not answer.late for answer in answers)
    assert all(answer.weight == sum(freeze.weight(one.tau) for one in answer.frozen) > 0 for answer in answers)
    order = driver.submit(reduce=driver.reduce(0, answers))
    done = driver.done(order)
    room = driver.cluster.room(driver.shard_bytes(0) // 4)
    got = driver.cluster.take_sum(order, driver.shard_bytes(0), room)
    assert got is room
    assert got.tobytes() == SUMS[reducer](local_means(driver, 0, answers, freeze.weight)).tobytes()
    if reducer == "ranges":  # the driver receives each element once, whatever the number of executors
        assert done.driver_in == got.nbytes
        assert sum(answer.bytes_in for answer in done.answers) == (len(executors) - 1) * got.nbytes
    else:
        assert done.driver_in == 2 * got.nbytes
    assert done.start <= done.answers[0].reduce_start <= done.answers[0].reduce_end <= done.end + 0.01


@pytest.mark.parametrize(("reducer", "broadcast"), [("ranges", "relay"), ("tree", "torrent")])
def test_three_phases_by_hand(drive, reducer, broadcast) -> None:
    """Cycle n reduces n, downloads what n-1 summed, freezes n+1; what is installed is what was sent."""
    driver = drive(reducer=reducer, broadcast=broadcast)
    executors = driver.executors(3)
    begin(driver, executors, step_s=0.01)
    done = driver.done(driver.submit(freeze=driver.freeze(0)))
    order, published, withdrawn = None, None, []
    for cycle in range(7):
        downloads = []
        if order is not None:
            joint = driver.cluster.take_sum(order, driver.shard_bytes((cycle - 1) % 3))
            published = driver.cluster.publish(np.full_like(joint, 1000 + cycle))
            downloads = [driver.download(published, (cycle - 1) % 3, cycle)]
        order = driver.submit(
            cycle=cycle,
            downloads=downloads,
            reduce=driver.reduce(cycle, done.answers),
            freeze=driver.freeze(cycle + 1),
            forget_cycle=cycle - 1,
            forget_broadcasts=withdrawn[-1:],
        )
        done = driver.done(order)
        if published is not None:
            events = driver.acknowledged(published, 3)
            size = driver.shard_bytes((cycle - 1) % 3)
            assert sum(event.bytes_in for event in events) == 3 * size
            assert sum(event.from_driver for event in events) == size or broadcast == "torrent"
            driver.cluster.withdraw(published)
            withdrawn.append(published)
    foreign = np.zeros(driver.shard_bytes(0) // 4, np.float32)
    sums = driver.cluster.take_sum(order, driver.shard_bytes(0), foreign)
    assert not foreign.any(), "the JVM cannot write there, so the sum has an array of its own"
    # Shard 0 was replaced in cycles 1 and 4 by 1001 and 1004; since then agents only added their number plus one.
    assert np.all(sums >= 1004)
    assert np.all(sums == sums[0])


def test_a_reduction_resubmitted_gives_the_same_bytes(drive) -> None:
    driver = drive()
    begin(driver, driver.executors(3))
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    sums = []
    for _ in range(2):
        order = driver.submit(reduce=driver.reduce(0, answers))
        driver.done(order)
        sums.append(driver.cluster.take_sum(order, driver.shard_bytes(0)).tobytes())
        time.sleep(0.1)  # agents take steps meanwhile
    assert sums[0] == sums[1]


def test_what_was_frozen_stays_frozen(drive) -> None:
    driver = drive()
    begin(driver, driver.executors(3))
    first = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    time.sleep(0.2)  # agents take steps meanwhile
    again = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    assert [answer.frozen for answer in first] == [answer.frozen for answer in again]


def test_x0_is_read_before_the_first_step(drive) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    agent_0 = driver.everyone()[:1]
    answers = driver.done(driver.submit(freeze=driver.freeze(-3, agent_0))).answers
    assert [(one.agent, one.tau) for answer in answers for one in answer.frozen] == [(0, 0)]
    reduce = driver.reduce(-3, answers)
    assert reduce.parts == []  # by tau it has no weight; the driver gives it one
    order = driver.submit(reduce=Reduce(-3, 0, driver.shard_bytes(0), [_part(executors[0], 1.0)]))
    driver.done(order)
    x0 = driver.cluster.take_sum(order, driver.shard_bytes(0))
    assert x0.tobytes() == plain_value(driver.elements, 3, 0, agent=0, steps=0).tobytes()


def test_a_contribution_that_is_not_finite_is_left_out(drive) -> None:
    driver = drive()
    executors = driver.executors(3)
    for agent, executor in enumerate(executors):
        driver.start_agent(agent, executor, nan_after=1 if agent == 1 else None)
    driver.done(driver.submit(begin=driver.everyone()))
    time.sleep(0.2)  # agents take steps of 5 ms; the first makes agent 1's parameters NaN
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    assert [one.finite for answer in answers for one in answer.frozen] == [True, False, True]
    assert answers[1].weight == 0
    order = driver.submit(reduce=driver.reduce(0, answers))
    driver.done(order)
    assert np.all(np.isfinite(driver.cluster.take_sum(order, driver.shard_bytes(0))))


def test_what_agents_say_arrives_with_their_number(drive) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agent(0, executors[0], return_after=5)
    driver.start_agent(1, executors[1], fail_after=5)
    driver.start_agent(2, executors[2])
    driver.done(driver.submit(begin=driver.everyone()))
    finished = driver.wait(AgentFinished, new=False)
    assert (finished.executor, finished.agent, finished.returns) == (executors[0], 0, b"5")
    failed = driver.wait(AgentFailedEvent, new=False)
    assert (failed.agent, failed.error, failed.traceback) == (1, "ValueError: as asked", "Traceback: line 1")
    assert driver.wait(AgentProgress, lambda event: event.agent == 0, new=False).steps == 5
    driver.done(driver.submit(stop=[StopAgent(*driver.everyone()[2], "enough")]))
    assert driver.wait(AgentFinished, lambda event: event.agent == 2, new=False)
    for agent in range(3):
        driver.wait(HoldEnded, lambda event, agent=agent: event.agent == agent, new=False)
        lines = [line for event in driver.of(Output) if event.agent == agent for line in event.lines]
        assert lines == [f"plain agent {agent} says hello"]
    assert driver.of(AgentDied) == []


def test_rediscovery_names_the_living_with_their_pids(drive) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    driver.cluster.rediscover(["gone meanwhile"])
    assert driver.rediscover(executors) == {
        who.executor: [Rediscovered(*who.id, driver.pids[agent])] for agent, who in driver.places.items()
    }


def test_an_order_for_what_nobody_froze_fails_with_the_executor(drive) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agents(executors)
    order = driver.submit(reduce=Reduce(5, 2, driver.shard_bytes(2), [_part(executors[1], 1.0)]))
    failed = driver.failed(order)
    assert (failed.executor, failed.reason) == (executors[1], f"executor {executors[1]} froze nothing for cycle 5")


def test_an_order_for_an_executor_that_never_was_fails(drive) -> None:
    driver = drive()
    order = driver.submit(executors=["77"])
    assert driver.wait(OrderFailed, lambda event: event.order == order, new=False).executor == "77"


def test_jobs_are_readable_in_sparks_page(drive, spark) -> None:
    driver = drive()
    executors = driver.executors(3)
    driver.start_agent(0, executors[0])
    driver.done(driver.submit(cycle=7, executors=executors))
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    seen = {jobs.apply(i).description().get() for i in range(jobs.size()) if jobs.apply(i).description().isDefined()}
    assert {"mpca agent 0 (incarnation 1)", "mpca cycle 7"} <= seen


def test_a_run_of_the_same_name_is_refused_and_the_first_one_goes_on(drive, spark) -> None:
    driver = drive()
    begin(driver, driver.executors(2))
    with pytest.raises(JvmError, match="a run of this name is open in this session"):
        type(driver)(spark, driver.run)
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    order = driver.submit(reduce=driver.reduce(0, answers))
    driver.done(order)
    got = driver.cluster.take_sum(order, driver.shard_bytes(0))
    assert got.tobytes() == weighted_sum(local_means(driver, 0, answers)).tobytes()


def test_a_wrong_transport_is_refused(drive) -> None:
    with pytest.raises(JvmError, match="reducer = trees: one of ranges, tree"):
        drive(reducer="trees")


def test_a_second_session_in_this_process_is_refused(spark, tmp_path) -> None:
    with pytest.raises(EnvironmentRefused, match="has a Spark session already"), session(tmp_path, executors=1):
        pass


def _part(executor: str, weight: float):
    from mpca.wire.orders import Part

    return Part(executor, weight)
