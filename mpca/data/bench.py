"""The arms of `mpca bench data`: the stream, its decoding code on JPEGs in memory, and torchvision's ImageFolder.

The arms measure their rates in turns, so that other load on the machine falls on all of them. Not for comparing the rates:
`mpca.cli.bench.cases.data`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import psutil

from mpca.data.child import Child, parent
from mpca.data.stream import Streamed
from mpca.data.stream_reader import SplitData
from mpca.data.workers_main import Job, view_of
from mpca.extras import extras

__all__ = ["Rate", "image_folder", "in_memory", "main", "peak_memory", "streaming"]

#: Takes a number of images; gives the images a second over that many.
Rate = Callable[[int], float]

_BATCH = 32
_LEAD = 6  # batches that lie ready when an arm's turn begins, and are not counted


def _rate_of(batches: Iterator[Any], images: int) -> float:
    for _ in range(_LEAD):
        next(batches)
    start, seen = time.perf_counter(), 0
    while seen < images:
        seen += len(next(batches)[1])
    return seen / (time.perf_counter() - start)


@contextmanager
def streaming(streamed: Streamed) -> Iterator[Rate]:
    """Batches as an agent gets them."""
    import torch

    torch.set_num_threads(1)  # an agent's default; idle threads that spin would take the decoders' cores
    batches = iter(streamed.stream(_BATCH))
    try:
        yield lambda images: _rate_of(batches, images)
    finally:
        batches.close()


@contextmanager
def in_memory(data: SplitData, job: Job, workers: int, records: int) -> Iterator[Rate]:
    """Decode in `workers` processes, without reading, transport or batches."""
    children = [Child("mpca.data.bench", json.dumps(asdict(job))) for _ in range(workers)]
    try:
        for first, child in enumerate(children):
            chosen = []
            for number in range(first, min(records, len(data)), workers):
                entry = data.index.entry(number)
                shard = next(at for at, end in enumerate(data.index.starts[1:]) if number < end)
                chosen.append((data.store.read_range(data.shard_name(shard), entry.offset, entry.length), entry.crc))
            child.connection.send(chosen)

        def rate(images: int) -> float:
            for child in children:
                child.connection.send(images // workers)
            seconds: list[float] = [child.connection.recv() for child in children]
            return sum(images // workers / one for one in seconds)

        yield rate
    finally:
        for child in children:
            child.kill()
            child.reap()


@contextmanager
def image_folder(folder: str, workers: int, shorter_edge: int, crop: int, mean: list[float]) -> Iterator[Rate]:
    """Read the original files by torchvision's ImageFolder and a DataLoader of `workers` processes, to the same pixels."""
    from torch.utils.data import DataLoader

    with extras():
        from torchvision import datasets
        from torchvision.transforms import v2

    steps = [v2.Resize(shorter_edge), v2.RandomCrop(crop), v2.RandomHorizontalFlip(), v2.PILToTensor(), _Centred(mean)]
    loader = DataLoader(
        datasets.ImageFolder(folder, v2.Compose(steps)),
        _BATCH,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=True,
        multiprocessing_context="spawn",  # a fork would copy locks that other threads hold
    )

    def endless() -> Generator[Any, None, None]:
        while True:
            yield from loader

    batches = endless()
    try:
        yield lambda images: _rate_of(batches, images)
    finally:
        batches.close()


class _Centred:
    """Subtracts each channel's mean, as the stream does."""

    def __init__(self, mean: list[float]) -> None:
        self._mean = mean

    def __call__(self, image: Any) -> Any:
        import torch

        return image.float().sub_(torch.tensor(self._mean).reshape(3, 1, 1)).div_(255)


def peak_memory(streamed: Streamed, batch_size: int, images: int) -> dict[str, int]:
    """Measure the largest number of bytes that a stream's processes hold together, above those of bare interpreters.

    Sizes are proportional (PSS), so shared memory counts once. A decoding process that has no work gives the bare size.
    """
    own = psutil.Process()
    before = own.memory_full_info().pss
    bare = _bare_decoder()
    stream = streamed.stream(batch_size)
    seen = peak = 0
    start = time.perf_counter()
    first_batch_s = 0.0
    batches = iter(stream)
    try:
        for _, labels in batches:
            first_batch_s = first_batch_s or time.perf_counter() - start
            seen += len(labels)
            processes = [own, *map(psutil.Process, stream.worker_pids())]
            held = sum(one.memory_full_info().pss for one in processes) - before - bare * (len(processes) - 1)
            peak = max(peak, held)
            if seen >= images:
                break
    finally:
        batches.close()
    return {"peak_bytes": peak, "first_batch_ms": round(1000 * first_batch_s)}


def _bare_decoder() -> int:
    """Bytes of a decoding process that has not decoded anything yet."""
    job = Job(seed=0, shorter_edge=1, crop=1, centre=True, slots=1, input_bytes=0)
    memory = os.memfd_create("mpca-bare")
    os.ftruncate(memory, job.memory_bytes)
    child = Child("mpca.data.workers_main", json.dumps(asdict(job)), 0, memory, pass_fds=(memory,))
    try:
        os.read(child.connection.fileno(), 1)
        return int(psutil.Process(child.pid).memory_full_info().pss)
    finally:
        child.kill()
        child.reap()
        os.close(memory)


def main() -> None:
    """Run one process of `in_memory`: ``python -m mpca.data.bench FD JOB``."""
    connection, (text,) = parent()
    job = Job(**json.loads(text))
    jpegs: list[tuple[bytes, int]] = connection.recv()
    view = np.empty((3, job.crop, job.crop), np.uint8)
    at = 0
    while True:
        try:
            images = connection.recv()
        except EOFError:
            return
        start = time.perf_counter()
        for _ in range(images):
            jpeg, crc = jpegs[at % len(jpegs)]
            view_of(job, jpeg, crc, at // len(jpegs), at % len(jpegs), view)
            at += 1
        connection.send(time.perf_counter() - start)


if __name__ == "__main__":
    main()
