"""What is made of a record: images are decoded by processes, numbers are parsed by a thread. Batches of both, as tensors.

A form is what `stream.py` and `passes.py` ask for decoders and batches. Not for reading: `stream_reader.py`.
"""

from __future__ import annotations

import io
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mpca.data.manifest import VectorForm
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import Record, SplitData
from mpca.data.workers import INPUT_BYTES, Decoders, Feed, Result, slots_for
from mpca.data.workers_main import Job

__all__ = ["Form", "Images", "Numbers", "Source", "form_of", "header"]

Fail = Callable[[BaseException], None]


class Source(Protocol):
    """Turns the records of a feed into arrays, in their order."""

    def results(self) -> Iterator[Result]: ...

    def pids(self) -> list[int]:
        """Of its processes."""
        ...

    def close(self) -> None:
        """End what it started; safe to call twice."""
        ...


class Form(Protocol):
    """What the records of a split are."""

    def decoders(self, feed: Feed, fail: Fail) -> Source:
        """Started on a feed; `fail` is told when they cannot go on."""
        ...

    def empty(self, count: int) -> Any:
        """Room for so many arrays."""
        ...

    def batch(self, arrays: Any, labels: list[int]) -> tuple[Tensor, Tensor]:
        """Tensors of their own, of what lies there."""
        ...


def form_of(data: SplitData, options: StreamOptions, seed: int) -> Form:
    """What a split's manifest says that its records are."""
    if data.manifest.vectors is not None:
        return Numbers(data.manifest.vectors)
    return Images(data, options, seed)


class Images:
    """JPEGs: views of float32[3, crop, crop] less the channels' means."""

    def __init__(self, data: SplitData, options: StreamOptions, seed: int) -> None:
        self._mean = torch.tensor(data.manifest.channel_means, dtype=torch.float32).reshape(3, 1, 1)
        self._workers = options.workers
        self._job = Job(
            seed=seed,
            shorter_edge=options.shorter_edge,
            crop=options.crop,
            centre=data.split != "train" and options.test_view == "centre",
            slots=slots_for(options.workers),
            input_bytes=INPUT_BYTES,
        )

    def decoders(self, feed: Feed, fail: Fail) -> Decoders:
        return Decoders(feed, self._job, self._workers, fail)

    def empty(self, count: int) -> Any:
        return np.empty((count, 3, self._job.crop, self._job.crop), np.uint8)

    def batch(self, arrays: Any, labels: list[int]) -> tuple[Tensor, Tensor]:
        # `augment.subtract_mean` in place: the same numbers in a quarter of the time, which is 0.6 ms an image, as decoding.
        return torch.from_numpy(arrays).float().sub_(self._mean).div_(255), torch.tensor(labels)


class Numbers:
    """Arrays of one shape, as they were written."""

    def __init__(self, form: VectorForm) -> None:
        self._form = form

    def decoders(self, feed: Feed, fail: Fail) -> Source:
        return _Parser(feed, self._form, fail)

    def empty(self, count: int) -> Any:
        return np.empty((count, *self._form.shape), self._form.dtype)

    def batch(self, arrays: Any, labels: list[int]) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(arrays.copy()), torch.tensor(labels)


def header(form: VectorForm) -> bytes:
    """What every file of such an array begins with, in numpy's format."""
    out = io.BytesIO()
    np.save(out, np.zeros(form.shape, form.dtype))
    return out.getvalue()[: -np.zeros(form.shape, form.dtype).nbytes]


class _Parser:
    """In the thread that asks: an array is its bytes after a header that all have."""

    def __init__(self, feed: Feed, form: VectorForm, fail: Fail) -> None:
        self._feed, self._form = feed, form
        self._header = header(form)
        self._bytes = len(self._header) + np.zeros(form.shape, form.dtype).nbytes
        self._closed = threading.Event()

    def results(self) -> Iterator[Result]:
        while not self._closed.is_set():
            taken = self._feed.take(wait=True)
            if taken is None:
                return
            record = taken[1]
            reason = self._wrong(record)
            array = None
            if not reason:
                array = np.frombuffer(record.jpeg, self._form.dtype, offset=len(self._header)).reshape(self._form.shape)  # type: ignore[arg-type]
            yield Result(record, array, reason)

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self._closed.set()
        self._feed.close()

    def _wrong(self, record: Record) -> str:
        data = record.jpeg
        if data is None:
            return record.reason
        found = zlib.crc32(data)
        if found != record.entry.crc:
            return f"wrong checksum: crc32={found:08x}, expected={record.entry.crc:08x}"
        if len(data) != self._bytes or not data.startswith(self._header):
            return f"not {self._form.dtype}{self._form.shape} as numpy writes it: bytes={len(data)}"
        return ""
