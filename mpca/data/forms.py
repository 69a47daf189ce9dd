"""The forms of records: processes decode images, a thread parses numbers, and batches of both become tensors on a device.

`stream.py` and `evaluation_loader.py` get decoders and batches from a form. Images stay bytes until they are on the device: a
quarter of what float32 would take to collate and to send. Not for reading: `stream_reader.py`.
"""

from __future__ import annotations

import io
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from mpca.data.augment import subtract_mean
from mpca.data.device_decode import DeviceDecoder, Jpegs
from mpca.data.manifest import VectorForm
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import Record, SplitData
from mpca.data.workers import INPUT_BYTES, Decoders, RecordQueue, Result, slots_for
from mpca.data.workers_main import Job

__all__ = ["Batch", "Form", "Images", "Memory", "Numbers", "Source", "form_of", "header"]

Fail = Callable[[BaseException], None]
Tensors = tuple[Tensor, Tensor]
_KEPT = 2  # arrays whose memory waits to be used again: as many batches as a stream holds beside the caller's


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

    def finish(self, batch: Tensors, device: torch.device) -> Tensors:
        """What a model gets of a batch that was taken, on its device. The thread that uses it calls this, on its stream."""
        ...


class Memory:
    """Arrays of one shape, lent as tensors. The borrower owns his: it is used again only when nothing refers to it any more.

    New pages would cost more than writing them.
    """

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape, self._dtype = tuple(shape), dtype
        self._free: deque[Any] = deque(maxlen=_KEPT)

    def take(self) -> Any:
        """An array, for `lend`."""
        try:
            return self._free.pop()
        except IndexError:
            return np.empty(self.shape, self._dtype)

    def lend(self, array: Any, rows: int) -> Tensor:
        """The first rows of an array that was taken."""
        lent = array[:rows]  # an array of its own, which the tensor refers to, and every view of the tensor
        finalize(lent, self._free.append, array).atexit = False
        return torch.from_numpy(lent)


class Batch:
    """Arrays and their labels, which become two tensors. Each array is written to its final place at once."""

    def __init__(self, size: int, shape: Sequence[int], dtype: Any) -> None:
        self._memory = Memory((size, *shape), dtype)
        self._rows: Any = None
        self._labels: list[int] = []

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def full(self) -> bool:
        return len(self) == self._memory.shape[0]

    def add(self, array: Any, label: int) -> None:
        """Add an array. The caller may reuse the array's memory afterwards."""
        if self._rows is None:
            self._rows = self._memory.take()
        np.copyto(self._rows[len(self)], array)
        self._labels.append(label)

    def take(self) -> Tensors:
        """Take the batch, which must hold at least one array; the next array begins another batch."""
        tensors = self._memory.lend(self._rows, len(self)), torch.tensor(self._labels)
        self._rows, self._labels = None, []
        return tensors


def form_of(data: SplitData, options: StreamOptions, seed: int, jpegs: Jpegs | None = None) -> Form:
    """The form of a split's records, by its manifest; `jpegs` decodes images in place of processes."""
    if data.manifest.vectors is not None:
        return Numbers(data.manifest.vectors)
    return Images(data, options, seed, jpegs)


class Images:
    """JPEGs: batches of uint8[n, 3, crop, crop], which on the device become float32 less the channels' means."""

    def __init__(self, data: SplitData, options: StreamOptions, seed: int, jpegs: Jpegs | None) -> None:
        self._jpegs = jpegs
        self._mean = torch.tensor(data.manifest.channel_means)
        self._workers = options.workers
        self._job = Job(
            seed=seed,
            shorter_edge=options.shorter_edge,
            crop=options.crop,
            centre=data.split != "train" and options.test_view == "centre",
            slots=slots_for(options.workers),
            input_bytes=INPUT_BYTES,
        )

    def decoders(self, feed: RecordQueue, fail: Fail) -> Source:
        if self._jpegs is not None:
            return DeviceDecoder(feed, self._job, self._jpegs)
        return Decoders(feed, self._job, self._workers, fail)

    def batch(self, size: int) -> Batch:
        shape = (3, self._job.crop, self._job.crop)
        self._floats = Memory((size, *shape), np.float32)
        return Batch(size, shape, np.uint8)

    def finish(self, batch: Tensors, device: torch.device) -> Tensors:
        pixels, labels = batch[0].to(device), batch[1].to(device)
        self._mean = self._mean.to(device)
        if device.type != "cpu":  # torch itself uses a GPU's memory again
            return subtract_mean(pixels, self._mean, torch.empty_like(pixels, dtype=torch.float32)), labels
        images = self._floats.lend(self._floats.take(), len(pixels))
        for bytes_of, image in zip(pixels, images, strict=True):  # one by one they stay in the processor's cache
            subtract_mean(bytes_of, self._mean, image)
        return images, labels


class Numbers:
    """Arrays of one shape, unchanged."""

    def __init__(self, form: VectorForm) -> None:
        self._form = form

    def decoders(self, feed: RecordQueue, fail: Fail) -> Source:
        return _Parser(feed, self._form, fail)

    def batch(self, size: int) -> Batch:
        return Batch(size, self._form.shape, self._form.dtype)

    def finish(self, batch: Tensors, device: torch.device) -> Tensors:
        return batch[0].to(device), batch[1].to(device)


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
