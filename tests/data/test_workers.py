"""A record that its decoder dies of, again and again."""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path

from mpca.data.index import Entry
from mpca.data.plan import Unit
from mpca.data.stream_reader import Record
from mpca.data.workers import CRASHES, Decoders, RecordQueue
from mpca.data.workers_main import Job
from tests.data.pictures import jpeg
from tests.support.fake_executor import wait_until

JOB = Job(seed=1, shorter_edge=256, crop=224, centre=True, slots=12, input_bytes=16 << 10)


def record(number: int, data: bytes | None, epoch: int = 0) -> Record:
    entry = Entry(0, len(data or b""), zlib.crc32(data or b""), 0, str(number))
    return Record(number, epoch, Unit(0, number, 1), number, entry, data, str(number), "" if data is not None else "not read")


def test_results_come_in_order_with_the_reasons_of_those_that_are_none() -> None:
    feed, errors = RecordQueue(1 << 20), []
    good, long = jpeg(1), jpeg(2) + bytes(20 << 10)  # one that does not fit into its slot
    for number in range(30):
        feed.put(record(number, {0: None, 1: b"text", 2: long}.get(number % 7, good)))
    feed.end()
    decoders = Decoders(feed, JOB, 2, errors.append)
    try:
        results = list(decoders.results())
    finally:
        decoders.close()
    assert [result.record.number for result in results] == list(range(30))
    for result in results:
        kind = result.record.number % 7
        assert (result.view is None) == (kind < 2)
        assert result.reason.startswith({0: "not read", 1: "neither JPEG nor PNG"}.get(kind, ""))
    assert errors == []


def test_a_record_that_decoders_die_of_three_times_is_not_tried_again() -> None:
    feed, errors = RecordQueue(1 << 20), []
    good, deadly = jpeg(1), jpeg(2, edge=300)  # scaling imports torch, which takes long enough to be caught at
    for epoch in range(CRASHES + 2):
        feed.put(record(0, good, epoch))
        feed.put(record(1, deadly, epoch))
    feed.end()
    decoders = Decoders(feed, JOB, 1, errors.append)
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while len(killed) < CRASHES and time.monotonic() < deadline:
            for pid in decoders.pids():
                try:
                    at_it = "libtorch" in Path(f"/proc/{pid}/maps").read_text()
                except OSError:
                    continue
                if at_it and pid not in killed:
                    os.kill(pid, signal.SIGSEGV)
                    killed.append(pid)
            time.sleep(0.002)  # often: each decoder is at it for a moment only

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        results = list(decoders.results())
    finally:
        killer.join()
        decoders.close()
    assert len(killed) == CRASHES
    assert all(result.view is not None for result in results if result.record.number == 0), "nobody else pays for it"
    reasons = [result.reason for result in results if result.record.number == 1]
    died = "the decoder died of it: signal 11 (SIGSEGV)"
    assert reasons == [died] * CRASHES + [f"decoders died of it {CRASHES} times: it is not tried again"] * 2
    assert decoders.restarts == CRASHES
    assert errors == []


def test_closing_in_the_middle_leaves_nothing() -> None:
    feed = RecordQueue(1 << 20)
    for number in range(40):
        feed.put(record(number, jpeg(1)))
    decoders = Decoders(feed, JOB, 2, lambda error: None)
    results = decoders.results()
    next(results)
    decoders.close()
    decoders.close()
    assert list(results) == []


def test_a_queue_that_was_full_is_filled_again_when_half_of_it_is_gone() -> None:
    feed = RecordQueue(100)
    putter = threading.Thread(target=lambda: [feed.put(record(number, bytes(20))) for number in range(8)])
    putter.start()
    for taken in range(3):
        wait_until(lambda: feed._room._waiters, "a full queue")  # type: ignore[attr-defined]
        assert feed._held == 100 - 20 * taken
        assert feed.take(wait=False) is not None
    putter.join(60)
    assert feed._held == 100, "the other three came at once"
    feed.close()


def test_a_worker_tells_of_several_records_at_once_and_of_the_last_ones_when_there_are_no_more() -> None:
    feed, finished = RecordQueue(1 << 20), []
    for number in range(9):
        feed.put(record(number, jpeg(1)))

    class Watched(Decoders):
        def _finish(self, those) -> None:
            finished.append(len(those))
            super()._finish(those)

    decoders = Watched(feed, replace(JOB, slots=20), 1, lambda error: None)
    try:
        results = decoders.results()
        for _ in range(9):  # the queue has not ended: nothing more may ever come
            assert next(results).view is not None
    finally:
        decoders.close()
    assert sum(finished) == 9
    assert max(finished) > 1
