"""What one executor decides while it takes part in a relay: what to ask for and to push, and when to give an owner up. The
Python twin of ``org.mpca.rdd.Relay``; events in, instructions out, no I/O, and the time is an argument.

Both run one set of scripts, ``tests/golden/relay``, so a rule that changes here must change there.

Participants: the driver, which has all pieces, and K owners, of which this executor is one. Owner i owns the pieces i, i + K,
i + 2K, ..., in two batches. Where there are as many pieces for each owner, none sends more than the broadcast once::

    own batch:      FROM_DRIVER, which brings them or is asked --all pieces are here--> PUSHED to the other owners

    other batch:    AWAITED from its owner --owner given up--> FROM_DRIVER

The executor gives an owner up when the owner cannot be reached or sends a piece damaged twice, or when no piece has come for
long after the executor's own pieces came. A driver that was to bring the own pieces is asked for them when nothing has come of
them for as long. A failure of the driver ends the relay. The download is then tried again as a new relay, which begins with the
pieces that are here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["DRIVER", "AskDriver", "Blame", "Done", "Fail", "Instruction", "Push", "Relay"]

#: The number of the sender that is no owner.
DRIVER = -1
BATCHES = 2
#: Seconds of silence that are borne at least. When the executor's own pieces took long, the links are slow, and more is borne.
PATIENCE_S = 3.0

AWAITED, FROM_DRIVER, PUSHED = "AWAITED", "FROM_DRIVER", "PUSHED"


class AskDriver(NamedTuple):
    """Ask the driver for pieces, in one request."""

    pieces: list[int]


class Push(NamedTuple):
    """Store pieces where others fetch what came damaged, and push them to all other owners."""

    pieces: list[int]


class Blame(NamedTuple):
    """Tell the driver that this owner damages what it sends or, if it is this executor, what it receives."""

    owner: int
    why: str


class Done(NamedTuple):
    """Every piece is here."""


class Fail(NamedTuple):
    """The driver could not send."""

    why: str


Instruction = AskDriver | Push | Blame | Done | Fail


@dataclass(slots=True)
class _Batch:
    """Pieces that one owner pushes together."""

    pieces: list[int]
    state: str


class Relay:
    """See the module's text. Every event returns instructions, in the order in which they must be carried out.

    Args:
        owners: executors that take part.
        me: this executor's number among them.
        pieces: of the broadcast.
        present: pieces that an earlier attempt has brought.
    """

    def __init__(self, owners: int, me: int, pieces: int, present: Collection[int] = ()) -> None:
        self._me, self._pieces, self._here = me, pieces, set(present)
        self._damaging: set[int] = set()  # senders of pieces that came damaged
        self._began = self._moved = 0.0  # when the relay began; when the newest piece came
        self._bringing = False  # the driver pushes the executor's own pieces, and has not been asked for them
        self._own_took: float | None = None  # seconds that the executor's own pieces took; None: some are missing
        self._over = False
        self._batches: list[list[_Batch]] = []  # one or two of each owner; none of one that has no piece
        for owner in range(owners):
            own, some = range(owner, pieces, owners), []
            for number in range(BATCHES):
                part = own[len(own) * number // BATCHES : len(own) * (number + 1) // BATCHES]
                if part:
                    some.append(_Batch(list(part), FROM_DRIVER if owner == me else AWAITED))
            self._batches.append(some)

    def begin(self, now: float, bringing: bool = False) -> list[Instruction]:
        """The relay begins.

        Args:
            now: seconds of any clock that does not go back, here and below.
            bringing: the driver pushes the executor's own pieces.

        Returns:
            AskDriver for the executor's own pieces, unless the driver brings them; Push and Done for what is here already.
        """
        self._began = self._moved = now
        self._bringing = bringing
        return [*([] if bringing else self._ask_driver(self._own())), *self._advance(now)]

    def _own(self) -> list[int]:
        return [piece for batch in self._batches[self._me] for piece in self._missing(batch)]

    def arrived(self, piece: int, now: float) -> list[Instruction]:
        """A piece is here, from any sender.

        Returns:
            Push when it completes an own batch, Done when it is the last piece.
        """
        if self._over or piece in self._here:
            return []
        self._here.add(piece)
        self._moved = now
        return self._advance(now)

    def damaged(self, sender: int) -> None:
        """A piece of this sender came damaged; the sender is asked for it once more."""
        self._damaging.add(sender)

    def failed(self, sender: int, damage: bool, why: str) -> list[Instruction]:
        """A sender cannot be reached, or fails to send a piece.

        When several senders sent damaged pieces, this executor or its link damages them.

        Args:
            sender: an owner, or `DRIVER`.
            damage: whether a piece came damaged twice.
            why: in words, for Blame and Fail.

        Returns:
            Blame for damage; then AskDriver for the owner's pieces, or Fail when the driver failed.
        """
        culprit = self._me if len(self._damaging) > 1 else sender
        out: list[Instruction] = [Blame(culprit, why)] if damage and culprit != DRIVER else []
        if self._over:
            return out
        if sender == DRIVER:
            self._over = True
            return [*out, Fail(why)]
        return [*out, *self._give_up(sender)]

    def tick(self, now: float, heard: float = 0.0) -> list[Instruction]:
        """Time has passed: owners that are silent for too long are given up, and a driver that brings nothing is asked.

        Args:
            now: as for `begin`.
            heard: when bytes that the driver pushes last came.

        Returns:
            AskDriver for their pieces, or for the executor's own.
        """
        silent = self._bringing and self._own_took is None and now - max(self._moved, heard) > PATIENCE_S
        if silent and not self._over:
            self._bringing = False
            return self._ask_driver(self._own())
        if self._over or self._own_took is None or now - self._moved <= max(PATIENCE_S, 3 * self._own_took):
            return []
        return [one for owner in range(len(self._batches)) if owner != self._me for one in self._give_up(owner)]

    def abandon(self) -> None:
        """The download is not wanted any more. A fetch that is still under way may fail by damage, and that is still told."""
        self._over = True

    def _advance(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for batch in self._batches[self._me]:
            if batch.state == FROM_DRIVER and not self._missing(batch):
                batch.state = PUSHED
                out.append(Push(batch.pieces))
        if self._own_took is None and all(one.state == PUSHED for one in self._batches[self._me]):
            self._own_took = now - self._began
        if len(self._here) == self._pieces:
            self._over = True
            out.append(Done())
        return out

    def _give_up(self, owner: int) -> list[Instruction]:
        out: list[Instruction] = []
        for batch in self._batches[owner]:
            if batch.state != FROM_DRIVER:
                batch.state = FROM_DRIVER
                out += self._ask_driver(self._missing(batch))
        return out

    @staticmethod
    def _ask_driver(wanted: list[int]) -> list[Instruction]:
        return [AskDriver(wanted)] if wanted else []

    def _missing(self, batch: _Batch) -> list[int]:
        return [piece for piece in batch.pieces if piece not in self._here]
