"""SIGINT, SIGTERM and SIGHUP while a run goes on: they break a start off, and ask a running run for an orderly end.

The handler only notes the signal; the run's loop looks at it between two events, where stopping is safe. While the run starts
there is no loop yet, and the thread may be inside a long call: then the handler raises. It also raises at the third signal.

SIGHUP says that the terminal is gone. If it was ignored before (`nohup`), it stays ignored. Only the first SIGHUP counts: for
one terminal the kernel sends it twice and the shell once more, and that is no sign of impatience.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["Interrupted", "Signals"]

_PATIENCE = 2


class Interrupted(KeyboardInterrupt):
    """A signal broke a start off, or came for the third time."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum
        self.exit_code = 128 + signum


class Signals:
    """A context manager. It does nothing outside the main thread, since Python lets no other thread handle signals."""

    WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.caught: int | None = None  # the first signal
        self.looked_at = False  # whether a loop reads `caught`
        self._count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            watched = [one for one in self.WATCHED if one != signal.SIGHUP or not ignored]
            self._before = {one: signal.signal(one, self._handle) for one in watched}
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def again(self) -> None:
        """Install the handlers once more: a starting SparkContext takes SIGINT for itself."""
        for one in self._before:
            signal.signal(one, self._handle)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGHUP and self.caught is not None:
            return
        self.caught = self.caught or signum
        self._count += 1
        if not self.looked_at or self._count > _PATIENCE:
            raise Interrupted(signum)
