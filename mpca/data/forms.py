"""The forms of records: processes decode images, a thread parses numbers, and batches of both become tensors.

`stream.py` and `evaluation_loader.py` get decoders and batches from a form. Not for reading: `stream_reader.py`.
"""

from __future__ import annotations

import io
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mpca.data.manifest import VectorForm
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import Record, SplitData
from mpca.data.workers import INPUT_BYTES, Decoders, RecordQueue, Result, slots_for
from mpca.data.workers_main import Job

__all__ = ["Batch", "Form", "Images", "Numbers", "Source", "form_of", "header"]

Fail = Callable[[BaseException], None]


class Source(Protocol):
    """Turns the records of a feed into arrays, in their order."""

    def results(self) -> Iterator[Result]: ...

    def pids(self) -> list[int]:
        """Ids of its processes."""
        ...

    def close(self) -> None:
        """End its processes; safe to call twice."""
        ...


class Form(Protocol):
    """The form of a split's records."""

    def decoders(self, feed: RecordQueue, fail: Fail) -> Source:
        """Start decoders on a feed. They call `fail` with the error when they cannot go on."""
        ...

    def batch(self, size: int) -> Batch:
        """An empty batch with room for `size` arrays."""
        ...


class Batch:
    """Arrays and their labels, which become two tensors.

    Each array is written to its final place at once, since a later copy would cost as much as decoding. An image's 0.6 MB of
    float32 are in the processor's cache while they are written. Every batch has new memory, which the caller owns.
    """

    def __init__(self, size: int, shape: Sequence[int], dtype: Any, put: Callable[[Any, Any], None]) -> None:
        """`put(row, array)` converts an array into one row of that shape and dtype."""
        self._shape, self._dtype, self._put = (size, *shape), dtype, put
        self._rows: Any = None
        self._labels: list[int] = []

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def full(self) -> bool:
        return len(self) == self._shape[0]

    def add(self, array: Any, label: int) -> None:
        """Add an array. The caller may reuse the array's memory afterwards."""
        if self._rows is None:
            self._rows = np.empty(self._shape, self._dtype)
        self._put(self._rows[len(self)], array)
        self._labels.append(label)

    def take(self) -> tuple[Tensor, Tensor]:
        """Take the batch, which must hold at least one array; the next array begins another batch."""
        tensors = torch.from_numpy(self._rows[: len(self)]), torch.tensor(self._labels)
        self._rows, self._labels = None, []
        return tensors


def form_of(data: SplitData, options: StreamOptions, seed: int) -> Form:
    """The form of a split's records, by its manifest."""
    if data.manifest.vectors is not None:
        return Numbers(data.manifest.vectors)
    return Images(data, options, seed)


class Images:
    """JPEGs: views of float32[3, crop, crop] less the channels' means."""

    def __init__(self, data: SplitData, options: StreamOptions, seed: int) -> None:
        self._mean = np.array(data.manifest.channel_means, np.float32).reshape(3, 1, 1)
        self._workers = options.workers
        self._job = Job(
            seed=seed,
            shorter_edge=options.shorter_edge,
            crop=options.crop,
            centre=data.split != "train" and options.test_view == "centre",
            slots=slots_for(options.workers),
            input_bytes=INPUT_BYTES,
        )

    def decoders(self, feed: RecordQueue, fail: Fail) -> Decoders:
        return Decoders(feed, self._job, self._workers, fail)

    def batch(self, size: int) -> Batch:
        return Batch(size, (3, self._job.crop, self._job.crop), np.float32, self._put)

    def _put(self, row: Any, view: Any) -> None:
        # The same as `augment.subtract_mean`, in place: equal numbers in a quarter of the time.
        np.subtract(view, self._mean, out=row)
        np.divide(row, 255, out=row)


class Numbers:
    """Arrays of one shape, unchanged."""

    def __init__(self, form: VectorForm) -> None:
        self._form = form

    def decoders(self, feed: RecordQueue, fail: Fail) -> Source:
        return _Parser(feed, self._form, fail)

    def batch(self, size: int) -> Batch:
        return Batch(size, self._form.shape, self._form.dtype, np.copyto)


def header(form: VectorForm) -> bytes:
    """The bytes with which numpy's file of such an array begins."""
    out = io.BytesIO()
    np.save(out, np.zeros(form.shape, form.dtype))
    return out.getvalue()[: -np.zeros(form.shape, form.dtype).nbytes]


class _Parser:
    """Parses in the caller's thread: an array is the bytes that follow a header common to all records."""

    def __init__(self, feed: RecordQueue, form: VectorForm, fail: Fail) -> None:
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
