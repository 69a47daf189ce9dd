"""What a codec (`algorithm.codecs`) does to an exchange, in the simulator: bases, what is rounded, who keeps the rest.

One object plays the driver's side and that of all executors, each with state of its own; only encoded bytes and names of bases
go from one to the other. `jobs`, `nodes` and `cluster` call it where bytes are made and read:

    ordered      a broadcast that goes out first becomes Q(x* - base), and the driver keeps the decoded result; a freeze gets
                 the name of its base, and asks no agent of an executor that has not acknowledged it: that one gets it in full
    part         an executor's mean becomes Q(mean - base), at its freeze; frozen again, it has the same bytes
    total        owners add decoded parts, and round the sum
    downloaded   an executor decodes a broadcast with the base that it holds, or takes the decoded result in full; of the joint
                 model for agents that join, which is no base, it takes the base in full first
    arrival      a delay-corrected agent gets it with what rounding left of its snapshot

The joint model that agents resume and end with is never encoded. Buffers, x_0 and local tensors neither.

Simplified: a shard is one chunk, since a range of these models is smaller than a block; durations are those without a codec. An
executor without a base is left out of the order's freeze here, and not by the driver's machine, so a record calls it lost.

It checks, by name: base (parts of a sum are against one base that all hold; a decoded broadcast has the driver's bytes), I4 (a
part that is made again has the same bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpca.algorithm.averaging import weighted_sum
from mpca.algorithm.bases import Base, HeldBases
from mpca.algorithm.codecs import Codec, Floats
from mpca.algorithm.rests import Rests, with_rest
from mpca.driver.bases import Bases
from mpca.driver.events import Acknowledged, ExecutorLost
from mpca.driver.joint import JointModel
from mpca.methods import How
from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import Download, Order, Reduce

__all__ = ["Coding", "StackedCodec"]

#: Their arrivals replace an agent's parameters, so only its executor has what was rounded off.
_CARRIED = (How.REPLACE, How.EAGER)


class StackedCodec:
    """A codec over a vector of R runs, element-major: blocks are those of each run, as if it were alone.

    Args:
        codec: of one run.
        runs: R.
    """

    def __init__(self, codec: Codec, runs: int) -> None:
        self._codec, self._runs = codec, runs

    def encode(self, values: Floats, parameters: int) -> bytes:
        """As `Codec.encode`, run after run."""
        rows = values.reshape(-1, self._runs).T
        return b"".join(self._codec.encode(np.ascontiguousarray(row), parameters // self._runs) for row in rows)

    def decode(self, data: bytes, elements: int, parameters: int) -> Floats:
        """As `Codec.decode`."""
        n, p = elements // self._runs, parameters // self._runs
        size = self._codec.size(n, p)
        rows = [self._codec.decode(data[at : at + size], n, p) for at in range(0, len(data), size)] if size else []
        return np.ascontiguousarray(np.array(rows, np.float32).reshape(self._runs, n).T).reshape(-1)


@dataclass(slots=True)
class _Executor:
    """What one executor holds."""

    parts: Rests
    bases: HeldBases = field(default_factory=HeldBases)
    made: dict[int, tuple[Base, tuple[AgentId, ...], bytes]] = field(default_factory=dict)  # its part, by cycle
    left: dict[tuple[AgentId, int], Floats] = field(default_factory=dict)  # of each agent's newest snapshot, by shard


@dataclass(frozen=True, slots=True)
class _Coded:
    """A broadcast."""

    old: Base
    new: Base | None  # None: what comes out is no base
    data: bytes

    @property
    def held(self) -> Base:
        """What an executor holds that has it."""
        return self.new or self.old


@dataclass(frozen=True, slots=True)
class _Total:
    """A sum that the driver has not taken."""

    cycle: int
    shard: int
    executors: list[str]
    rested: np.ndarray  # float64: by how much all rests have grown


class Coding:
    """See the module's text.

    Args:
        codec: of parts and broadcasts.
        runs: that the vector has.
        how: what an arrival does to an agent.
        model: the driver's joint model, once it is there.
        broken: raises the violation of an invariant, by its name and what is wrong.
        after: calls a function after so many seconds.
        full_s: how long a base takes in full, by its elements.
    """

    def __init__(
        self,
        codec: Codec,
        runs: int,
        how: How,
        model: Callable[[], JointModel | None],
        broken: Callable[[str, str], None],
        after: Callable[..., None],
        full_s: Callable[[int], float],
    ) -> None:
        self.rested: dict[int, np.ndarray] = {}  # by cycle whose sum the driver took, until the checker asks
        self.in_full = 0  # bases that were sent in full
        #: By shard and version, what rounding added to a joint state that agents join at, float64; none that was not encoded.
        self.rounding: dict[tuple[int, int], np.ndarray] = {}
        self._parts, self._sums = StackedCodec(codec, runs), StackedCodec(codec.of_sums, runs)
        self._how, self._model, self._broken = how, model, broken
        self._after, self._full_s = after, full_s
        self._executors: dict[str, _Executor] = {}
        self._bases, self._driver, self._owners = Bases(), HeldBases(), Rests(self._sums)
        self._named: dict[int, Base] = {}  # by cycle
        self._coded: dict[int, _Coded] = {}  # by broadcast
        self._on_way: set[tuple[str, Base]] = set()
        self._totals: dict[int, _Total] = {}  # by order
        self._taken: dict[int, int] = {}  # by shard: the newest cycle whose sum the driver took
        self._taken_from: dict[tuple[str, int], int] = {}  # by executor and shard: the same, of those with its part

    # ---- the driver ----------------------------------------------------------------------------------------------------

    def ordered(self, order: Order, broadcasts: dict[int, Floats], slots: Mapping[str, Iterable[tuple[int, Floats]]]) -> Order:
        """The driver submits an order.

        Args:
            order: as its machine wrote it.
            broadcasts: vectors by number; those that go out first are rounded in it.
            slots: by living executor, (shard, vector) of its agents' arrival slots: there it finds x_0, or the joint model
                that its agents began at.

        Returns:
            The order, without the agents whose executors wait for a base.
        """
        for one in order.downloads:
            if one.broadcast not in self._coded and one.broadcast in broadcasts:
                self._encode(order.term, one, broadcasts)
        freeze = order.freeze
        if freeze is None or freeze.cycle < 0:
            return order
        asked = list(dict.fromkeys(who.executor for who in freeze.agents))
        self._begin(order.term, freeze.shard, slots)
        base = self._named.get(freeze.cycle)
        if base is None or self._driver.get(base) is None:
            base = self._bases.named(freeze.shard, asked)
            assert base is not None
            self._named = {cycle: one for cycle, one in self._named.items() if cycle > freeze.cycle - 8}
            self._named[freeze.cycle] = base
        lacking = self._bases.without(base, asked)
        for name in lacking:
            self._send_in_full(name, base)
        return replace(order, freeze=replace(freeze, agents=[who for who in freeze.agents if who.executor not in lacking]))

    def _begin(self, term: int, shard: int, slots: Mapping[str, Iterable[tuple[int, Floats]]]) -> None:
        """The first base of a shard is the joint state at which all agents begin."""
        joint = self._model()
        assert joint is not None
        if self._bases.named(shard, ()) is not None:
            return
        state = joint.state(shard)
        base = Base.of(term, shard, state.k, state.x)
        self._driver.hold(base, state.x)
        self._bases.made(base)
        for name, mine in slots.items():
            if any(one == shard and np.array_equal(vector, state.x) for one, vector in mine):
                self._executor(name).bases.hold(base, state.x)
                self._bases.acknowledged(name, base)

    def _encode(self, term: int, one: Download, broadcasts: dict[int, Floats]) -> None:
        joins = one.mode == "replace"
        old = self._bases.named(one.shard, {who.executor for who in one.agents})
        if joins and (old is None or not self._bases.held(old)):
            return
        assert old is not None, f"a broadcast of shard {one.shard} before any freeze"
        vector, base, p = broadcasts[one.broadcast], self._driver.get(old), self._parameters(one.shard)
        assert base is not None
        data = self._parts.encode(_difference(vector, base, p), p)
        decoded = broadcasts[one.broadcast] = _added(self._parts.decode(data, vector.size, p), base, p)
        new = None
        if joins:
            self.rounding[one.shard, one.version] = off = decoded.astype(np.float64) - vector
            if np.abs(off).max() > np.abs(vector - base).max():
                self._broken("base", f"shard {one.shard}, version {one.version} is off by more than it differs from {old}")
        else:
            new = Base.of(term, one.shard, one.version, decoded)
            self._driver.hold(new, decoded)
            self._bases.made(new)
        self._coded[one.broadcast] = _Coded(old, new, data)

    def _send_in_full(self, name: str, base: Base) -> None:
        vector = self._driver.get(base)
        assert vector is not None
        if (name, base) not in self._on_way:
            self._on_way.add((name, base))
            self._after(self._full_s(vector.size), self._came_in_full, name, base, vector)

    def _came_in_full(self, name: str, base: Base, vector: Floats) -> None:
        self._on_way.discard((name, base))
        self.in_full += 1
        self._executor(name).bases.hold(base, vector)
        self._bases.acknowledged(name, base)

    def heard(self, events: Iterable[Any]) -> None:
        """The driver hears these events."""
        for event in events:
            if isinstance(event, Acknowledged) and event.broadcast in self._coded:
                self._bases.acknowledged(event.executor, self._coded[event.broadcast].held)
            elif isinstance(event, ExecutorLost):
                self._bases.lost(event.executor)

    def took(self, order: int) -> None:
        """The driver takes the sum of an order."""
        total = self._totals.pop(order, None)
        if total is None:
            return
        self._taken[total.shard] = total.cycle
        self._taken_from.update({(name, total.shard): total.cycle for name in total.executors})
        self.rested[total.cycle] = total.rested

    def withdrawn(self, broadcast: int) -> None:
        """Nobody downloads this broadcast any more."""
        self._coded.pop(broadcast, None)

    def cut(self) -> None:
        """The model is cut anew, before any agent has begun."""
        self._bases.clear()
        self._driver.clear()
        self._owners.clear()
        self._executors.clear()

    def sent(self, broadcast: int) -> bool:
        """Whether this broadcast is encoded."""
        return broadcast in self._coded

    # ---- executors -----------------------------------------------------------------------------------------------------

    def part(self, name: str, cycle: int, shard: int, agents: tuple[AgentId, ...], mean: Floats) -> np.ndarray:
        """An executor freezes its part.

        Args:
            name: of the executor.
            cycle: of the freeze.
            shard: which one.
            agents: whose snapshots are in it.
            mean: of them, float32.

        Returns:
            The encoded part, uint8.
        """
        mine, base, p = self._executor(name), self._named[cycle], self._parameters(shard)
        vector = mine.bases.get(base)
        if vector is None:
            self._broken("base", f"executor {name} is asked for cycle {cycle} against {base}, which it does not hold")
            raise AssertionError
        after = self._taken_from.get((name, shard)) if self._how in _CARRIED else None
        data = mine.parts.encode(shard, cycle, _difference(mean, vector, p), p, after)
        before = mine.made.get(cycle)
        if before is not None and before[:2] == (base, agents) and before[2] != data:
            self._broken("I4", f"the part of executor {name}, cycle {cycle}, has other bytes when it is made again")
        mine.made = {old: one for old, one in mine.made.items() if old > cycle - 8} | {cycle: (base, agents, data)}
        if self._how is How.CORRECT:
            mine.left.update({(who, shard): mine.parts.rest(shard, cycle, mean.size) for who in agents})
        return np.frombuffer(data, np.uint8)

    def total(self, order: int, reduce: Reduce, parts: list[np.ndarray], ranges: list[str]) -> Floats:
        """The owners of ranges make a sum, and the driver decodes it.

        Args:
            order: number of the order.
            reduce: what is summed.
            parts: encoded, in the order of `reduce.parts`.
            ranges: executors that own one each.

        Returns:
            float32[n], the weighted mean of what agents handed over, but for rests.
        """
        cycle, shard = reduce.cycle, reduce.shard
        n, p = reduce.length // 4, self._parameters(shard)
        names = [part.executor for part in reduce.parts]
        bases = {self._executors[name].made[cycle][0] for name in names}
        base = self._driver.get(next(iter(bases)))
        if len(bases) > 1 or base is None:
            self._broken("base", f"cycle {cycle} is summed against {bases}")
            raise AssertionError
        weights = [part.weight for part in reduce.parts]
        mean = weighted_sum([self._parts.decode(part.tobytes(), n, p) for part in parts], weights)
        assert mean is not None
        after, owners = self._taken.get(shard), (n, *ranges)
        before = self._owners.rest(shard, after, n, owners).astype(np.float64)
        data = self._owners.encode(shard, cycle, mean, p, after, owners)
        rested = self._owners.rest(shard, cycle, n, owners) - before
        for name, weight in zip(names, weights, strict=True):
            rests = self._executors[name].parts
            carried = self._taken_from.get((name, shard)) if self._how in _CARRIED else None
            rested += weight / sum(weights) * (rests.rest(shard, cycle, n).astype(np.float64) - rests.rest(shard, carried, n))
        self._totals[order] = _Total(cycle, shard, names, rested)
        return _added(self._sums.decode(data, n, p), base, p)

    def downloaded(self, name: str, one: Download) -> None:
        """An executor has a broadcast: it is the newest base from now on, unless agents are to join at it."""
        coded = self._coded[one.broadcast]
        held, p = self._executor(name).bases, self._parameters(one.shard)
        new, old = self._driver.get(coded.held), held.get(coded.old)
        if old is not None and coded.new is not None:
            mine = _added(self._parts.decode(coded.data, old.size, p), old, p)
            if Base.of(*coded.new[:3], mine) != coded.new:
                self._broken("base", f"executor {name} decodes {coded.new} to other bytes than the driver")
            held.hold(coded.new, mine)
        elif old is None and new is not None:
            self.in_full += 1
            held.hold(coded.held, new)

    def arrival(self, name: str, who: AgentId, shard: int, mode: str, vector: Floats) -> Floats:
        """What an executor writes into an agent's slot.

        Args:
            name: of the executor.
            who: the agent's process.
            shard: which one.
            mode: "install" or "replace".
            vector: the decoded broadcast, float32.
        """
        left = self._executor(name).left
        if mode == "replace":
            left.pop((who, shard), None)
        rest = left.get((who, shard))
        return vector if rest is None else with_rest(vector, rest)

    def lost(self, name: str) -> None:
        """An executor is gone, with all that it held."""
        self._executors.pop(name, None)

    def _executor(self, name: str) -> _Executor:
        return self._executors.setdefault(name, _Executor(Rests(self._parts)))

    def _parameters(self, shard: int) -> int:
        joint = self._model()
        assert joint is not None
        return joint.plan.parameters_in(shard)


def _difference(vector: Floats, base: Floats, parameters: int) -> Floats:
    """What is encoded: parameters less those of the base, and buffers as they are."""
    out = vector.copy()
    out[:parameters] -= base[:parameters]
    return out


def _added(decoded: Floats, base: Floats, parameters: int) -> Floats:
    """The reverse."""
    out = decoded.copy()
    out[:parameters] += base[:parameters]
    return out
