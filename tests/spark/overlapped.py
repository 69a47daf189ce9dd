"""The driver of `test_overlap` and `test_auto_shards`, on a node of its own: one run on the executors of other nodes.

``python -m tests.spark.overlapped SPEC RUN_DIR SIZE CYCLES SHARDS``: SPEC as for the bench's driver. It says "ready" when every
executor is there, waits for a line, runs through the users' door, and writes the wall clock of every agent's steps as
``steps.json`` into RUN_DIR.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mpca.api.launch import Job, launch, resolve
from mpca.api.shipping import ship
from mpca.cli.bench.run.place import Place, open_session
from mpca.cli.bench.run.waiting import wait

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


if __name__ == "__main__":
    sys.exit(main(Place(**json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
