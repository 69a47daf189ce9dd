"""A run in a process and a session of its own: ``python -m tests.spark.alone WORK_DIR '{"spark.key": "value"}' [hang]``.

For what the shared session cannot show: other settings of Spark, and a driver that is killed. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from mpca.spark.session import session
from tests.spark.support import HandDriver, java_pids, plain_value, weighted_sum

MIB = 1 << 20


def main(work_dir: str, conf: str, end: str = "end") -> None:
    settings = json.loads(conf)
    with (
        session(work_dir, executors=2, executor_memory=700 * MIB, driver_memory=700 * MIB, conf=settings) as spark,
        HandDriver(spark, "alone") as driver,
    ):
        executors = driver.executors(2)
        driver.start_agents(executors)
        driver.done(driver.submit(begin=driver.everyone()))
        if end == "hang":
            pids = [os.getpid(), *java_pids(Path(work_dir)).values(), *driver.all_pids()]
            print(json.dumps({"pids": pids}), flush=True)
            time.sleep(600)
        time.sleep(0.2)
        answers = driver.done(driver.submit(freeze=driver.freeze(0))).answers
        order = driver.submit(reduce=driver.reduce(0, answers))
        driver.done(order)
        got = driver.cluster.take_sum(order, driver.shard_bytes(0))
        parts = [
            (plain_value(driver.elements, 3, 0, one.agent, one.tau), answer.weight)
            for answer in answers
            for one in answer.frozen
        ]
        broadcast = driver.cluster.publish(got)
        driver.done(driver.submit(downloads=[driver.download(broadcast, 0, 1)]))
        acknowledged = driver.acknowledged(broadcast, 2)
        print(
            json.dumps(
                {
                    "same_bytes": got.tobytes() == weighted_sum(parts).tobytes(),
                    "acknowledged": sorted(event.agent for event in acknowledged),
                    "serializer": spark.sparkContext.getConf().get("spark.serializer", "java"),
                }
            )
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
