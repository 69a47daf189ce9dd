"""The driver's end of a codec (`algorithm.codecs`): which base each order names, and what becomes of what rounding leaves.

It stands between the driver's decisions, which know of no codec, and a cluster that carries orders out: it writes the names
of bases into orders on their way, and learns from events who holds which. The bytes of bases are the cluster's.

    a joint state    goes out as a difference from the base that most executors have, or as it is if none has any; what comes
                     out everywhere is the newest base
    a freeze         names the newest base that all expected executors have acknowledged (`driver.bases`), and the same one when
                     a cycle is frozen again
    agents that join get the joint model as a difference too, which is no base; an executor without its base fetches that first
    an executor      that has no base of a shard is told once to fetch one that others have in full, unless it downloads it now

x_0, local tensors and what agents ask for by themselves are never encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mpca.algorithm.bases import Base
from mpca.driver.bases import Bases
from mpca.driver.cluster import Outgoing
from mpca.driver.events import Acknowledged, ClusterEvent, ExecutorLost
from mpca.methods import How
from mpca.wire.orders import NEVER, BaseInFull, Carried, Coded, Download, Freeze, Order, Reduce

__all__ = ["Coding"]

#: Their arrivals replace an agent's parameters, so only its executor has what was rounded off.
_CARRIED = (How.REPLACE, How.EAGER)
#: Cycles and sums that may still be asked about.
_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class _Sent:
    """A broadcast that is encoded, or is a base from now on."""

    old: Base | None  # what it is a difference from; None: it travels as float32
    result: Base  # what comes out of it
    held: Base  # the base that an executor has that acknowledges it


class Coding:
    """See the module's text. One attempt of the driver has one.

    Args:
        codec: the key `cluster.codec`, and not "none".
        how: what an arrival does to an agent.
        term: of the driver.
    """

    def __init__(self, codec: str, how: How, term: int) -> None:
        self.codec = codec
        self._off = False
        self._term = term
        self._carries = how in _CARRIED
        self.rests = "carried" if self._carries else "answered" if how is How.CORRECT else "dropped"  # as in `Freeze.rests`
        self._bases = Bases()
        self._asked: list[str] = []  # executors of the newest freeze
        self._parameters: dict[int, int] = {}  # by shard that has a base
        self._lengths: dict[int, int] = {}  # bytes, the same
        self._sent: dict[int, _Sent] = {}  # by broadcast
        self._told: set[tuple[str, Base]] = set()  # who was told to fetch which base in full
        self._named: dict[int, Base | None] = {}  # by cycle
        self._reduces: dict[int, Reduce] = {}  # by order
        self._taken: dict[int, int] = {}  # by shard: the newest order whose sum the driver took
        self._taken_from: dict[tuple[str, int], int] = {}  # by executor and shard: the cycle of the newest with its part

    # ---- broadcasts ----------------------------------------------------------------------------------------------------

    def concerns(self, joint: Outgoing) -> bool:
        """Whether a joint state that goes out is encoded, or is a base from now on. A shard of buffers alone never is.

        What agents join at is one only if there is none and nobody trains: else some would have it, and those who train not.
        """
        if self._off or joint.parameters == 0:
            return False
        in_mid_run = self._asked or self._bases.named(joint.shard, ())
        return not (joint.replaces and in_mid_run) or self.base_for(joint) is not None

    def base_for(self, joint: Outgoing) -> Base | None:
        """What a joint state is encoded against; None: no executor holds a base of its shard."""
        return self._held(joint.shard)

    def sent(self, broadcast: int, joint: Outgoing, length: int, old: Base | None, crc: int) -> None:
        """A joint state was published that is encoded, or is a base from now on.

        Args:
            broadcast: its number.
            joint: what it is.
            length: bytes of the shard.
            old: what it was encoded against; None: nothing.
            crc: CRC-32 of what comes out.
        """
        result = Base(self._term, joint.shard, joint.version, crc)
        if joint.replaces and old is not None:
            self._sent[broadcast] = _Sent(old, result, old)
            return
        self._bases.made(result)
        self._parameters[joint.shard], self._lengths[joint.shard] = joint.parameters, length
        self._sent[broadcast] = _Sent(old, result, result)

    def withdrawn(self, broadcast: int) -> None:
        """Nobody downloads this broadcast any more."""
        self._sent.pop(broadcast, None)

    def off(self) -> None:
        """Encode nothing: there is no room for bases. Only before the first joint state goes out."""
        assert not self._parameters, "a base is on its way"
        self._off = True

    # ---- orders --------------------------------------------------------------------------------------------------------

    def ordered(self, order: Order) -> Order:
        """An order goes out.

        Returns:
            The order with the names of bases in it.
        """
        if order.cut is not None:
            self._cut()
        freeze, reduce = order.freeze, order.reduce
        if freeze is not None and freeze.cycle >= 0:
            freeze = self._freeze(freeze)
        if reduce is not None and reduce.cycle >= 0:
            coded = self._coded(self._named.get(reduce.cycle))
            after = self._taken.get(reduce.shard, NEVER) if coded is not None else NEVER
            reduce = replace(reduce, coded=coded, after=after)
            self._reduces = dict([*self._reduces.items(), (order.order, reduce)][-_REMEMBERED:])
        carried = []
        if self._carries and freeze is not None and freeze.coded is not None:
            shard, names = freeze.shard, dict.fromkeys(who.executor for who in freeze.agents)
            carried = [Carried(name, self._taken_from[name, shard]) for name in names if (name, shard) in self._taken_from]
        downloads = [self._download(one) for one in order.downloads]
        order = replace(order, freeze=freeze, reduce=reduce, downloads=downloads, carried=carried)
        return replace(order, bases=self._in_full(order))

    def _freeze(self, freeze: Freeze) -> Freeze:
        self._asked = list(dict.fromkeys(who.executor for who in freeze.agents))
        if freeze.cycle not in self._named or not self._still_kept(self._named[freeze.cycle]):
            self._named = {cycle: one for cycle, one in self._named.items() if cycle > freeze.cycle - _REMEMBERED}
            self._named[freeze.cycle] = self._held(freeze.shard)
        return replace(freeze, coded=self._coded(self._named[freeze.cycle]), rests=self.rests)

    def _held(self, shard: int) -> Base | None:
        """The base for the executors of the newest freeze; None: none of them holds any, and float32 costs less than a base."""
        base = self._bases.named(shard, self._asked)
        return base if base is not None and len(self._bases.without(base, self._asked)) < len(self._asked) else None

    def _still_kept(self, base: Base | None) -> bool:
        return base is None or self._bases.keeps(base)

    def _download(self, one: Download) -> Download:
        sent = self._sent.get(one.broadcast)
        if sent is None:
            return one
        return replace(one, coded=self._coded(sent.old), result=sent.result.crc)

    def _in_full(self, order: Order) -> list[BaseInFull]:
        """Bases of shards of which an executor has none. One that downloads such a base now, or what needs one, has it soon.

        A base that nobody holds is left out: all get it by its broadcast, or the next joint state goes out as it is.
        """
        coming: dict[int, set[str]] = {}
        for one in order.downloads:
            if one.result:
                coming.setdefault(one.shard, set()).update(who.executor for who in one.agents)
        bases = []
        for shard in self._parameters:
            base = self._bases.named(shard, order.executors)
            if base is None or not self._bases.held(base):
                continue
            lacking = self._bases.without_any(shard, order.executors) - coming.get(shard, set())
            new = {(name, base) for name in lacking} - self._told
            if new:
                self._told |= new
                bases.append(BaseInFull(shard, base.version, base.crc, self._lengths[shard]))
        self._told = {one for one in self._told if self._bases.keeps(one[1])}
        return bases

    def _coded(self, base: Base | None) -> Coded | None:
        if base is None:
            return None
        return Coded(self.codec, base.version, base.crc, self._parameters[base.shard], self._lengths[base.shard])

    def _cut(self) -> None:
        """The model is cut anew, before any agent has begun."""
        self._bases.clear()
        self._named.clear()
        self._sent.clear()
        self._told.clear()

    def took(self, order: int) -> None:
        """The driver takes the sum of an order."""
        reduce = self._reduces.pop(order, None)
        if reduce is None or reduce.coded is None:
            return
        # Not the cycle: an executor may have summed for an earlier order of it, and not for the one that was taken.
        self._taken[reduce.shard] = order
        self._taken_from.update({(part.executor, reduce.shard): reduce.cycle for part in reduce.parts})

    # ---- events --------------------------------------------------------------------------------------------------------

    def heard(self, events: Iterable[ClusterEvent]) -> None:
        """The driver hears these events."""
        for event in events:
            if isinstance(event, Acknowledged):
                sent = self._sent.get(event.broadcast)
                if sent is not None:
                    self._bases.acknowledged(event.executor, sent.held)
            elif isinstance(event, ExecutorLost):
                self._bases.lost(event.executor)
