"""Repeated passes over a whole split by the same decoding processes, for evaluation.

Each pass gives the same batches: the views of the first epoch. Decoders stay idle between passes, since starting them takes a
second or more, which is longer than many evaluations. Not for training: `stream.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from mpca.data.cache import RecordCache
from mpca.data.forms import Source, form_of
from mpca.data.stream import Streamed
from mpca.data.stream_bad import BadTally
from mpca.data.stream_reader import ShareReader
from mpca.data.workers import RecordQueue, Result

__all__ = ["EvaluationLoader"]

_CPU = torch.device("cpu")  # of the evaluator's process


class EvaluationLoader:
    """Each iteration is one pass; only one may run at a time. After a pass that ends early the next starts new decoders.

    Close it when done.
    """

    def __init__(self, streamed: Streamed, batch_size: int, max_bad_fraction: float = 0.0) -> None:
        self._streamed, self._batch_size, self._max_bad = streamed, batch_size, max_bad_fraction
        self._form = form_of(streamed.data, streamed.options, streamed.seed)
        self._feed: RecordQueue | None = None
        self._decoders: Source | None = None
        self._results: Iterator[Result] = iter(())
        self._closing = threading.Event()
        self._failed: BaseException | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of all records; the last batch may be smaller.

        Raises:
            BadRecords: more records are bad than `max_bad_fraction` allows.
            OSError: the storage failed.
        """
        if self._decoders is None:
            self._start()
        reader = self._reader()
        feeder = threading.Thread(target=self._read, args=(reader,), name="mpca-reader", daemon=True)
        feeder.start()
        whole = False
        try:
            yield from self._batches(BadTally(reader.share_records, self._max_bad))
            whole = self._failed is None
        finally:
            if not whole:  # the next pass must not receive this one's remaining records
                self.close()
            feeder.join()
        if self._failed is not None:
            raise self._failed

    def worker_pids(self) -> list[int]:
        """The living decoding processes."""
        return self._decoders.pids() if self._decoders is not None else []

    def close(self) -> None:
        """End the decoding processes; safe to call twice."""
        self._closing.set()
        if self._decoders is not None:
            self._decoders.close()
            self._decoders, self._results = None, iter(())

    def _start(self) -> None:
        self._closing, self._failed = threading.Event(), None
        self._feed = RecordQueue(self._streamed.options.read_ahead // 2)
        self._decoders = self._form.decoders(self._feed, self._fail)
        self._results = self._decoders.results()

    def _fail(self, error: BaseException) -> None:
        self._failed = self._failed or error

    def _reader(self) -> ShareReader:
        return ShareReader(
            self._streamed.data,
            seed=self._streamed.seed,
            agent=0,
            agents=1,
            incarnation=0,
            window_bytes=self._streamed.options.read_ahead // 2,
            cache=RecordCache(0),
            epochs=1,
            wait=self._wait,
        )

    def _wait(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise InterruptedError("nobody reads any more")

    def _read(self, reader: ShareReader) -> None:
        assert self._feed is not None
        try:
            for record in reader.records():
                if not self._feed.put(record):
                    return
        except BaseException as error:
            self._fail(error)
            self._feed.close()  # ends the wait of all threads that want records

    def _batches(self, tally: BadTally) -> Iterator[tuple[Tensor, Tensor]]:
        batch = self._form.batch(self._batch_size)
        for result in islice(self._results, len(self._streamed)):
            if result.view is None:
                tally.add(result.record.number, result.record.where, result.reason)
                continue
            tally.good()
            batch.add(result.view, result.record.entry.label)
            if batch.full:
                yield self._form.finish(batch.take(), _CPU)
        if len(batch) and self._failed is None:
            yield self._form.finish(batch.take(), _CPU)
