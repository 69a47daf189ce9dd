"""The process of one tracker: ``python -m mpca.track.main NAME``, a child of the driver with low priority.

It gets one JSON object a line, and answers each; `trackers` is the driver's end::

    {"do": "begin", ...}                          fields of `port.Begin`       ->  {"done": {"run": text, "url": text}}
    {"do": "log", "scalars": [[name, value, step, t], ...]}                    ->  {"done": {}}
    {"do": "end", "status": text, "reason": text, "files": [path, ...]}        ->  {"done": {}}

What fails is tried again, and again. Before each new try it says {"away": why}. The process ends when its stdin does, even in
the middle of a call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from mpca.agent.process import die_at_end_of_file, end_group, lead_own_group, move_control_pipe
from mpca.checks import masked
from mpca.track.mlflow import MLflow
from mpca.track.port import Begin, Tracker
from mpca.track.scalars import Scalar
from mpca.track.tensorboard import TensorBoard
from mpca.track.wandb import WandB

__all__ = ["BACKENDS", "main", "serve"]

BACKENDS: dict[str, Callable[[], Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}

_NICE = 10
_AGAIN_EVERY_S, _AGAIN_MOST_EVERY_S = 1.0, 30.0


def serve(
    requests: Iterable[bytes],
    tell: Callable[[dict[str, Any]], None],
    make: Callable[[], Tracker],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Answer until the requests end.

    Args:
        requests: lines.
        tell: sends an answer.
        make: makes the tracker; what it imports may fail.
        sleep: waits for so many seconds.
    """
    tracker: Tracker | None = None
    for line in requests:
        request = json.loads(line)
        wait = _AGAIN_EVERY_S
        while True:
            try:
                tracker = tracker or make()
                done = _perform(tracker, **request)
                break
            except Exception as error:  # whatever a client raises: the run goes on, and so do we
                tell({"away": _words(error)})
                sleep(wait)
                wait = min(2 * wait, _AGAIN_MOST_EVERY_S)
        tell({"done": done})


def _perform(tracker: Tracker, do: str, **given: Any) -> dict[str, Any]:
    if do == "begin":
        run, url = tracker.begin(Begin(**given))
        return {"run": run, "url": masked(url)}
    if do == "log":
        tracker.log([Scalar(*one) for one in given["scalars"]])
    else:
        tracker.end(given["status"], given["reason"], given["files"])
    return {}


def _words(error: Exception) -> str:
    """The error in a line, without secrets of URLs."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return masked(f"{type(error).__name__}: {first}")[:300]


def main(name: str) -> None:
    """Serve the driver."""
    read_fd, write_fd = move_control_pipe()
    lead_own_group()
    die_at_end_of_file(read_fd)
    os.nice(_NICE)

    def tell(answer: dict[str, Any]) -> None:
        os.write(write_fd, (json.dumps(answer) + "\n").encode())

    serve(os.fdopen(read_fd, "rb"), tell, BACKENDS[name])
    end_group()  # exit handlers of clients may wait for their servers


if __name__ == "__main__":
    main(sys.argv[1])
