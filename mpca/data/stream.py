"""An agent's endless batches of an ingested data set. Records are read ahead, and decoded by workers. Seeds decide the order.

::

    reader thread --records--> RecordQueue --> worker threads, worker processes --views--> batch thread --batches--> the caller

Memory beside the caller's own batch: `read_ahead` bytes of JPEGs (half of them in the shuffle window), the workers' slots, and
two batches. A batch may span two epochs, so all have the same size (BatchNorm would refuse a batch of one sample); with
`epochs`, the last batch may be smaller. Not for the agent's number, nor for the order of records: `stream_reader.py`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from mpca.data.cache import RecordCache
from mpca.data.device_decode import Jpegs
from mpca.data.forms import Source, form_of
from mpca.data.plan import Readers
from mpca.data.stream_bad import BadTally
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_position import StreamPosition
from mpca.data.stream_reader import ShareReader, SplitData
from mpca.data.workers import RecordQueue
from mpca.errors import ConfigError

__all__ = ["Stream", "Streamed"]

_Next = tuple[tuple[Tensor, Tensor], tuple[int, int]]  # a batch, and the stream's position after it
_CPU = torch.device("cpu")
_LOOK_S = 0.2  # a caller that waits for a batch looks this often whether the run is stopping


class Streamed:
    """A split of an ingested data set, which can be streamed."""

    def __init__(self, data: SplitData, options: StreamOptions, seed: int) -> None:
        self.data, self.options, self.seed = data, options, seed

    def __len__(self) -> int:
        return len(self.data)

    def stream(self, batch_size: int, *, agent: int = 0, agents: int = 1, incarnation: int = 0, **more: Any) -> Stream:
        """One agent's batches; arguments as of `Stream`."""
        return Stream(self, batch_size, agent=agent, agents=agents, incarnation=incarnation, **more)


class Stream:
    """Batches of (float32[n, 3, crop, crop], int64[n]), or of numbers in their own type and shape, on the agent's device.

    One iteration at a time. The thread that iterates sends a batch to the device, on its own stream there.
    """

    def __init__(
        self,
        streamed: Streamed,
        batch_size: int,
        *,
        agent: int,
        agents: int,
        incarnation: int,
        device: torch.device = _CPU,
        jpegs: Jpegs | None = None,
        stopping: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda samples: None,
        epochs: int | None = None,
        max_bad_fraction: float = 0.0,
        readers: Readers | None = None,
        tell_bad: Callable[[str, str], None] = lambda record, reason: None,
    ) -> None:
        """Check that the split can be streamed.

        Args:
            streamed: the split.
            batch_size: number of records of a batch.
            agent: the agent's number.
            agents: number of agents of the run.
            incarnation: counts the processes of this agent; changes the order inside its share.
            device: where batches are to lie.
            jpegs: decodes images, in place of processes.
            stopping: true when the run is ending; an iteration then ends.
            count: is called with the records of each batch before the caller gets it.
            epochs: number of epochs; None streams without end.
            max_bad_fraction: share of an epoch's records that may be bad.
            readers: the agents that read the data; None for all agents from epoch 0 on.
            tell_bad: is called with source and reason of each bad record, once per iteration, from another thread.

        Raises:
            ConfigError: `batch_size` is below 1, or there are fewer records than agents.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more: batch_size={batch_size}")
        self._streamed, self._batch_size, self._device, self._jpegs = streamed, batch_size, device, jpegs
        self._who = {"seed": streamed.seed, "agent": agent, "agents": agents, "incarnation": incarnation}
        self._stopping, self._count = stopping, count
        self._epochs, self._max_bad = epochs, max_bad_fraction
        self._readers, self._tell_bad = readers, tell_bad
        self._running: _Running | None = None
        #: Epoch, and number of units of this agent's share whose records the caller has finished: see `plan.Loss`.
        self.position = (0 if readers is None else readers.first(agent), 0)
        first = self._start()  # errors are raised here, before the first iteration
        self._records = first.reader.share_records
        first.close()

    def __len__(self) -> int:
        """Number of batches of an iteration. With ``epochs=None`` that of one epoch, which schedules need."""
        return -(-(self._epochs or 1) * self._records // self._batch_size)

    @property
    def ahead(self) -> int:
        """The newest epoch from which records were read."""
        return self._running.reader.ahead if self._running is not None else self.position[0]

    @property
    def bad(self) -> BadTally | None:
        """The bad records of the present iteration, or of the last one."""
        return self._running.tally if self._running is not None else None

    def update_readers(self, readers: Readers) -> None:
        """Replace the readers; the share changes with the next unit that is read."""
        self._readers = readers
        if self._running is not None:
            self._running.reader.readers = readers

    def worker_pids(self) -> list[int]:
        """The living decoding processes."""
        decoders = self._running.decoders if self._running is not None else None
        return decoders.pids() if decoders is not None else []

    def __iter__(self) -> Generator[tuple[Tensor, Tensor], None, None]:
        self._running = running = self._start()
        self.position = (running.reader.ahead, 0)
        try:
            running.start()
            while not self._stopping():
                found = running.next(self._stopping)
                if found is None:
                    return
                batch, position = found
                self._count(len(batch[1]))
                yield running.form.finish(batch, self._device)
                self.position = position  # the caller asks for another batch, so it has finished this one
        finally:
            running.close()

    def _start(self) -> _Running:
        bad = self._max_bad, self._tell_bad
        return _Running(self._streamed, self._batch_size, self._who, self._epochs, bad, self._readers, self._jpegs)


class _Closed(Exception):
    """The stream was closed while a thread waited."""


class _Running:
    """Threads, processes and memory of one iteration; `close` ends them."""

    def __init__(
        self,
        streamed: Streamed,
        batch_size: int,
        who: dict[str, int],
        epochs: int | None,
        bad: tuple[float, Callable[[str, str], None]],  # allowed share of bad records, and what is called for each
        readers: Readers | None,
        jpegs: Jpegs | None,
    ) -> None:
        options = streamed.options
        self._batch_size = batch_size
        self.form = form_of(streamed.data, options, streamed.seed, jpegs)
        self._cache = RecordCache(options.cache)
        window_bytes = options.read_ahead // 2  # another quarter waits in the feed, and the last is for the present read
        try:
            self.reader = ShareReader(
                streamed.data,
                window_bytes=window_bytes,
                cache=self._cache,
                epochs=epochs,
                wait=self._wait,
                readers=readers,
                **who,
            )
        except BaseException:
            self._cache.close()
            raise
        self.tally = BadTally(self.reader.share_records, *bad)
        self._feed = RecordQueue(options.read_ahead // 4)
        self.decoders: Source | None = None
        self._batches: queue.Queue[Any] = queue.Queue(maxsize=1)
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"mpca-{name}", daemon=True)
            for name, work in (("reader", self._read), ("batches", self._batch))
        ]

    def start(self) -> None:
        self.decoders = self.form.decoders(self._feed, self._fail)
        for thread in self._threads:
            thread.start()

    def next(self, stopping: Callable[[], bool]) -> _Next | None:
        """The next batch, and the position after it; None after the last epoch, or when the run is stopping."""
        while True:
            try:
                batch: _Next | BaseException | None = self._batches.get(timeout=_LOOK_S)
            except queue.Empty:
                if stopping():
                    return None
                continue
            if isinstance(batch, BaseException):
                raise batch
            return batch

    def close(self) -> None:
        self._closing.set()
        self._feed.close()
        if self.decoders is not None:
            self.decoders.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._cache.close()

    # ---- threads -------------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The caller gets this error in place of its next batch, or of the one after."""
        self._give(error)

    def _give(self, batch: Any) -> None:
        while not self._closing.is_set():
            try:
                self._batches.put(batch, timeout=_LOOK_S)
                return
            except queue.Full:
                continue

    def _read(self) -> None:
        for record in self.reader.records():
            if not self._feed.put(record):
                return
        self._feed.end()

    def _wait(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise _Closed

    def _batch(self) -> None:
        assert self.decoders is not None
        batch = self.form.batch(self._batch_size)
        handed = StreamPosition()
        for result in self.decoders.results():
            handed.add(result.record)
            if result.view is None:
                self.tally.add(result.record.number, result.record.where, result.reason)
                continue
            self.tally.good()
            batch.add(result.view, result.record.entry.label)
            if batch.full:
                self._give((batch.take(), handed.position))
        if len(batch):
            self._give((batch.take(), handed.position))
        self._give(None)
