"""Exchanges over a wire that damages bytes or keeps them back: ``python -m tests.spark.damaged WORK_DIR``.

Runs in a network namespace. One session of three executors; each case is an exchange of its own, and prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from mpca.driver.events import ExchangeArrived, ExecutorDamages, OrderDone, OrderFailed
from mpca.spark.run.session import session
from mpca.wire.orders import Part, Reduce
from tests.spark.plain_agent import initial
from tests.spark.support import HandDriver, java_pids
from tests.spark.wire_proxy import FOREVER, OUT, TO, WireProxy

MIB = 1 << 20
#: A shard of 800 KB: chunks of 33 KB.
ELEMENTS = 600_000
#: A port, a direction, how many frames.
Arm = tuple[int, str, int]


class Bench:
    """The session, its proxy, and agents that stand still at x_0, so that every sum is known."""

    def __init__(self, spark: Any, work_dir: str) -> None:
        self._spark = spark
        with HandDriver(spark, "probe") as probe:
            self.executors = probe.executors(3)
        pids = java_pids(Path(work_dir))
        #: Block manager of each executor, and the driver's: the one port that each listens at and that Spark tells of.
        known = [int(str(one).rpartition(":")[2]) for one in self._addresses()]
        self.ports = {name: next(p for p in _listening(pids[name]) if p in known) for name in self.executors}
        self.driver = next(port for port in known if port not in self.ports.values())
        owners = {port: pids[name] for name, port in self.ports.items()}
        owners[self.driver] = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        self.proxy = WireProxy(known, owners)
        #: What every agent has of shard 0; x_0 to begin with.
        self.now = initial(ELEMENTS)[: ELEMENTS // 3]
        self._cycles = 0

    def _addresses(self) -> list[str]:
        memory = self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keys().toSeq()
        return [memory.apply(index) for index in range(memory.size())]

    def say(self, case: str, driver: HandDriver, arms: list[Arm], play: Any) -> None:
        before = self.proxy.done.copy()
        said = play(self, driver, arms)
        for port, direction, _ in arms:
            self.proxy.arm(port, direction, 0)
        fired = sum((self.proxy.done - before).values())
        print(json.dumps({"case": case, "fired": fired, **said}), flush=True)

    def cycle(self) -> int:
        """The next one of shard 0."""
        self._cycles += 3
        return self._cycles

    def arm(self, arms: list[Arm]) -> None:
        for port, direction, times in arms:
            self.proxy.arm(port, direction, times)


def _listening(pid: int) -> list[int]:
    return [one.laddr.port for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]


def reduced(bench: Bench, driver: HandDriver, arms: list[Arm], only: str | None = None) -> dict[str, Any]:
    """The mean of what the agents have, each with weight 1, or what that of one executor has."""
    cycle = bench.cycle()
    bench.arm(arms)  # parts go to who sums them when they are frozen
    driver.done(driver.submit(cycle=cycle, freeze=driver.freeze(cycle)))
    names = [only] if only else bench.executors
    reduce = Reduce(cycle, 0, driver.shard_bytes(0), [Part(name, 1.0) for name in names])
    order = driver.submit(cycle=cycle, executors=names, reduce=reduce)
    ended = driver.wait((OrderDone, OrderFailed), lambda one: one.order == order, new=False)
    if isinstance(ended, OrderFailed):
        return {"failed": ended.executor, "damages": ended.damages, "reason": ended.reason}
    got = driver.cluster.take_sum(order, driver.shard_bytes(0))
    # alike everywhere, whatever was exchanged before; a third three times is not exactly one
    return {"right": bool(np.allclose(got, bench.now, rtol=1e-6, atol=0))}


def not_pushed(bench: Bench, driver: HandDriver, arms: list[Arm]) -> dict[str, Any]:
    """Three sums: what one executor pushes of its parts comes to none of the others in the first two."""
    ((opener, _, _),) = arms
    others = [port for port in bench.ports.values() if port != opener]
    right, took = [], []
    for ways in (others, others, []):
        bench.proxy.keep_back(opener, ways)
        begun = time.monotonic()
        right.append(reduced(bench, driver, [])["right"])
        took.append(time.monotonic() - begun)
    return {"right": right, "took": took}


def downloaded(bench: Bench, driver: HandDriver, arms: list[Arm]) -> dict[str, Any]:
    """A vector goes out to all, and is read back from each."""
    bench.now = sent = np.random.default_rng(bench.cycle()).standard_normal(driver.shard_bytes(0) // 4, dtype=np.float32)
    bench.arm(arms)
    published = driver.cluster.publish(sent)
    version = bench.cycle()
    driver.done(driver.submit(downloads=[driver.download(published, 0, version)]))
    driver.acknowledged(published, 3)
    told = {event.executor for event in driver.of(ExecutorDamages)}
    for port, direction, _ in arms:
        bench.proxy.arm(port, direction, 0)
    cycle, same = bench.cycle(), []
    driver.done(driver.submit(cycle=cycle, freeze=driver.freeze(cycle)))
    for name in bench.executors:
        reduce = Reduce(cycle, 0, driver.shard_bytes(0), [Part(name, 1.0)])
        order = driver.submit(cycle=cycle, executors=[name], reduce=reduce)
        driver.done(order)
        same.append(driver.cluster.take_sum(order, driver.shard_bytes(0)).tobytes() == sent.tobytes())
    return {"same": same, "told": sorted(told)}


def exchanged(bench: Bench, driver: HandDriver, arms: list[Arm]) -> dict[str, Any]:
    """An agent sends its shard and gets a vector for it, which it sends the next time. Armed forever: until it was told."""
    seen = driver.of(ExchangeArrived)
    first = driver.wait(ExchangeArrived, lambda one: one.number > len(seen), new=False)
    driver.cluster.take_sent(first.id, first.number, first.length)
    fresh = np.random.default_rng(first.number).standard_normal(first.length // 4, dtype=np.float32)
    bench.arm(arms)
    driver.cluster.answer(first.id, first.number, fresh, first.number, "replace", 0.0)
    if any(times == FOREVER for _, _, times in arms):
        told = driver.wait(ExecutorDamages).executor
        for port, direction, _ in arms:
            bench.proxy.arm(port, direction, 0)
    else:
        told = ""
    second = driver.wait(ExchangeArrived, lambda one: one.number == first.number + 1, new=False)
    sent = driver.cluster.take_sent(second.id, second.number, second.length)
    driver.cluster.answer(second.id, second.number, sent, second.number, "replace", 0.0)
    return {"same": sent.tobytes() == (fresh + np.float32(1)).tobytes(), "told": told}


def main(work_dir: str) -> None:
    with session(work_dir, executors=3, executor_memory=700 * MIB, driver_memory=700 * MIB) as spark:
        bench = Bench(spark, work_dir)
        bad = bench.executors[1]
        port, driver_port = bench.ports[bad], bench.driver
        with HandDriver(spark, "relay", elements=ELEMENTS) as driver:
            driver.start_agents(bench.executors)
            bench.say("nothing", driver, [], reduced)
            bench.say("part once", driver, [(port, OUT, 1)], reduced)
            bench.say("part always", driver, [(port, OUT, FOREVER)], reduced)
            bench.say("sum once", driver, [(driver_port, TO, 1)], reduced)
            both = [(driver_port, TO, FOREVER), (port, OUT, FOREVER)]
            bench.say("sum always", driver, both, partial(reduced, only=bad))
            bench.say("not pushed", driver, [(port, OUT, 0)], not_pushed)
            bench.say("piece once", driver, [(port, OUT, 1)], downloaded)
            bench.say("piece of the driver once", driver, [(driver_port, OUT, 1)], downloaded)
            bench.say("piece always", driver, [(port, OUT, FOREVER)], downloaded)
        with HandDriver(spark, "torrent", elements=ELEMENTS, broadcast="torrent") as driver:
            driver.start_agents(bench.executors)
            bench.say("torrent once", driver, [(driver_port, OUT, 1)], downloaded)
        with HandDriver(spark, "exchange", elements=ELEMENTS // 3, shards=1) as driver:
            driver.start_agent(0, bad, asks_every=1)
            driver.done(driver.submit(begin=driver.everyone()))
            bench.say("exchange", driver, [], exchanged)
            bench.say("sent once", driver, [(port, OUT, 1)], exchanged)
            bench.say("answer once", driver, [(driver_port, OUT, 1)], exchanged)
            bench.say("sent always", driver, [(port, OUT, FOREVER)], exchanged)
        print(json.dumps({"case": "end", "bad": bad}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
