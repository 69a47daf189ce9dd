"""Prints an agent's Python stacks when its function takes no step for a minute: an endless loop, a deadlock, a slow start.

It uses `faulthandler`, whose thread is written in C and needs no lock of the interpreter, so it works while that lock is held.
The stacks of all threads go to descriptor 2, with the agent's prints; the first line is ``Timeout (0:01:00)!``. The driver
prints which agent they belong to (`driver.silence`). Time in which the agent waits for others does not count.

A child that is forked while the timer runs would wait at its end for a thread that it does not have, so the timer is stopped
during a fork.
"""

from __future__ import annotations

import faulthandler
import os

from mpca.clock import Clock
from mpca.timeouts import SILENT_S

__all__ = ["StallWatch"]

_STDERR = 2  # not sys.stderr, which the user may replace


class StallWatch:
    """One timer, which every sign of life restarts. After it has fired, it fires again only after twice the time."""

    def __init__(self, clock: Clock) -> None:
        self.after_s = SILENT_S
        self._clock = clock
        self._on = False
        self._since: float | None = None  # time of the last sign of life; None: the agent waits for others

    def begin(self) -> None:
        """Start to watch this process."""
        self._on = True
        os.register_at_fork(before=faulthandler.cancel_dump_traceback_later, after_in_parent=self._go_on)
        self.alive()

    def alive(self) -> None:
        """Restart the timer: a step was taken, or the function goes on. Costs some 100 us, for a thread."""
        if not self._on:
            return
        now = self._clock.now()
        if self._since is not None and now - self._since >= self.after_s:
            self.after_s = 2 * (now - self._since)
        self._since = now
        faulthandler.dump_traceback_later(self.after_s, file=_STDERR)

    def waits(self) -> None:
        """Stop the timer: the agent waits for others from now on."""
        if self._on:
            self._since = None
            faulthandler.cancel_dump_traceback_later()

    def _go_on(self) -> None:
        """Start the timer again after a fork, with the time that was left."""
        left = 0.0 if self._since is None else self._since + self.after_s - self._clock.now()
        if left > 0:  # otherwise the agent waits, or its stacks were printed
            faulthandler.dump_traceback_later(left, file=_STDERR)
