"""Callbacks hear what they should, in order; one that is slow, hangs or raises is named, and holds nothing up."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mpca import Callback
from mpca.driver import callbacks as module
from mpca.driver.callbacks import MOST_WAITING, Callbacks
from mpca.records import MemorySink, Record, Summary, make
from tests.records.test_records import SAMPLES
from tests.support.fake_executor import wait_until

SUMMARY = Summary("reached", "error 0.02", "mpca", 2, 0, 12.5, 0.5)


class Listens(Callback):
    """To everything."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.threads: set[str] = set()

    def _hear(self, name: str, record: dict[str, Any]) -> None:
        self.heard.append((name, record))
        self.threads.add(threading.current_thread().name)

    def on_cycle(self, record: dict[str, Any]) -> None:
        self._hear("cycle", record)

    def on_evaluation(self, record: dict[str, Any]) -> None:
        self._hear("evaluation", record)

    def on_agent_lost(self, record: dict[str, Any]) -> None:
        self._hear("lost", record)

    def on_end(self, summary: dict[str, Any]) -> None:
        self._hear("end", summary)


class Waits(Callback):
    """In its first event, until it is let go."""

    def __init__(self) -> None:
        self.cycles: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def on_cycle(self, record: dict[str, Any]) -> None:
        self.begun.set()
        self.go.wait()
        self.cycles.append(record["cycle"])


@pytest.fixture
def waits() -> Iterator[Waits]:
    one = Waits()
    yield one
    one.go.set()
    wait_until(lambda: "mpca-callback-Waits" not in {thread.name for thread in threading.enumerate()}, "the end of its thread")


def record(kind: str, t: float = 1.0, **more: Any) -> Record:
    return make(kind, t, {**SAMPLES[kind], **more})


def test_each_hears_the_records_of_its_events_in_their_order_in_a_thread_of_its_own() -> None:
    memory, one, other = MemorySink(), Listens(), Listens()
    told = Callbacks(memory, [one, other])
    written = [record(kind) for kind in SAMPLES] + [record("agent", event="started")]
    for each in written:
        told.write(each)
    told.end(SUMMARY)
    assert memory.records == written
    assert [(name, what.get("kind")) for name, what in one.heard] == [
        ("lost", "agent"), ("cycle", "cycle"), ("cycle", "exchange"), ("evaluation", "evaluation"), ("end", None),
    ]  # fmt: skip
    assert one.heard[1][1]["contributors"]["11"] == {"incarnation": 2, "tau": 9, "crc": 5}
    assert (one.heard[-1][1]["status"], one.heard[-1][1]["seconds"]) == ("reached", 12.5)
    assert other.heard == one.heard
    assert other.heard[1][1] is not one.heard[1][1], "what one of them changes, the other does not see"
    assert one.threads == {"mpca-callback-Listens"}


def test_one_that_raises_is_named_once_and_hears_on(caplog: pytest.LogCaptureFixture) -> None:
    class Raises(Listens):
        def on_cycle(self, record: dict[str, Any]) -> None:
            super().on_cycle(record)
            sys.exit(3)

        def on_evaluation(self, record: dict[str, Any]) -> None:
            raise ValueError("no room")

    one, other = Raises(), Listens()
    told = Callbacks(MemorySink(), [one, other])
    for _ in range(3):
        told.write(record("cycle"))
        told.write(record("evaluation"))
    told.end(SUMMARY)
    assert [name for name, _ in one.heard] == ["cycle", "cycle", "cycle", "end"]
    assert len(other.heard) == 7
    assert caplog.messages == [f"callback Raises raised in {name}; the run goes on" for name in ("on_cycle", "on_evaluation")]
    assert "ValueError: no room" in caplog.text


def test_a_slow_one_holds_nobody_up_and_loses_the_oldest_events(waits: Waits, caplog: pytest.LogCaptureFixture) -> None:
    other = Listens()
    told = Callbacks(MemorySink(), [waits, other])
    told.write(record("cycle", cycle=0))
    assert waits.begun.wait(60)
    for cycle in range(1, MOST_WAITING + 6):
        told.write(record("cycle", cycle=cycle))
        if cycle % 100 == 0:
            wait_until(lambda expected=cycle: len(other.heard) > expected, "the other callback")
    (message,) = caplog.messages
    assert message == f"callback Waits is too slow: {MOST_WAITING} events wait, and the oldest are dropped"
    waits.go.set()
    told.end(SUMMARY)
    assert waits.cycles == [0, *range(7, MOST_WAITING + 6)], "on_end took the place of one more"


def test_one_that_hangs_is_named_at_the_end_and_left_alone(
    waits: Waits, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALLBACKS_END_S", 0.25)
    other = Listens()
    told = Callbacks(MemorySink(), [waits, other])
    told.write(record("cycle"))
    assert waits.begun.wait(60)
    with caplog.at_level(logging.WARNING):
        told.end(SUMMARY)
    assert caplog.messages == ["callback Waits is still in on_cycle; the run has ended without it"]
    wait_until(lambda: [name for name, _ in other.heard] == ["cycle", "end"], "the other callback")
