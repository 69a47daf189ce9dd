"""A driver on YARN's executors that sees to its own losses: ``lossy.py FOLDER``. Prints one JSON object, ``told {...}``.

First the exchange alone, by both ways, whose sums are known to the bit; then a run of the engine, during which an executor
and later an agent are killed when everything of a cycle is materialised and nothing is summed. For `test_losing.py`.
"""

import json
import sys
from pathlib import Path

from mpca.spark.yarn.submitted import submitted_session
from tests.spark.alone import exchange
from tests.spark.engine import run_engine
from tests.spark.jobs import quadratic
from tests.spark.support import alive
from tests.support.fake_executor import wait_until


def story(run):
    yield lambda: run.reducing(6)
    seen["executor"] = run.coming.reduce.cycle
    agent = run.pid(1)
    run.kill_executor(1)
    wait_until(lambda: not alive(agent), "the end of its agent", 20.0)
    yield lambda: run.takes_part(1, incarnation=1)
    yield lambda: run.reducing(0)
    seen["agent"] = run.coming.reduce.cycle
    run.kill_agent(2)
    yield lambda: run.takes_part(2, incarnation=1)
    run.end()


seen: dict = {}
folder = Path(sys.argv[1])
spark = submitted_session()
assert spark is not None
application = spark.sparkContext.applicationId
for pair in (("ranges", "relay"), ("tree", "torrent")):
    seen[pair[0]] = exchange(spark, *pair)
told = run_engine(spark, application, folder / "run", quadratic, story=story, tape=False)
seen["accepted"] = [[cycle, *who] for cycle, who in told.run.contributed]
seen["crc"] = [[cycle, *who, one.crc] for (cycle, who), one in sorted(told.run.frozen.items())]
seen["conf"] = dict(spark.sparkContext.getConf().getAll())
print("told", json.dumps(seen))
spark.stop()
sys.exit(told.ended.exit_code)
