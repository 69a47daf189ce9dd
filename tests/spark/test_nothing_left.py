"""Hundreds of small cycles, and thousands of exchanges, leave no more behind than dozens did: blocks, broadcasts, descriptors,
threads, memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mpca.driver.events import Acknowledged, ExchangeArrived
from tests.spark.support import HandDriver, java_pids

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

#: A JVM that has just started touches its heap for the first time: 6 % in four hundred cycles, and none after that.
WARM = 400
EARLY, LATE = WARM + 100, WARM + 500
#: Pools whose threads go after a minute of idleness. The last: of a run before, which ends when it is idle.
POOLS = ("mpca-fetch", "mpca-relay", "mpca-push", "mpca-freeze", "mpca-parent")


class Cycles:
    """The three phases of `mpca`, without its mathematics: what was summed is sent back."""

    def __init__(self, driver: HandDriver) -> None:
        self.driver = driver
        self.cycle = 0
        self.done = driver.done(driver.submit(freeze=driver.freeze(0)))
        self.sum_of: int | None = None
        self.broadcast: int | None = None

    def run(self, until: int) -> None:
        driver = self.driver
        while self.cycle < until:
            downloads, forget = [], []
            if self.sum_of is not None:
                shard = (self.cycle - 1) % 3
                fresh = driver.cluster.publish(driver.cluster.take_sum(self.sum_of, driver.shard_bytes(shard)))
                downloads = [driver.download(fresh, shard, self.cycle, mode="install")]
                if self.broadcast is not None:
                    forget = [self.broadcast]
                    driver.cluster.withdraw(self.broadcast)
                self.broadcast = fresh
            self.sum_of = driver.submit(
                cycle=self.cycle,
                downloads=downloads,
                reduce=driver.reduce(self.cycle, self.done.answers),
                freeze=driver.freeze(self.cycle + 1),
                forget_cycle=self.cycle - 1,
                forget_broadcasts=forget,
            )
            self.done = driver.done(self.sum_of)
            if self.broadcast is not None:
                driver.acknowledged(self.broadcast, 3)
            del driver.events[:]  # of thousands, only the newest are looked for
            self.cycle += 1


def test_five_hundred_cycles(drive, spark, work_dir) -> None:
    driver = drive(elements=7_500, broadcast="relay")
    driver.start_agents(driver.executors(3), step_s=0.002)
    driver.done(driver.submit(begin=driver.everyone()))
    cycles = Cycles(driver)
    cycles.run(EARLY)
    early = look(driver, spark, work_dir)
    began = time.monotonic()
    cycles.run(LATE)
    print(f"median cycle about {(time.monotonic() - began) / (LATE - EARLY):.3f} s")
    compare(early, look(driver, spark, work_dir))
    assert driver.of(Acknowledged) == []


def test_thousands_of_exchanges_that_agents_ask_for(drive, spark, work_dir) -> None:
    driver = drive(elements=7_500)
    driver.start_agents(driver.executors(3), step_s=0.002, asks_every=1)
    driver.done(driver.submit(begin=driver.everyone()))
    serve(driver, 3000)
    early = look(driver, spark, work_dir)
    serve(driver, 6000)
    compare(early, look(driver, spark, work_dir))


def serve(driver: HandDriver, times: int) -> None:
    """So many, and then none: every agent waits."""
    waiting, served = driver.of(ExchangeArrived), 0  # the first may have come while an order was waited for
    driver.events = [one for one in driver.events if not isinstance(one, ExchangeArrived)]
    while served < times:
        for event in waiting or driver.cluster.poll(1.0):
            if isinstance(event, ExchangeArrived):
                sent = driver.cluster.take_sent(event.id, event.number, event.length)
                driver.cluster.answer(event.id, event.number, sent, version=1, mode="install", share=0.5)
                served += 1
        waiting = []


def compare(early: dict[str, dict[str, int]], late: dict[str, dict[str, int]]) -> None:
    print(early, late, sep="\n")
    for place, then in early.items():
        now = late[place]
        assert now["blocks"] == then["blocks"], place
        assert now["broadcasts"] <= then["broadcasts"] + 10, place  # of the newest jobs, until the next collection
        assert now["threads"] <= then["threads"], place  # one of an earlier run may have ended since
        assert now["descriptors"] <= then["descriptors"] + 5, place
        assert now["resident"] <= 1.05 * then["resident"], place


def look(driver: HandDriver, spark, work_dir: Path) -> dict[str, dict[str, int]]:
    """What each JVM holds once the driver's has collected its garbage and Spark's cleaner has followed."""
    pids = {**java_pids(work_dir), "driver": spark.sparkContext._gateway.proc.pid}
    for _ in range(3):
        spark._jvm.System.gc()
        time.sleep(1.0)  # Spark's cleaner follows in a thread of its own, and says nothing when it has done
    return {
        place["executor"]: {
            "blocks": len(place["blocks"]),
            "broadcasts": place["broadcasts"],
            "threads": len([name for name in place["threads"] if not name.startswith(POOLS)]),
            "descriptors": place["descriptors"],
            "resident": resident(pids[place["executor"]]),
        }
        for place in driver.cluster.inventory()
    }


def resident(pid: int) -> int:
    """Kilobytes of memory that a process has in use."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise LookupError(pid)
