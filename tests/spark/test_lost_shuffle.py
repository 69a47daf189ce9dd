"""The tree goes over Spark's shuffle: an order whose files are gone fails by the name of who had them, and the next one's sum
has the same bytes. Who waits in Spark for a part of a failed order does not hold up the next one.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mpca.driver.events import OrderDone, OrderFailed
from tests.spark.support import java_pids
from tests.spark.test_cluster import begin

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

FILES = "**/shuffle_*.index"
#: A task that Spark has killed and that goes on waiting does so for `spark.shuffle.io.connectionTimeout` (10 s) or longer.
SOON_S = 3.0


def folder_of(work_dir: Path, executor: str) -> Path:
    """Where that executor has the files of its shuffles."""
    variables = Path(f"/proc/{java_pids(work_dir)[executor]}/environ").read_text().split("\0")
    (folder,) = (one.partition("=")[2] for one in variables if one.startswith("SPARK_EXECUTOR_DIRS="))
    return Path(folder)


@contextmanager
def losing_files(folder: Path) -> Iterator[list[str]]:
    """Remove the first file of a shuffle that appears, as soon as it does; yields its name."""
    lost: list[str] = []
    over = threading.Event()

    def lose() -> None:
        while not lost and not over.is_set():
            for index in folder.glob(FILES):
                with suppress(FileNotFoundError):
                    index.unlink()
                    lost.append(index.name)

    loser = threading.Thread(target=lose, name="tests-losing")
    loser.start()
    try:
        yield lost
    finally:
        over.set()
        loser.join()


def test_an_order_fails_by_the_name_of_who_lost_its_files_and_the_next_has_the_same_bytes(drive, work_dir: Path) -> None:
    driver = drive(reducer="tree")
    executors = driver.executors(3)
    begin(driver, executors)
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers

    def total() -> bytes:
        order = driver.submit(reduce=driver.reduce(0, answers))
        driver.done(order)
        return driver.cluster.take_sum(order, driver.shard_bytes(0)).tobytes()

    before = total()
    for _ in range(30):  # a file that has just been read costs nothing
        with losing_files(folder_of(work_dir, executors[2])) as lost:
            order = driver.submit(reduce=driver.reduce(0, answers))
            ended = driver.wait((OrderDone, OrderFailed), lambda one, order=order: one.order == order)
        if isinstance(ended, OrderFailed):
            break
        assert driver.cluster.take_sum(order, driver.shard_bytes(0)).tobytes() == before
    assert isinstance(ended, OrderFailed), "no file was lost in time"
    assert len(lost) == 1
    assert ended.executor == executors[2], ended.reason
    assert f" could not fetch from executor {executors[2]}: " in ended.reason
    assert lost[0] in ended.reason
    assert len(ended.reason.splitlines()) == 1
    assert total() == before


def running(spark, executor: str) -> int:
    """Tasks that have a core of an executor, by Spark's scheduler; its page is behind."""
    return spark._jsc.sc().taskScheduler().runningTasksByExecutors().apply(executor)


def test_who_waits_for_a_part_of_a_cancelled_order_is_free_for_the_next(drive, spark, work_dir: Path) -> None:
    driver = drive(reducer="tree", elements=12_000_000)  # a part is 16 MB, and on its way for long enough to be stopped
    executors = driver.executors(3)
    begin(driver, executors)
    answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
    folders, stopped = [folder_of(work_dir, one) for one in executors], java_pids(work_dir)[executors[1]]

    def free_within(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while running(spark, executors[0]) > 1 and time.monotonic() < until:  # one holds the agent
            time.sleep(0.01)
        return time.monotonic() < until

    for _ in range(60):  # Spark decides who sums the first two parts, and it may be the stopped one itself
        before = [{*folder.glob(FILES)} for folder in folders]
        order = driver.submit(reduce=driver.reduce(0, answers))
        while not all({*folder.glob(FILES)} - old for folder, old in zip(folders, before, strict=True)):
            pass  # until each has written its part, and groups are summed
        time.sleep(random.uniform(0.0, 0.03))  # nothing says when a part is on its way: until a try stops it there
        os.kill(stopped, signal.SIGSTOP)
        try:
            waits = not free_within(2.0)
            driver.cluster.cancel(order, "the second executor says nothing")
            assert free_within(SOON_S), "the task waits on, and has a core that the next order needs"
        finally:
            os.kill(stopped, signal.SIGCONT)
        driver.wait((OrderDone, OrderFailed), lambda one, order=order: one.order == order, new=False)
        if waits:
            return
    pytest.fail("the first executor never waited for a part of the second")
