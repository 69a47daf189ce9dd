"""Shows where an agent's Python is when its function has taken no step for a minute: an endless loop, a deadlock, a slow start.

By `faulthandler`, whose thread is C's and waits for no lock of the interpreter, so that it also speaks for one that holds it.
The stacks of all threads go to descriptor 2, with what the agent prints; the first line is ``Timeout (0:01:00)!``. The driver
says beside it whose they are (`driver.silence`). Not for time in which the agent waits for others.

A child that was forked while the timer runs would wait at its end for a thread that it does not have, so none runs then.
"""

from __future__ import annotations

import faulthandler
import os

from mpca.clock import Clock
from mpca.timeouts import SILENT_S

__all__ = ["StallWatch"]

_STDERR = 2  # sys.stderr is the user's to replace


class StallWatch:
    """One timer, which every sign of life sets anew. What was so slow once is shown again only when it takes twice as long."""

    def __init__(self, clock: Clock) -> None:
        self.after_s = SILENT_S
        self._clock = clock
        self._on = False
        self._since: float | None = None  # of the last sign of life; None: it waits for others

    def begin(self) -> None:
        """From here on, in this process."""
        self._on = True
        os.register_at_fork(before=faulthandler.cancel_dump_traceback_later, after_in_parent=self._go_on)
        self.alive()

    def alive(self) -> None:
        """A step was taken, or the function goes on. Costs some 100 us: a thread."""
        if not self._on:
            return
        now = self._clock.now()
        if self._since is not None and now - self._since >= self.after_s:
            self.after_s = 2 * (now - self._since)
        self._since = now
        faulthandler.dump_traceback_later(self.after_s, file=_STDERR)

    def waits(self) -> None:
        """From here on the agent waits for others."""
        if self._on:
            self._since = None
            faulthandler.cancel_dump_traceback_later()

    def _go_on(self) -> None:
        """After a fork, with what was left of the time."""
        left = 0.0 if self._since is None else self._since + self.after_s - self._clock.now()
        if left > 0:  # otherwise it waits, or was shown
            faulthandler.dump_traceback_later(left, file=_STDERR)
