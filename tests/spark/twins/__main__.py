"""``python -m tests.spark.twins MINUTES [SEED]``, behind `make twins`. The report lies in ``runs/twins-SEED-TIME``."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from tests.spark.twins.run import ROOT, Failed, Pair, lines, outside, pair, to_json

PAIRS = 3


def main(words: list[str]) -> int:
    try:
        minutes = float(words[0])
        seed = int(words[1]) if len(words) > 1 else 1
    except (ValueError, IndexError):
        print("make twins MINUTES=20 [SEED=7]: minutes are a number, and the seed is a whole one", file=sys.stderr)
        return 2
    if not 1 <= minutes < 10_000:
        print(f"MINUTES={words[0]}: must be from 1 to 10000: a fault comes every minute", file=sys.stderr)
        return 2
    folder = ROOT / "runs" / f"twins-{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder.mkdir(parents=True)
    for number in (signal.SIGTERM, signal.SIGHUP):  # a terminal that is closed, too
        signal.signal(number, _interrupt)
    pairs: list[Pair] = []
    code = 0
    try:
        for one in range(seed, seed + PAIRS):
            pairs.append(pair(minutes, one, folder, lambda text: print(text, flush=True)))
    except Failed as error:
        print(f"twins: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    if pairs:
        print("\n".join(lines(pairs)))
        path = folder / "twins.json"
        path.write_text(to_json(pairs))
        print(f"written: {path}")
    return code or int(bool(outside(pairs)))


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
