"""The tree goes over Spark's shuffle: an order whose files are gone fails by the name of who had them, and the next one's sum
has the same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mpca.driver.events import OrderDone, OrderFailed
from tests.spark.support import java_pids
from tests.spark.test_cluster import begin

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


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
            for index in folder.glob("**/shuffle_*.index"):
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
