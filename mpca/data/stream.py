"""An agent's endless batches of an ingested data set: read ahead, decoded by workers, in an order that only seeds decide.

::

    reader thread --records--> RecordQueue --> worker threads, worker processes --views--> batch thread --batches--> the caller

Memory above that of the caller's own batch: `read_ahead` bytes of JPEGs (half in the shuffle window), the workers' slots,
and two batches. Batches run on over the edge of an epoch, so that none is smaller than the others (a batch of one would be
refused by BatchNorm); with `epochs`, the last one is. Not for who the agent is, nor for reading order: `stream_reader.py`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from mpca.data.cache import RecordCache
from mpca.data.forms import Source, form_of
from mpca.data.plan import Membership
from mpca.data.stream_bad import BadTally
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_position import StreamPosition
from mpca.data.stream_reader import Reader, SplitData
from mpca.data.workers import RecordQueue
from mpca.errors import ConfigError

__all__ = ["Stream", "Streamed"]

_LOOK_S = 0.2  # how often a caller that waits for a batch asks whether the run is stopping


class Streamed:
    """A split of an ingested data set, ready to be streamed by somebody."""

    def __init__(self, data: SplitData, options: StreamOptions, seed: int) -> None:
        self.data, self.options, self.seed = data, options, seed

    def __len__(self) -> int:
        return len(self.data)

    def stream(self, batch_size: int, *, agent: int = 0, agents: int = 1, incarnation: int = 0, **more: Any) -> Stream:
        """One agent's batches; `more` as for `Stream`."""
        return Stream(self, batch_size, agent=agent, agents=agents, incarnation=incarnation, **more)


class Stream:
    """Batches of (float32[n, 3, crop, crop], int64[n]), or of numbers as they were written. One iteration at a time."""

    def __init__(
        self,
        streamed: Streamed,
        batch_size: int,
        *,
        agent: int,
        agents: int,
        incarnation: int,
        stopping: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda samples: None,
        epochs: int | None = None,
        max_bad_fraction: float = 0.0,
        membership: Membership | None = None,
        tell_bad: Callable[[str, str], None] = lambda record, reason: None,
    ) -> None:
        """`tell_bad` hears of every record that is bad, once in an iteration, from a thread of the stream's."""
        if batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more: batch_size={batch_size}")
        self._streamed, self._batch_size = streamed, batch_size
        self._who = {"seed": streamed.seed, "agent": agent, "agents": agents, "incarnation": incarnation}
        self._stopping, self._count = stopping, count
        self._epochs, self._max_bad = epochs, max_bad_fraction
        self._membership, self._tell_bad = membership, tell_bad
        self._running: _Running | None = None
        #: Epoch, and units of this agent's share of it whose records the caller has done with: see `plan.Loss`.
        self.position = (0 if membership is None else membership.first(agent), 0)
        first = self._start()  # what cannot be streamed is refused here, before anybody iterates
        self._records = first.reader.share_records
        first.close()

    def __len__(self) -> int:
        """Batches of one iteration; of one epoch when it ends with the run alone, as schedules count."""
        return -(-(self._epochs or 1) * self._records // self._batch_size)

    @property
    def ahead(self) -> int:
        """The newest epoch of which something was read already."""
        return self._running.reader.ahead if self._running is not None else self.position[0]

    @property
    def bad(self) -> BadTally | None:
        """The bad records of the iteration that goes on, or of the last one."""
        return self._running.tally if self._running is not None else None

    def update_members(self, membership: Membership) -> None:
        """Take in that agents were lost or joined; from its next unit on the share is the new one."""
        self._membership = membership
        if self._running is not None:
            self._running.reader.membership = membership

    def worker_pids(self) -> list[int]:
        """The living decoding processes."""
        decoders = self._running.decoders if self._running is not None else None
        return decoders.pids() if decoders is not None else []

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
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
                yield batch
                self.position = position  # its caller has come for more
        finally:
            running.close()

    def _start(self) -> _Running:
        bad = self._max_bad, self._tell_bad
        return _Running(self._streamed, self._batch_size, self._who, self._epochs, bad, self._membership)


class _Closed(Exception):
    """Nobody wants what a thread waits for."""


class _Running:
    """One iteration: its threads, processes and memory, and their end."""

    def __init__(
        self,
        streamed: Streamed,
        batch_size: int,
        who: dict[str, int],
        epochs: int | None,
        bad: tuple[float, Callable[[str, str], None]],  # the share that is allowed, and who is told of each
        membership: Membership | None,
    ) -> None:
        options = streamed.options
        self._batch_size = batch_size
        self._form = form_of(streamed.data, options, streamed.seed)
        self._cache = RecordCache(options.cache)
        window_bytes = options.read_ahead // 2  # a quarter waits in the feed, another is the read that goes on
        try:
            self.reader = Reader(
                streamed.data,
                window_bytes=window_bytes,
                cache=self._cache,
                epochs=epochs,
                wait=self._wait,
                membership=membership,
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
        self.decoders = self._form.decoders(self._feed, self._fail)
        for thread in self._threads:
            thread.start()

    def next(self, stopping: Callable[[], bool]) -> tuple[tuple[Tensor, Tensor], tuple[int, int]] | None:
        """The next batch, and where the stream is after it; None at the end of the last epoch, or when the run is stopping."""
        while True:
            try:
                batch = self._batches.get(timeout=_LOOK_S)
            except queue.Empty:
                if stopping():
                    return None
                continue
            if isinstance(batch, BaseException):
                raise batch
            return batch  # type: ignore[no-any-return]

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
        """The caller gets it instead of its next batch, or of the one after that."""
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
        batch = self._form.batch(self._batch_size)
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
