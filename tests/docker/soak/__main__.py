"""``python -m tests.docker.soak HOURS [SEED]``, behind `make soak`. The report lies in ``runs/soak-SEED-TIME``."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from dockerized.cluster import ROOT

from mpca.errors import MpcaError
from tests.docker.soak.run import soak

LEAST_HOURS = 0.1


def main(words: list[str]) -> int:
    try:
        hours = float(words[0])
        seed = int(words[1]) if len(words) > 1 else time.time_ns() % 1_000_000
    except (ValueError, IndexError):
        print("make soak HOURS=2 [SEED=7]: hours are a number, and the seed is a whole one", file=sys.stderr)
        return 2
    if not LEAST_HOURS <= hours < 1000:
        print(f"HOURS={words[0]}: must be from {LEAST_HOURS} to 1000: a fault comes every two minutes", file=sys.stderr)
        return 2
    folder = ROOT / "runs" / f"soak-{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder.mkdir(parents=True)
    for number in (signal.SIGTERM, signal.SIGHUP):  # a terminal that is closed, too
        signal.signal(number, _interrupt)
    try:
        return soak(hours, seed, folder, lambda text: print(text, flush=True))
    except MpcaError as error:
        print(f"soak: {error}", file=sys.stderr)
        return error.exit_code


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
