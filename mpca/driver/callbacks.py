"""A user's functions that hear what happens in a run. None of them can hold the run up.

Each `Callback` has a thread of its own and a queue of `MOST_WAITING` events: the driver's thread puts an event there, and never
waits. When the queue is full, its oldest event is dropped. A callback that is slow or raises is named in a warning, once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from mpca.errors import ConfigError
from mpca.records import AgentRecord, CycleRecord, EvaluationRecord, ExchangeRecord, Record, Sink, Summary, to_json
from mpca.timeouts import CALLBACKS_END_S

__all__ = ["Callback", "Callbacks", "check_callbacks"]

MOST_WAITING = 1000  # events of one callback

log = logging.getLogger("mpca.callbacks")


class Callback:
    """What a program does when something happens in its run: a subclass with some of these methods, given to `Distributor`.

    The methods are called on the driver, one after another, in a thread of this callback's own; the run never waits for them.
    `record` is a map as in `records.jsonl`. Events are dropped, the oldest first, when a thousand of them wait.

    Example:
        >>> class Printer(Callback):
        ...     def on_evaluation(self, record):
        ...         print(f"cycle {record['cycle']}: error {record['error']}")
    """

    def on_cycle(self, record: dict[str, Any]) -> None:
        """A cycle has ended; or an exchange of one agent, with a method whose agents ask by themselves."""

    def on_evaluation(self, record: dict[str, Any]) -> None:
        """The joint model was evaluated."""

    def on_agent_lost(self, record: dict[str, Any]) -> None:
        """An agent is gone."""

    def on_end(self, summary: dict[str, Any]) -> None:
        """The run has ended, however it did, and its files are written; `summary` is as in `summary.json`.

        The program goes on after five seconds, whether this has returned or not.
        """


_EVENTS = [name for name in vars(Callback) if name.startswith("on_")]


def check_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """The callbacks, if they are some.

    Raises:
        ConfigError: one is no `Callback`, or has a method for an event that does not exist.
    """
    found = tuple(callbacks)
    for one in found:
        if not isinstance(one, Callback):
            raise ConfigError(f"not a callback: {one!r}; give an object of a subclass of mpca.Callback")
        unknown = [name for name in dir(one) if name.startswith("on_") and name not in _EVENTS]
        if unknown:
            raise ConfigError(f"{type(one).__name__}.{unknown[0]}: no such event of a run; known are {', '.join(_EVENTS)}")
    return found


class Callbacks:
    """Of one run. A `Sink` before the run's own: what is written there is told, too.

    Args:
        sink: of the records.
        callbacks: who hears of them.
    """

    def __init__(self, sink: Sink, callbacks: Iterable[Callback]) -> None:
        self._sink, self._listeners = sink, [_Listener(one) for one in callbacks]

    def write(self, record: Record) -> None:
        """Write a record, and tell of it."""
        self._sink.write(record)
        if isinstance(record, (CycleRecord, ExchangeRecord)):
            self._tell("on_cycle", record)
        elif isinstance(record, EvaluationRecord):
            self._tell("on_evaluation", record)
        elif isinstance(record, AgentRecord) and record.event == "lost":
            self._tell("on_agent_lost", record)

    def end(self, summary: Summary) -> None:
        """The run has ended. Waits for the callbacks, but not long."""
        self._tell("on_end", summary)
        deadline = time.monotonic() + CALLBACKS_END_S
        for one in self._listeners:
            one.close()
        for one in self._listeners:
            one.wait(deadline - time.monotonic())

    def close(self) -> None:
        """Close the run's own sink."""
        self._sink.close()

    def _tell(self, name: str, what: Record | Summary) -> None:
        for one in self._listeners:
            one.tell(name, what)


class _Listener:
    """The thread of one callback, and the events that wait for it."""

    def __init__(self, callback: Callback) -> None:
        self._callback, self._who = callback, type(callback).__name__
        self._waiting: deque[tuple[str, Record | Summary]] = deque(maxlen=MOST_WAITING)
        self._changed = threading.Condition()
        self._closed = self._slow = False
        self._raised: set[str] = set()
        self._doing = ""
        self._thread = threading.Thread(target=self._run, name=f"mpca-callback-{self._who}", daemon=True)
        self._thread.start()

    def tell(self, name: str, what: Record | Summary) -> None:
        with self._changed:
            if len(self._waiting) == MOST_WAITING and not self._slow:
                self._slow = True
                log.warning("callback %s is too slow: %d events wait, and the oldest are dropped", self._who, MOST_WAITING)
            self._waiting.append((name, what))
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            log.warning("callback %s is still in %s; the run has ended without it", self._who, self._doing)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                self._doing, what = self._waiting.popleft()
            try:
                getattr(self._callback, self._doing)(asdict(what) if isinstance(what, Summary) else to_json(what))
            except BaseException:  # SystemExit too: it would end this thread without a word
                if self._doing not in self._raised:
                    self._raised.add(self._doing)
                    log.warning("callback %s raised in %s; the run goes on", self._who, self._doing, exc_info=True)
