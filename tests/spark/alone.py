"""A run in a process and a session of its own: ``python -m tests.spark.alone WORK_DIR '{"spark.key": "value"}' [hang]``.

For what the shared session cannot show: other settings of Spark, and a driver that is killed. Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import psutil

from mpca.driver.events import ExecutorReady
from mpca.spark.run.session import session
from tests.spark.support import SUMS, HandDriver, java_pids, kill, plain_value

MIB = 1 << 20
#: Values of settings that no process may have among its arguments.
SECRETS = ("a secret of this test", "a password of this test")


def exchange(spark, reducer: str, broadcast: str) -> dict:
    """One exchange of one shard, there and back."""
    with HandDriver(spark, f"alone-{reducer}", reducer=reducer, broadcast=broadcast) as driver:
        driver.start_agents(driver.executors(2))
        driver.done(driver.submit(begin=driver.everyone()))
        time.sleep(0.2)  # agents take steps of 5 ms; none at all would be a sum with no weight
        answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
        order = driver.submit(reduce=driver.reduce(0, answers))
        driver.done(order)
        got = driver.cluster.take_sum(order, driver.shard_bytes(0))
        parts = [
            (plain_value(driver.elements, 3, 0, one.agent, one.tau), answer.weight)
            for answer in answers
            for one in answer.frozen
        ]
        expected = SUMS[reducer](parts)
        published = driver.cluster.publish(got)
        driver.done(driver.submit(downloads=[driver.download(published, 0, 1)]))
        acknowledged = driver.acknowledged(published, 2)
        return {
            "same_bytes": got.tobytes() == expected.tobytes(),
            "acknowledged": sorted(event.agent for event in acknowledged),
        }


def lose(spark, work_dir: str) -> dict:
    """Which agents are in a cycle whose executor was killed in the middle, and once there is a new executor."""
    with HandDriver(spark, "alone-lose") as driver:
        executors = driver.executors(2)
        driver.start_agents(executors)
        driver.done(driver.submit(begin=driver.everyone()))
        time.sleep(0.2)  # agents take steps of 5 ms; none at all would be a sum with no weight
        answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
        kill(java_pids(Path(work_dir))[executors[1]])
        driver.failed(driver.submit(reduce=driver.reduce(0, answers)))
        del driver.places[1]
        order = driver.submit(reduce=driver.reduce(0, answers[:1]), freeze=driver.freeze(1))
        left = driver.done(order).answers
        driver.cluster.take_sum(order, driver.shard_bytes(0))
        new = driver.wait(ExecutorReady, lambda event: event.executor not in executors, new=False).executor
        driver.start_agent(1, new, incarnation=2)
        driver.done(driver.submit(begin=driver.everyone()[1:]))
        replaced = driver.done(driver.submit(freeze=driver.freeze(2))).answers
        return {
            "left": [one.agent for answer in left for one in answer.frozen],
            "replaced": sorted(one.agent for answer in replaced for one in answer.frozen),
        }


def arguments() -> list[str]:
    """Of all JVMs of this session; its own process was told the settings by the test."""
    words = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.ZombieProcess):
            words += one.cmdline()
    assert any("CoarseGrainedExecutorBackend" in word for word in words)
    return words


def hang(spark, work_dir: str) -> None:
    """Says which processes there are, and waits to be killed."""
    with HandDriver(spark, "alone") as driver:
        driver.start_agents(driver.executors(2))
        driver.done(driver.submit(begin=driver.everyone()))
        pids = [os.getpid(), *java_pids(Path(work_dir)).values(), *driver.all_pids()]
        print(json.dumps({"pids": pids}), flush=True)
        time.sleep(600)  # until it is killed; without that it ends in order, much later


def main(work_dir: str, conf: str, end: str = "end") -> None:
    memory = {"executor_memory": 700 * MIB, "driver_memory": 700 * MIB}
    with session(work_dir, executors=2, conf=json.loads(conf), **memory) as spark:
        if end == "hang":
            hang(spark, work_dir)
        said = {pair[0]: exchange(spark, *pair) for pair in (("ranges", "relay"), ("tree", "torrent"))}
        said["arguments"] = [word for word in arguments() if any(value in word for value in SECRETS)]
        said["serializer"] = spark.sparkContext.getConf().get("spark.serializer", "java")
        said["after a loss"] = lose(spark, work_dir)
        print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
