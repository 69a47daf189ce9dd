"""The evaluator's process: ``python -m mpca.agent.evaluator``, a child of the driver with low priority.

It gets a function ``evaluate(state_dict) -> {"error": ..., "loss": ...}``, and then paths of safetensors files (or of memory
files, ``/proc/<pid>/fd/<n>``). It answers each path with the result and the time taken. Frames are those of `wire.codec`, with
msgpack maps as bodies; the driver's end is `evaluator_client.EvaluatorProcess`::

    {"do": "load", "payload": bytes, "threads": n, "served": bool}    once, first
    {"do": "evaluate", "id": n, "path": text}    ->    {"id": n, "result": {...}, "seconds": s}
                                                 or    {"id": n, "failed": traceback}
                                                       {"files": the fields of `wire.messages.Files`}    if served, once

The process ends when its stdin ends, even during an evaluation: a thread waits for that alone.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import msgpack

from mpca.agent.files import ExecutorFiles, FilePipe
from mpca.agent.metrics import number
from mpca.agent.process import die_at_end_of_file, lead_own_group, move_control_pipe
from mpca.errors import ConfigError
from mpca.storage import Location, opening
from mpca.streams import sturdy_streams
from mpca.wire.codec import FrameBuffer, frame
from mpca.wire.messages import Files

__all__ = ["main"]

#: Priority from the first answer on. Before it come torch's import and the user's test data, some seconds of CPU: with low
#: priority, beside agents on every core, the process got 4 % of a core, and a run of 90 s ended without an evaluation.
_NICE = 5


def _requests(read_fd: int) -> Iterator[dict[str, Any]]:
    buffer = FrameBuffer()
    while data := os.read(read_fd, 1 << 20):
        for body in buffer.feed(data):
            yield msgpack.unpackb(body)


def _evaluate(function: Callable[[Any], dict[str, float]], path: str) -> dict[str, float]:
    from safetensors.torch import load_file

    found = function(load_file(path))
    if not isinstance(found, Mapping):
        raise ConfigError(f'an evaluation returns numbers by name, such as {{"error": 0.1}}, and not a {type(found).__name__}')
    return {name: float(number("an evaluation returns", name, value)) for name, value in found.items()}


def _answer(function: Callable[[Any], dict[str, float]] | str, request: dict[str, Any]) -> dict[str, Any]:
    if isinstance(function, str):  # the function could not be loaded; this is the reason
        return {"id": request["id"], "failed": function}
    began = time.monotonic()
    try:
        result = _evaluate(function, request["path"])
    except Exception:
        return {"id": request["id"], "failed": traceback.format_exc()}
    return {"id": request["id"], "result": result, "seconds": time.monotonic() - began}


def _load(payload: bytes, threads: int) -> Callable[[Any], dict[str, float]] | str:
    import cloudpickle
    import torch

    from mpca.agent.lazy_dynamo import put_off_dynamo

    put_off_dynamo()
    torch.set_num_threads(threads)
    try:
        function: Callable[[Any], dict[str, float]] = cloudpickle.loads(payload)
    except Exception:
        return traceback.format_exc()
    return function


def _read_through_driver(write_fd: int) -> None:
    """From now on, read ``hdfs://`` through the driver's JVM, which has its login. The pipes are made at the first file."""
    pipe: list[FilePipe] = []

    def say(files: Files) -> None:
        os.write(write_fd, frame(msgpack.packb({"files": asdict(files)})))  # at once: it is shorter than PIPE_BUF

    def open_hdfs(location: Location) -> ExecutorFiles:
        if not pipe:
            pipe.append(FilePipe(say))
        return ExecutorFiles(pipe[0], location)

    opening.use(open_hdfs)


def _be_polite() -> None:
    """Lower the priority of the whole process group, since decoders stay for the next evaluation."""
    os.setpriority(os.PRIO_PGRP, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + _NICE, 19))


def main() -> int:
    """Answer until stdin ends."""
    read_fd, write_fd = move_control_pipe()
    lead_own_group()
    die_at_end_of_file(read_fd)
    with sturdy_streams():  # the user's function prints to the driver's terminal while that exists
        return _serve(read_fd, write_fd)


def _serve(read_fd: int, write_fd: int) -> int:
    function: Callable[[Any], dict[str, float]] | str = "no function was loaded"
    polite = False
    for request in _requests(read_fd):
        if request["do"] == "load":
            os.environ["OMP_NUM_THREADS"] = str(request["threads"])
            if request["served"]:
                _read_through_driver(write_fd)
            function = _load(request["payload"], request["threads"])
            continue
        data = memoryview(frame(msgpack.packb(_answer(function, request))))
        while data:
            data = data[os.write(write_fd, data) :]
        if not polite:
            _be_polite()
            polite = True
    return 0


if __name__ == "__main__":
    sys.exit(main())
