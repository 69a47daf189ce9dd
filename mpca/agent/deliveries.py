"""Answers to the executor that wait for copies of a GPU's, while the training goes on.

When the loop answers a request, what the GPU is to copy is queued behind the training's own kernels, and may be there a step
later. One thread sleeps until it is, and then sends the answer. It is there only while there are such answers, so an agent
without a GPU has none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpca.agent.trainer import Wait

__all__ = ["Deliveries"]

_Delivery = tuple[tuple["Wait", ...], Callable[[], None]]


class Deliveries:
    """Answers of one agent, each given once, in order, and under the loop's lock.

    Args:
        access: the lock that keeps messages and the machine to one thread at a time.
    """

    def __init__(self, access: threading.RLock) -> None:
        self._access = access
        self._open: deque[_Delivery] = deque()  # changed only under the lock
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def put(self, waits: Sequence[Wait], answer: Callable[[], None]) -> None:
        """Call `answer` once all of `waits` have returned: here, if there are none. Under the lock."""
        if not waits:
            answer()
            return
        self._open.append((tuple(waits), answer))
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver, name="mpca-deliveries", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """For the thread that trains.

        Raises:
            Exception: what the other thread met: the GPU failed, or the link is closed.
        """
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Return when all answers are given. Under the lock; before the thread that trains waits for messages or sends its last
        one, as with the lock it keeps the other one from answering.

        Raises:
            Exception: what a wait or an answer raises here, or has raised there.
        """
        self.check()
        while self._open:
            waits, answer = self._open[0]
            for wait in waits:
                wait()
            self._open.popleft()
            answer()

    def drop(self) -> None:
        """Give no answer any more. Under the lock."""
        self._open.clear()

    def _deliver(self) -> None:
        try:
            while self._deliver_first():
                pass
        except Exception as error:  # raised again where the user's code runs, or its end is reported
            self._error = error

    def _deliver_first(self) -> bool:
        """Wait for the oldest, and answer it unless `finish` did, or it was dropped. False: there is none; this thread ends."""
        with self._access:
            if not self._open:
                self._thread = None
                return False
            delivery = self._open[0]
        for wait in delivery[0]:
            wait()
        with self._access:
            if self._open and self._open[0] is delivery:
                self._open.popleft()
                delivery[1]()
        return True
