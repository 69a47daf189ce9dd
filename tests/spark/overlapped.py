"""The driver of `test_overlap` and `test_auto_shards`, on a node of its own: one run on the executors of other nodes.

``python -m tests.spark.overlapped SPEC RUN_DIR SIZE CYCLES SHARDS``: SPEC as for the bench's driver. It says "ready" when every
executor is there, waits for a line, runs through the users' door, and writes the wall clock of every agent's steps as
``steps.json`` into RUN_DIR. `overlapped_run` makes the nodes and starts it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from mpca.api.launch import Job, launch, resolve
from mpca.api.shipping import ship
from mpca.cli.bench.net.network import Network
from mpca.cli.bench.net.standalone import Standalone
from mpca.cli.bench.run.place import Place, open_session
from mpca.cli.bench.run.waiting import wait
from tests.bench.support import needs_namespaces
from tests.spark.node_driver import ready_driver

#: Of every link; it makes stages long enough to be seen beside each other.
RATE, BYTES_A_SECOND = "30mbit", 30e6 / 8
#: Long beside what a loaded machine does to a process that sleeps.
STEP_S = 0.2


def main(place: Place, run_dir: Path, size_bytes: int, cycles: int, shards: str) -> int:
    keys = {
        "run.name": "overlap",
        "cluster.agents": place.agents,
        "cluster.min_agents": place.agents,
        "cluster.cycle_deadline": "60s",
        "objectives.max_cycles": cycles,
        "method.name": "mpca",
        "method.shards": shards,
        "method.alpha": 0.0,
        "method.alpha_start": 0.0,
    }
    with open_session(place, 768 << 20, {}) as spark:
        print("ready", flush=True)
        sys.stdin.readline()
        config = resolve(None, [f"{key}={value}" for key, value in keys.items()])
        ended = launch(Job(config, ship(wait, (size_bytes, STEP_S), {}), run_dir=run_dir, session=spark))
    (run_dir / "steps.json").write_text(json.dumps(ended.returns))
    print(ended.reason, file=sys.stderr)
    return ended.exit_code


def overlapped_run(folder: Path, agents: int, size_bytes: int, cycles: int, shards: int | str) -> Path:
    """One run behind links of `RATE`, an executor on each of `agents` nodes.

    Returns:
        The run's folder.
    """
    needs_namespaces()
    workers = [f"w{number}" for number in range(agents)]
    with Network(["master", "driver", *workers]) as net, Standalone(net, "master", workers, folder, "3g") as daemons:
        place = Place(work_dir=str(folder), agents=agents, master=daemons.url, address=net.address("driver"))
        log = folder / "overlapped.log"
        arguments = [json.dumps(asdict(place)), str(folder / "run"), str(size_bytes), str(cycles), str(shards)]
        with ready_driver(net, "tests.spark.overlapped", arguments, log) as driver:
            net.shape(RATE, but=["master"])  # executors are there: their start needs no slow link
            driver.communicate("go\n")
        assert driver.returncode == 0, log.read_text() + daemons.executor_log()
    return folder / "run"


if __name__ == "__main__":
    sys.exit(main(Place(**json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
