"""Starts executors and nothing else, and says when all are there: `mpca bench submit` compares a run's start with it."""

import json
import sys
import time

from mpca.spark.yarn.submitted import ApplicationInfo, submitted_session

if __name__ == "__main__":
    session = submitted_session()
    if session is None:
        sys.exit("spark-submit must start this program: use `mpca bench submit`")
    scala, wanted = session.sparkContext._jsc.sc(), int(sys.argv[1])
    while scala.getExecutorMemoryStatus().size() <= wanted:  # the driver is in the count
        time.sleep(0.02)
    print("executors", json.dumps(ApplicationInfo.of(session).since_submit(time.time())))
    session.stop()
