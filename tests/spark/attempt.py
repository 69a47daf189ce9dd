"""One attempt of a run in a process and a session of its own, as `mpca train` makes them, with a train function of the tests:
``python -m tests.spark.attempt RUN_DIR FOLDER auto|- KEY=VALUE...``. It runs until the file ``end`` lies in FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle

from mpca.api.launch import Job, launch, resolve
from mpca.api.shipping import ship
from tests.spark import jobs

cloudpickle.register_pickle_by_value(jobs)


def main(run_dir: str, folder: str, resume: str, *sets: str) -> int:
    settings = ["cluster.start_timeout=150s", "objectives.max_time=240s", *sets]
    payload = ship(jobs.quadratic, (folder,), {"tape": False})
    job = Job(resolve(None, settings), payload, run_dir=Path(run_dir), resume=None if resume == "-" else resume)
    ended = launch(job)
    print(ended.reason)
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
