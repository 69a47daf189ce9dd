"""A driver on a node of its own: ``python -m tests.spark.lossy SPEC RUN_DIR FOLDER DEADLINE_S [ELEMENTS]``.

Says "ready" when every executor is there, waits for a line, and runs until the file ``end`` lies in FOLDER. What the model was
at first and at last it leaves in FOLDER as ``start.npy`` and ``end.npy``. With ELEMENTS the model has so many, in twelve
shards; it is not taped then, and takes a step in a tenth of a second.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cloudpickle
import numpy as np

from mpca.api.launch import Job, launch, resolve
from mpca.api.shipping import ship
from mpca.cli.bench.run.place import Place, open_session
from tests.spark import jobs

cloudpickle.register_pickle_by_value(jobs)


def main(place: Place, run_dir: Path, folder: Path, deadline_s: str, elements: str = "") -> int:
    large = {"elements": int(elements), "tape": False, "pause_s": 0.1} if elements else {}
    keys = {
        "run.name": "damaged",
        "method.name": "mpca",  # which the test computes again
        "cluster.agents": place.agents,
        "cluster.min_agents": 1,
        "cluster.cycle_deadline": f"{deadline_s}s",
        "objectives.max_time": "300s",
        "method.shards": 12 if elements else 3,
    }
    with open_session(place, 768 << 20, {}) as spark:
        print("ready", flush=True)
        sys.stdin.readline()
        config = resolve(None, [f"{key}={value}" for key, value in keys.items()])
        ended = launch(Job(config, ship(jobs.quadratic, (str(folder),), large), run_dir=run_dir, session=spark))
    state = ended.model_state
    np.save(folder / "start.npy", ended.returns[0]["start"])
    np.save(folder / "end.npy", np.concatenate([state["first"], state["second"], state["walked"]]))
    print(ended.reason, file=sys.stderr)
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(main(Place(**json.loads(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]))
