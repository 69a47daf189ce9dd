"""A driver's hold of a run's folder, without a run: ``python -m tests.api.holder FOLDER LETTER [resume]``.

Takes the folder, says so, and writes a record of its letter every few milliseconds until it is told on stdin to end, or
sees, as `launch` does in its loop, that another driver has taken over. The folder is what one on HDFS is, with its lease, in a
store of this machine.
"""

from __future__ import annotations

import select
import sys
from contextlib import ExitStack

from mpca.api.launch import resolve
from mpca.api.location import HdfsRunLocation
from mpca.errors import BackupError
from mpca.records import PauseRecord, RunRecord
from mpca.storage import Location


def main(folder: str, letter: str, resume: str = "") -> int:
    with ExitStack() as stack:
        location = HdfsRunLocation(Location.parse(folder), stack)
        try:
            term = location.take(None, bool(resume), None)
        except BackupError as refusal:
            print(f"refused: {refusal}", flush=True)
            return 1
        run = RunRecord(t=0.0, name="held", method="mpca", num_agents=1, seed=0, shards=1, phases=1, attempt=term)
        records = location.begin(term, resolve(None), run)
        print(f"took term {term}", flush=True)
        number = 0
        while location.lost is None and not select.select([sys.stdin], [], [], 0.005)[0]:
            records.write(PauseRecord(t=float(number), start=float(number), end=None, reason=letter))
            number += 1
        location.publish(records.waiting)
        print(f"lost: {location.lost}" if location.lost else "ended", flush=True)
        return 1 if location.lost else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
