"""The state of a cycle: one of five types, each with what only this state has.

::

    BetweenCycles --enough snapshots--> Reducing --order done--> Reduced --acknowledged--> BetweenCycles, of the next cycle
         ^                                 |                        |
         +----- too few for a commit ------+                        | one phase
                                                                    v
                                                Broadcasting --order done--> Delivering --acknowledged--> BetweenCycles

Where agents' own states are to be saved, BetweenCycles goes through Broadcasting and Delivering back to itself until nothing
is on its way: a still point (`saves.py`).

An order that fails goes out again in the same state. A sum is first *made*, then prepared and *published*, then it is a
*download*:

    three phases   published in the next cycle, downloaded in the one after that
    two phases     published at the end of its cycle, downloaded in the next
    one phase      published at the end of its cycle's reduction, downloaded in the same cycle
"""

from __future__ import annotations

from dataclasses import dataclass

from mpca.driver.published import PublishedShard, Sum

__all__ = ["BetweenCycles", "Broadcasting", "CycleState", "Delivering", "Reduced", "Reducing"]


@dataclass(slots=True)
class BetweenCycles:
    """No cycle is under way. Orders that belong to no cycle may be out: begin, a freeze, a read of local tensors."""

    made: Sum | None = None  # with three phases, the sum of the cycle before: it is prepared beside the next reduction
    published: PublishedShard | None = None  # goes out with the next cycle


@dataclass(slots=True)
class Reducing:
    """The order that sums this cycle's snapshots is out, or goes out again after a failure."""

    download: PublishedShard | None  # on its way beside the reduction
    published: PublishedShard | None  # prepared meanwhile: goes out with the next cycle
    deadline: float  # for acknowledgements of the download; seconds of the machine


@dataclass(slots=True)
class Reduced:
    """The sum is made. Some agents may not have acknowledged the download yet."""

    made: Sum | None  # not prepared yet; None: it is prepared, or no agent took an update and nothing was summed
    download: PublishedShard | None
    published: PublishedShard | None
    deadline: float


@dataclass(slots=True)
class Broadcasting:
    """With one phase, or on the way to a still point: the order that says what to download is out, or goes out again after a
    failure."""

    download: PublishedShard | None  # None: the method never broadcasts
    deadline: float
    between: bool = False  # it belongs to no cycle: on the way to a still point
    made: Sum | None = None  # then, the sum of the cycle before, as in `BetweenCycles`


@dataclass(slots=True)
class Delivering:
    """That order is done. Some agents may not have acknowledged the download yet."""

    download: PublishedShard | None
    deadline: float
    between: bool = False
    made: Sum | None = None


CycleState = BetweenCycles | Reducing | Reduced | Broadcasting | Delivering
