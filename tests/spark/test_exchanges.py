"""Exchanges that agents ask for, on real executors: first come, first served, whatever dies meanwhile."""

from __future__ import annotations

import time

import numpy as np
import pytest

from mpca.driver.events import AgentDied, AgentFinished, ExchangeArrived, ExecutorLost
from mpca.errors import JvmError
from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import StopAgent
from tests.spark.support import HandDriver, java_pids, kill, plain_value

pytestmark = pytest.mark.spark


def begin(driver: HandDriver, executors: list[str], **conf) -> None:
    driver.start_agents(executors, asks_every=5, **conf)
    driver.done(driver.submit(begin=driver.everyone()))


def arrived(driver: HandDriver, nth: int, timeout_s: float = 60.0) -> ExchangeArrived:
    """The nth exchange of the run, from 0."""
    driver.wait(ExchangeArrived, lambda _: len(driver.of(ExchangeArrived)) > nth, new=False, timeout_s=timeout_s)
    return driver.of(ExchangeArrived)[nth]


def nothing_arrives(driver: HandDriver, beyond: int) -> None:
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        driver.events += driver.cluster.poll(0.1)
    assert len(driver.of(ExchangeArrived)) == beyond


def take(driver: HandDriver, exchange: ExchangeArrived) -> np.ndarray:
    assert exchange.length == driver.shard_bytes(exchange.shard)
    return driver.cluster.take_sent(exchange.id, exchange.number, exchange.length)


def answer(driver: HandDriver, exchange: ExchangeArrived, value: float = 1.0, version: int = 1, share: float = 1.0) -> None:
    vector = np.full(exchange.length // 4, value, np.float32)
    driver.cluster.answer(exchange.id, exchange.number, vector, version, "install", share)


def server_threads(driver: HandDriver) -> list[str]:
    (here,) = [place for place in driver.cluster.inventory() if place["executor"] == "driver"]
    return [name for name in here["threads"] if name == "mpca-server"]


def test_an_agent_sends_and_installs_the_answer(drive) -> None:
    driver = drive()
    begin(driver, driver.executors(1))
    began = time.monotonic()
    first = arrived(driver, 0)
    assert (first.executor, first.id, first.number, first.shard) == (driver.places[0].executor, AgentId(0, 1), 1, 0)
    assert (first.updates, first.version, first.finite) == (5, 0, True)
    assert began - 10 < first.start < first.asked < first.arrived < time.monotonic()
    assert take(driver, first).tobytes() == plain_value(driver.elements, 3, 0, agent=0, steps=5).tobytes()
    with pytest.raises(JvmError, match="no such exchange is here: agent=0, incarnation=1, number=1"):
        take(driver, first)
    answer(driver, first, 100.0, version=7, share=0.5)
    for nth in (1, 2):  # the server's state has not moved: the same version is an answer too
        exchange = arrived(driver, nth)
        assert (exchange.number, exchange.shard, exchange.updates, exchange.version) == (nth + 1, nth, 5 * (nth + 1), 0)
        take(driver, exchange)
        answer(driver, exchange, 0.0, version=7)
    again = arrived(driver, 3)
    assert (again.number, again.shard, again.updates, again.version) == (4, 0, 15, 7)
    half = (plain_value(driver.elements, 3, 0, agent=0, steps=5) + np.float32(100)) / 2
    np.testing.assert_allclose(take(driver, again), half + 15, rtol=1e-6)
    answer(driver, again, 3.0, version=7)
    for nth in range(4, 7):
        answer(driver, arrived(driver, nth), 0.0, version=7)  # without a look at it
    assert driver.of(ExchangeArrived)[6].version == 7
    driver.done(driver.submit(stop=[StopAgent(*who, "enough") for who in driver.everyone()]))
    driver.wait(AgentFinished, new=False)


def test_first_come_first_served(drive) -> None:
    driver = drive()
    executors = driver.executors(2)
    begin(driver, executors, per_executor=2)
    counted: dict[int, int] = {}
    last = 0.0
    for nth in range(40):
        exchange = arrived(driver, nth)
        if nth < 2:
            nothing_arrives(driver, nth + 1)  # one at a time
        counted[exchange.agent] = counted.get(exchange.agent, 0) + 1
        assert (exchange.number, exchange.asked > last) == (counted[exchange.agent], True)
        last = exchange.asked
        take(driver, exchange)
        answer(driver, exchange, version=nth + 1)
    assert sorted(counted) == [0, 1, 2, 3]
    assert min(counted.values()) >= 5, "everybody has a turn"


def test_a_snapshot_waits_for_the_answer(drive) -> None:
    driver = drive()
    begin(driver, driver.executors(1))
    exchange = arrived(driver, 0)
    order = driver.submit(freeze=driver.freeze(1))
    nothing_arrives(driver, 1)
    take(driver, exchange)
    answer(driver, exchange)
    (frozen,) = driver.done(order).answers[0].frozen
    assert frozen.tau == 5


def test_a_stopped_agent_waits_no_more(drive) -> None:
    driver = drive()
    begin(driver, driver.executors(2))
    first = arrived(driver, 0)
    driver.done(driver.submit(stop=[StopAgent(*who, "enough") for who in driver.everyone()]))
    driver.wait(AgentFinished, lambda event: len(driver.of(AgentFinished)) == 2, new=False)
    take(driver, first)
    answer(driver, first)  # nobody waits for it


def test_an_agent_is_killed_in_its_exchange(drive) -> None:
    driver = drive()
    executors = driver.executors(2)
    begin(driver, executors)
    first = arrived(driver, 0)
    kill(driver.pids[first.agent])
    driver.wait(AgentDied, lambda event: event.id == first.id, new=False)
    second = arrived(driver, 1)  # it holds nobody up
    assert second.agent == 1 - first.agent
    assert take(driver, first).nbytes == first.length  # what it had sent may count
    answer(driver, first)
    answer(driver, second)
    driver.start_agent(first.agent, executors[first.agent], incarnation=2, asks_every=5)
    driver.done(driver.submit(begin=[driver.places[first.agent]]))
    nth = 2
    while (exchange := arrived(driver, nth)).agent != first.agent:
        answer(driver, exchange)
        nth += 1
    assert (exchange.incarnation, exchange.number) == (2, 1)
    assert take(driver, exchange).tobytes() == plain_value(driver.elements, 3, 0, exchange.agent, 5).tobytes()


def test_an_agent_is_killed_while_it_waits_for_its_turn(drive) -> None:
    driver = drive()
    begin(driver, driver.executors(2))
    first = arrived(driver, 0)
    time.sleep(0.5)  # until the other one stands in the queue too; nobody says so before its turn
    other = 1 - first.agent
    kill(driver.pids[other])
    driver.wait(AgentDied, lambda event: event.agent == other, new=False)
    time.sleep(0.2)  # two words go side by side: of the death, and to the server
    answer(driver, first)
    assert arrived(driver, 1).agent == first.agent
    answer(driver, driver.of(ExchangeArrived)[1])
    assert arrived(driver, 2).agent == first.agent


@pytest.mark.parametrize("whose", ["of whom is served", "of whom waits"])
def test_an_executor_is_killed_in_an_exchange(drive, work_dir, whose: str) -> None:
    driver = drive()
    executors = driver.executors(2)
    begin(driver, executors)
    first = arrived(driver, 0)
    time.sleep(0.5)  # until the other one stands in the queue too; nobody says so before its turn
    lost = first.agent if whose == "of whom is served" else 1 - first.agent
    kill(java_pids(work_dir)[executors[lost]])
    driver.wait(ExecutorLost, lambda event: event.executor == executors[lost], new=False)
    if lost == first.agent:
        second = arrived(driver, 1)
        assert second.agent == 1 - lost
        take(driver, second)
        answer(driver, second)
        answer(driver, first)
    else:
        take(driver, first)
        answer(driver, first)
    for nth in range(2 if lost == first.agent else 1, 5):
        exchange = arrived(driver, nth)
        assert exchange.agent == 1 - lost
        answer(driver, exchange)


def test_a_run_is_closed_while_agents_wait(drive) -> None:
    driver, other = drive(), drive()
    executors = driver.executors(3)
    begin(driver, executors, per_executor=2)
    exchange = arrived(driver, 0)
    take(driver, exchange)
    time.sleep(0.5)  # until others stand in the queue; nobody says so before its turn
    assert server_threads(other) == ["mpca-server"]
    began = time.monotonic()
    driver.cluster.close()
    assert time.monotonic() - began < 8
    assert server_threads(other) == []
    assert [place["blocks"] for place in other.cluster.inventory()] == [[]] * 4
