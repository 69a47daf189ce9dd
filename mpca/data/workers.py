"""Decodes in worker processes that may crash. Views leave in the order of the records, whichever worker is faster.

Each worker has a thread, which sends it records, waits for its answers, and starts it again after a crash. A crash costs only
the record that the worker was decoding. A record that killed three workers is not tried again. Memory is that of the slots.
Not for reading, nor for batches: `stream.py`.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from mpca.data.child import Child
from mpca.data.stream_reader import Record
from mpca.data.workers_main import BAD, COUNTS, FRAME, READY, REASON, Job
from mpca.errors import MpcaError

__all__ = ["CRASHES", "INPUT_BYTES", "Decoders", "RecordQueue", "Result", "slots_for"]

#: A record that killed this many workers is not tried again.
CRASHES = 3
#: Longer JPEGs go over the socket. ImageNet's mean is 110 KB; 35 KB when encoded again with a shorter edge of 256.
INPUT_BYTES = 256 << 10
#: Records that a worker has in hand. Its thread here can wait 5 ms for the interpreter's lock, while it decodes a dozen: with 8
#: it was idle for 5 % of the time, with 16 for 1 %.
_DEPTH = 16
_TELL = 8  # it answers after so many: each answer wakes a thread here, and that one others
_SPARE = 16  # slots for views that are ready before an earlier one


def slots_for(workers: int) -> int:
    """Number of slots that keep `workers` workers busy."""
    return 2 * _DEPTH * workers + _SPARE


@dataclass(frozen=True, slots=True)
class Result:
    """A record and its view, uint8[3, crop, crop]; or the reason why it has none."""

    record: Record
    view: npt.NDArray[np.uint8] | None
    reason: str = ""


class RecordQueue:
    """A queue of records for the workers, limited in bytes. One thread puts, many take. Records get numbers in their order."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._held = limit_bytes, 0
        self._waiting: deque[Record] = deque()
        self._taken = 0
        self._ended = self._closed = False
        self._lock = threading.Lock()
        self._there, self._room = threading.Condition(self._lock), threading.Condition(self._lock)

    def put(self, record: Record) -> bool:
        """Wait for room, and add a record; False when the feed is closed."""
        with self._lock:
            if self._held >= self._limit:  # a full queue is filled again when half is gone, not record by record
                self._room.wait_for(lambda: self._closed or self._held <= self._limit // 2)
            self._waiting.append(record)
            self._held += record.held_bytes
            self._there.notify()
            return not self._closed

    def end(self) -> None:
        """No more records will be put."""
        with self._lock:
            self._ended = True
            self._there.notify_all()

    def close(self) -> None:
        """Drop all records; no more will be taken."""
        with self._lock:
            self._ended = self._closed = True
            self._waiting.clear()
            self._there.notify_all()
            self._room.notify_all()

    def take(self, wait: bool) -> tuple[int, Record] | None:
        """The next record and its number; None at the end, or when no record is there and `wait` is false."""
        with self._lock:
            if wait:
                self._there.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return None
            record = self._waiting.popleft()
            self._held -= record.held_bytes
            self._taken += 1
            if self._held <= self._limit // 2:
                self._room.notify_all()
            return self._taken - 1, record

    @property
    def numbered(self) -> int:
        """Number of records that were taken; once the feed has ended and is empty, the number of all."""
        return self._taken

    @property
    def done(self) -> bool:
        return self._ended and not self._waiting


@dataclass(slots=True)
class _Flight:
    number: int
    slot: int
    record: Record


class Decoders:
    """Workers on one feed. `results` gives each record of the feed once, in order. Close it when done."""

    def __init__(self, feed: RecordQueue, job: Job, workers: int, on_error: Callable[[BaseException], None]) -> None:
        self._feed, self._job, self._on_error = feed, job, on_error
        self._memory_fd = os.memfd_create("mpca-views")
        os.ftruncate(self._memory_fd, job.memory_bytes)
        self._memory = mmap.mmap(self._memory_fd, job.memory_bytes)
        self._free: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        for slot in range(job.slots):
            self._free.put(slot)
        self._taking = threading.Lock()
        self._results: dict[int, tuple[_Flight, str | None]] = {}
        self._arrived = threading.Condition()
        self._wanted = 0
        self._closing = self._failed = False
        self._answered: dict[int, int] = {}  # by worker, since it was started
        self._crashes: Counter[int] = Counter()
        self._children: dict[int, Child] = {}
        self.restarts = 0
        self._threads = [
            threading.Thread(target=self._guarded, args=(worker,), name=f"mpca-decoder-{worker}", daemon=True)
            for worker in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[Result]:
        """Yield each record of the feed, in order. A view is memory of its slot, and valid until the next result is taken."""
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._wanted in self._results or self._over())
                if self._closing or self._wanted not in self._results:
                    return
                flight, reason = self._results.pop(self._wanted)
                self._wanted += 1
                view = None
                if reason is None:
                    at, crop = self._job.view_at(flight.slot), self._job.crop
                    view = np.frombuffer(self._memory, np.uint8, self._job.view_bytes, at).reshape(3, crop, crop)
            yield Result(flight.record, view, reason or "")
            del view
            self._free.put(flight.slot)

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return [child.pid for child in list(self._children.values())]

    def close(self) -> None:
        """End the workers and free the memory; safe to call twice."""
        if self._closing:
            return
        self._closing = True
        self._feed.close()
        with self._arrived:
            self._arrived.notify_all()
        for child in list(self._children.values()):
            child.kill()
        for _ in self._threads:
            self._free.put(None)
        for thread in self._threads:
            thread.join()
        with self._arrived:  # no thread makes a view now
            del self._memory  # unmapped with the last view
        os.close(self._memory_fd)

    # ---- one worker's thread -------------------------------------------------------------------------------------------

    def _guarded(self, worker: int) -> None:
        try:
            self._work(worker)
        except BaseException as error:
            if not self._closing:
                self._failed = True
                self._on_error(error)
        finally:
            with self._arrived:
                self._arrived.notify_all()

    def _work(self, worker: int) -> None:
        flights: deque[_Flight] = deque()
        while not self._closing:
            child = self._start(worker)
            try:
                if self._serve(worker, child, flights):
                    child.connection.close()  # the child ends when its socket closes
                    return
            finally:
                how = child.reap()  # its counts are read after its end, when they are those of its end
                begun, done = COUNTS.unpack_from(self._memory, COUNTS.size * worker) if not self._closing else (0, 0)
                del self._children[worker]
            self.restarts += 1
            died_of = done - self._answered[worker]  # what it had done, and not told, the next one decodes again
            if begun > done and died_of < len(flights):
                flight = flights[died_of]
                del flights[died_of]
                self._crashes[flight.record.number] += 1
                self._finish([(flight, f"the decoder died of it: {how}")])
                flights = deque(one for one in flights if not self._given_up(one))

    def _start(self, worker: int) -> Child:
        how = ""
        for _ in range(CRASHES):
            COUNTS.pack_into(self._memory, COUNTS.size * worker, 0, 0)
            self._answered[worker] = 0
            child = Child(
                "mpca.data.workers_main", json.dumps(asdict(self._job)), worker, self._memory_fd, pass_fds=(self._memory_fd,)
            )
            self._children[worker] = child
            if self._closing:
                child.kill()
            if _read(child.connection.fileno(), 1) == READY or self._closing:
                return child
            how = child.reap()
        raise MpcaError(f"a decoding process does not start: {how}")

    def _serve(self, worker: int, child: Child, flights: deque[_Flight]) -> bool:
        """Send records to a child until the feed ends (True) or the child ends (False). Records of a dead child come first."""
        words = child.connection.fileno()
        self._send(words, list(flights))
        while True:
            fresh: list[_Flight] = []
            while len(flights) + len(fresh) < _DEPTH and (flight := self._next(wait=not flights and not fresh)):
                fresh.append(flight)
            flights.extend(fresh)
            if not flights:
                return True
            self._send(words, fresh)
            answers = _read(words, _DEPTH)
            if not answers:
                return False
            self._answered[worker] += len(answers)
            told = [(flights.popleft(), answer) for answer in answers]
            self._finish([(flight, self._reason(flight) if answer == BAD[0] else None) for flight, answer in told])

    def _next(self, wait: bool) -> _Flight | None:
        """Take a slot first and a record second, so that the record that `results` waits for always has a slot."""
        while True:
            if not self._taking.acquire(blocking=wait):
                return None
            try:
                try:
                    slot = self._free.get(block=wait)
                except queue.Empty:
                    return None
                taken = self._feed.take(wait) if slot is not None else None
                if slot is None or taken is None:
                    self._free.put(slot)
                    return None
            finally:
                self._taking.release()
            flight = _Flight(taken[0], slot, taken[1])
            if not self._given_up(flight):
                return flight

    def _given_up(self, flight: _Flight) -> bool:
        """Whether no worker gets this record; if so, finish it."""
        if flight.record.jpeg is None:
            self._finish([(flight, flight.record.reason)])
        elif self._crashes[flight.record.number] >= CRASHES:
            self._finish([(flight, f"decoders died of it {CRASHES} times: it is not tried again")])
        else:
            return False
        return True

    def _send(self, words: int, flights: list[_Flight]) -> None:
        out = bytearray()
        for number, flight in enumerate(flights, start=1):
            entry, jpeg = flight.record.entry, flight.record.jpeg
            assert jpeg is not None
            inline = len(jpeg) > self._job.input_bytes
            tell = number % _TELL == 0 or number == len(flights)
            out += FRAME.pack(flight.slot, len(jpeg), entry.crc, inline, tell, flight.record.epoch, flight.record.number)
            if inline:
                out += jpeg
            else:
                at = self._job.input_at(flight.slot)
                self._memory[at : at + len(jpeg)] = jpeg
        view = memoryview(out)
        # The worker may have died: its caller reads its last answers, and then its end.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while view:
                view = view[os.write(words, view) :]

    def _reason(self, flight: _Flight) -> str:
        at = self._job.view_at(flight.slot)
        length = REASON.unpack_from(self._memory, at)[0]
        return self._memory[at + REASON.size : at + REASON.size + length].decode(errors="replace")

    def _finish(self, those: Sequence[tuple[_Flight, str | None]]) -> None:
        with self._arrived:
            self._results.update((flight.number, (flight, reason)) for flight, reason in those)
            if self._wanted in self._results:
                self._arrived.notify_all()

    def _over(self) -> bool:
        return self._closing or self._failed or (self._feed.done and self._wanted >= self._feed.numbered)


def _read(words: int, length: int) -> bytes:
    try:
        return os.read(words, length)
    except ConnectionResetError:  # the child died before it read all of our frames
        return b""
