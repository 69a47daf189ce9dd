"""The agent's decisions: when it may train, when it publishes and installs, and with which tau. No I/O, no clock.

Every event comes between two batches, so the loop can carry out an instruction at once. States:

    STARTING   the user's function runs; `attach` has not been called
    WAITING    Hello was sent; x_0 may be read and replaced; no step yet. A Cut gives the model another number of shards, and
               Hello is sent anew
    TRAINING   the function takes steps; requests interrupt it
    HOLDING    for a method in step with others (sync): tau updates are done, and the next joint state has not come yet
    ASKING     for a method whose agents ask by themselves: Exchange was sent, and its answer has not come yet
    STOPPING   Stop has come: requests are answered until the user's function returns; `function` tells whether it is still
               in its loop or has left it
    LEAVING    the user's function returned by itself, and the model has local tensors: requests are answered until Stop
               comes, so that these tensors can be read
    CLOSED     the last message was sent

*tau* counts updates since the last snapshot of that shard, even if that snapshot was never used; or since the shard was
replaced, if that was later, since updates that were discarded must not count. A request for the cycle that the agent answered
last, without an update since, gets the same tau: its executor dropped that answer, which came too late.

When an arrived shard is taken, and what it does, is the method's choice (`methods.agent_side`). A method that holds answers a
SnapshotRequest only after its tau updates; otherwise it would average unequal numbers of steps. One with `snapshot_after` does
so too, and trains on.

An agent that trains gets new parameters ("replace") when some of its own were non-finite. It takes all shards between the same
two batches, since one update with a non-finite shard would spoil the others again; and its optimiser is reset, unless the
optimiser's state is a part of the shards. A SnapshotRequest that comes while shards are missing is answered with the trained
ones: what is missing may come behind it, for a slot that was just freed. With a second one it does not come.
While it is ASKING, the snapshot slot is the executor's: a SnapshotRequest is answered after the answer has come. A replacement
of all shards ends the waiting too, and Stop does; an answer that comes after that is not taken.
Shards after the method's own are the local tensors. They are not exchanged, have no tau, and requests for them are answered at
once. README.md in this folder tells a failure step by step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from mpca.agent.events import (
    Ask,
    Attached,
    CloseOwn,
    CutAnew,
    EndGroup,
    LinkLost,
    Publish,
    Raised,
    Release,
    ResetOptimizer,
    Returned,
    SaveOwn,
    SayFailed,
    SayFinished,
    SayHello,
    SayProgress,
    Stepped,
    StopSeen,
    Take,
    TakeReaders,
)
from mpca.errors import LocalProtocolError
from mpca.methods import AgentSide, How, When
from mpca.wire.messages import (
    ENDED,
    LEFT,
    LOOP,
    OVERRUN,
    RETURNED,
    Begin,
    Cut,
    Install,
    ReadersChanged,
    SaveState,
    SnapshotRequest,
    StateTaken,
    Stop,
)

__all__ = [
    "ASKING",
    "CLOSED",
    "HOLDING",
    "LEAVING",
    "MOVES",
    "STARTING",
    "STOPPING",
    "TRAINING",
    "WAITING",
    "AgentMachine",
    "State",
]

_log = logging.getLogger("mpca.agent")


class State(str, Enum):
    """States of an agent's machine; the table above says what each means."""

    STARTING = "STARTING"
    WAITING = "WAITING"
    TRAINING = "TRAINING"
    HOLDING = "HOLDING"
    ASKING = "ASKING"
    STOPPING = "STOPPING"
    LEAVING = "LEAVING"
    CLOSED = "CLOSED"

    def __str__(self) -> str:
        return self.value


# Plain names, since every event compares with one, and Python 3.11 takes 0.1 us to find an Enum's member.
STARTING, WAITING, TRAINING, HOLDING, ASKING, STOPPING, LEAVING, CLOSED = State

#: Legal moves. Every state but CLOSED may close: the function returned or raised, or the link is lost.
MOVES: Mapping[State, frozenset[State]] = {
    STARTING: frozenset({WAITING, STOPPING, CLOSED}),
    WAITING: frozenset({TRAINING, STOPPING, CLOSED}),
    TRAINING: frozenset({HOLDING, ASKING, STOPPING, LEAVING, CLOSED}),
    HOLDING: frozenset({TRAINING, STOPPING, CLOSED}),
    ASKING: frozenset({TRAINING, STOPPING, CLOSED}),
    STOPPING: frozenset({CLOSED}),
    LEAVING: frozenset({CLOSED}),
    CLOSED: frozenset(),
}

_NOTHING: tuple[Any, ...] = ()

# One update after Stop is for the rest of accumulated gradients: many scripts make it after their loop. More are a loop.
_UPDATES_AFTER_STOP = 1
# A loop may ask `mpca.stopping()` at every batch and go on; it is not reported at every batch.
_SAY_LEFT_EVERY_S = 0.5


# Measured on one of two busy cores (Python 3.11): 0.4 us per update, 4.6 us per event where installs and exchanges alternate.
class AgentMachine:
    """One incarnation of one agent. Its loop owns it, or the simulator's."""

    __slots__ = (
        "_alphas", "_answer", "_arrived", "_asked", "_deferred", "_first", "_holds", "_installed_at", "_left_at", "_local",
        "_loss", "_pending", "_published", "_readers", "_replacing", "_returns", "_said_left", "_saves", "_since_install",
        "_stop_at", "_tau_from", "_updates", "agent", "bursting", "incarnation", "installed", "pulls", "shards", "side",
        "state", "state_since", "stop_reason",
    )  # fmt: skip

    def __init__(self, agent: int, incarnation: int, shards: int, side: AgentSide) -> None:
        self.agent = agent
        self.incarnation = incarnation
        self.state = STARTING
        self.state_since = 0.0  # when the state was entered, as `now` of that event
        self.stop_reason: str | None = None
        #: (shard, alpha) of the pulls before the next gradient; shards with alpha 0 are left out.
        self.pulls: tuple[tuple[int, float], ...] = _NOTHING
        self.side = side
        self._holds = side.holds
        self.bursting = False  # whether pulls change with the next update
        self._updates = 0  # optimiser updates of this incarnation
        self._readers = 0  # version of the newest list of readers that it received
        self._saves = 0  # number of the newest SaveState
        self._answer: Publish | None = None  # the last snapshot, unless its shard was replaced since
        self._published = 0  # `_updates` when any shard was last published, or replaced by the driver's wish
        self._since_install = 0  # updates since all shards arrived, for methods that hold
        self._installed_at = 0.0  # when they arrived, as `now` of that event, or training began
        self._arrived = 0  # bit s: shard s arrived since then
        self._pending: dict[int, Install] = {}  # arrived shards that wait for the next exchange, or for all other shards
        self._replacing = False  # shards of a replacement have come since the last answer
        self._local = False  # the model has tensors that stay local
        self._returns = b""  # the user's function's result, while LEAVING
        self._stop_at = 0  # `_updates` when Stop came
        self._left_at: int | None = None  # `_updates` when the function last saw Stop
        self._said_left: float | None = None  # when that was last reported
        self._deferred: SnapshotRequest | None = None  # a request that waits for updates that the method wants, or for the slot
        self._asked = 0  # number of the newest Exchange
        self._loss = 0.0  # losses since then, added up
        self._lay(shards)

    def _lay(self, shards: int) -> None:
        """Begin with so many shards, of which nothing was exchanged yet."""
        self.shards = shards
        self.installed = [-1] * shards  # version of each shard's newest installed joint state, -1 before the first
        self._alphas: list[float | None] = [None] * shards  # alphas of the newest installed joint states; None: no pull
        self._first: list[int | None] = [None] * shards  # `_updates` when version 1 was installed; None: a later one came first
        self._tau_from = [0] * shards  # `_updates` when each shard was last published or replaced
        self._answer = None

    def handle(self, event: Any, now: float) -> tuple[Any, ...]:
        """Apply one event at time `now` (seconds, monotonic), and return the instructions that follow, in order.

        Raises:
            LocalProtocolError: this machine does not know the event, or not in this state; nothing was changed.
        """
        decide = _DECISIONS.get(type(event))
        if decide is None:
            raise LocalProtocolError(f"no such event: {event!r}, agent={self.agent}, state={self.state}")
        if self.state is CLOSED:  # the message crossed our last one
            return _NOTHING
        return decide(self, event, now)

    @property
    def updates(self) -> int:
        """Optimiser updates of this incarnation."""
        return self._updates

    @property
    def tilts(self) -> bool:
        """Whether `pulls` are for gradients (eq. 6) and not for parameters (eq. 7)."""
        return self.side.how is How.TILT

    @property
    def due_in(self) -> int:
        """Updates until a deferred request is answered by an agent that does not hold, or one asks by itself; 0: neither."""
        if self.side.asks and self.state is TRAINING:
            return max(1, self.side.asks_after - (self._updates - self._published))
        if self._deferred is None or self.side.holds or self.side.asks:
            return 0
        return self.side.snapshot_after - (self._updates - self._published)

    @property
    def function(self) -> str:
        """Where the user's function is, for `Progress`."""
        if self.state is STOPPING:
            if self._left_at == self._updates:
                return LEFT
            return OVERRUN if self._updates - self._stop_at > _UPDATES_AFTER_STOP else LOOP
        return {LEAVING: RETURNED, CLOSED: ENDED}.get(self.state, LOOP)

    def own(self, now: float) -> dict[str, Any]:
        """What `go_on` needs, counted from now: plain numbers, in lists and dicts."""
        first = [None if at is None else self._updates - at for at in self._first]
        taus = [self._updates - at for at in self._tau_from]
        if self._holds and self._answer is not None:  # handed over, and no joint state has come: no sum has it, if a run stops
            taus[self._answer.shard] += self._answer.updates
        enough = 0 < self.side.hold_after <= self._since_install  # though Stop ended the holding
        return {
            "taus": taus,
            "installed": list(self.installed),
            "alphas": list(self._alphas),
            "ages": first,
            "since_published": self._updates - self._published,
            "since_install": self._since_install,
            "installed_s": now - self._installed_at,
            "arrived": self._arrived,
            "holding": self._holds and (self.state is HOLDING or enough),
        }

    def go_on(self, own: dict[str, Any], now: float) -> None:
        """Be where `own` was. Only when training has just begun.

        An agent that held makes no update before the next joint state. What it holds counts as made here, so that the driver,
        which asks nobody without an update, asks it.

        Raises:
            LocalProtocolError: it has not, or an update was made since; or there are other shards.
        """
        if self.state is not TRAINING or self._updates or len(own["taus"]) != self.shards:
            raise LocalProtocolError(f"it cannot go on now: agent={self.agent}, state={self.state}, updates={self._updates}")
        made = self._updates = own["since_install"] if own["holding"] else 0
        self._tau_from = [made - tau for tau in own["taus"]]
        self.installed, self._alphas = list(own["installed"]), list(own["alphas"])
        self._first = [None if age is None else made - age for age in own["ages"]]
        self._published, self._since_install = made - own["since_published"], own["since_install"]
        self._installed_at, self._arrived = now - own["installed_s"], own["arrived"]
        self._pull_anew()
        if own["holding"]:
            self._become(HOLDING, now, "it held when it was saved")

    # ---- the user's function ----

    def _attached(self, event: Attached, now: float) -> tuple[Any, ...]:
        if self.state is STOPPING:  # Stop came before attach: the run no longer needs this model
            return _NOTHING
        if self.state is not STARTING:
            raise LocalProtocolError(f"attached twice: agent={self.agent}, state={self.state}")
        self._local = event.local
        self._become(WAITING, now, "attach was called")
        return (SayHello(),)

    def _stepped(self, event: Stepped, now: float) -> tuple[Any, ...]:
        count = event[0]
        self._updates += count
        if self.bursting:
            self._pull_anew()
        if self.side.asks:
            return self._ask_when_due(event.loss, now)
        if not self._holds:
            return _NOTHING if self._deferred is None or self.due_in > 0 else self._answer_deferred()
        self._since_install += count
        side, since_s = self.side, now - self._installed_at
        if self.state is not TRAINING or (since_s < side.hold_s if side.hold_s else self._since_install < side.hold_after):
            return _NOTHING
        of = f"in {since_s:.3f} s" if side.hold_s else f"of {side.hold_after}"
        self._become(HOLDING, now, f"{self._since_install} {of} updates are done")
        return self._answer_deferred()

    def _stop_seen(self, event: StopSeen, now: float) -> tuple[Any, ...]:
        if self.state is not STOPPING or self._left_at == self._updates:
            return _NOTHING
        self._left_at = self._updates
        if self._said_left is not None and now - self._said_left < _SAY_LEFT_EVERY_S:
            return _NOTHING
        self._said_left = now
        return (SayProgress(),)

    def _returned(self, event: Returned, now: float) -> tuple[Any, ...]:
        if self._local and self.state is TRAINING:
            self._returns = event.returns
            self._become(LEAVING, now, "the train function returned")
            return (SayProgress(), *self._answer_deferred())
        self._become(CLOSED, now, "the train function returned")
        return (SayFinished(event.returns),)

    def _raised(self, event: Raised, now: float) -> tuple[Any, ...]:
        self._become(CLOSED, now, event.error)
        return (SayFailed(event.error, event.traceback),)

    # ---- the executor ----

    def _cut(self, event: Cut, now: float) -> tuple[Any, ...]:
        if self.state is not WAITING:  # its function has failed, or ended: the executor will hear
            return _NOTHING
        self._lay(event.shards)
        return (CutAnew(event.shards), SayHello())

    def _begin(self, event: Begin, now: float) -> tuple[Any, ...]:
        if self.state is WAITING:
            self._become(TRAINING, now, "x_0 is agreed")
            self._installed_at = now
            return _NOTHING
        # The driver repeats Begin when it submits an order again, and when it sends a joint model to replace ours. The latter
        # may wait for slots that older arrivals hold.
        return self._release_installs()

    def _told_readers(self, event: ReadersChanged, now: float) -> tuple[Any, ...]:
        if event.version <= self._readers:  # repeated, since the driver submitted an order again
            return _NOTHING
        self._readers = event.version
        return (TakeReaders(event.readers),)

    def _snapshot_request(self, event: SnapshotRequest, now: float) -> tuple[Any, ...]:
        if self.state is ASKING:
            self._deferred = event
            return _NOTHING
        if event.shard >= self.shards:
            return (Publish(event.cycle, event.shard, 0),)
        early = self._updates - self._published < self.side.snapshot_after
        if (self._holds or early) and self.state is TRAINING:
            self._deferred = event
            return _NOTHING
        return self._exchange(event)

    def _install(self, event: Install, now: float) -> tuple[Any, ...]:
        if event.shard >= self.shards:
            return (Take(event.shard, event.version, event.mode),)
        if self.side.asks and event.mode == "install":
            return self._answered(event, now)
        if self._stale(event):
            return (Release(event.shard, event.version, event.mode),)
        older = self._pending.pop(event.shard, None)
        freed = _NOTHING if older is None else (Release(older.shard, older.version, older.mode),)
        replaces = event.mode == "replace"
        if replaces and self.state in (TRAINING, ASKING, STOPPING):
            freed += self._release_installs()
            self._pending[event.shard] = event
            self._replacing = len(self._pending) < self.shards
            if self._replacing:
                return freed
            return (*freed, *self._take_pending(), *self._go_on("the joint model replaces its own", now))
        if replaces or self.side.when is When.ON_ARRIVAL or self.state is HOLDING:
            taken = self._take(event)
            self._count_arrival(event.shard, now)
            resets = self._resets(replaces) and self._updates
            return (*freed, taken, ResetOptimizer()) if resets else (*freed, taken)
        self._pending[event.shard] = event
        return freed

    def _save_state(self, event: SaveState, now: float) -> tuple[Any, ...]:
        if event.number <= self._saves:  # repeated, since the driver submitted an order again
            return _NOTHING
        self._saves = event.number
        if self.state not in (TRAINING, HOLDING, STOPPING):
            return (SaveOwn(event.number, f"the agent is {self.state}"),)
        if any(one.mode == "replace" for one in self._pending.values()):
            return (SaveOwn(event.number, "the joint model is replacing the agent's own"),)
        return (*self._take_pending(), SaveOwn(event.number))

    def _state_taken(self, event: StateTaken, now: float) -> tuple[Any, ...]:
        return (CloseOwn(event.number),)

    def _stop(self, event: Stop, now: float) -> tuple[Any, ...]:
        if self.state is STOPPING:
            return _NOTHING
        self.stop_reason = event.reason
        if self.state is LEAVING:
            self._become(CLOSED, now, event.reason)
            return (SayFinished(self._returns),)
        self._stop_at = self._updates
        self._become(STOPPING, now, event.reason)
        return self._answer_deferred()

    def _lost(self, event: LinkLost, now: float) -> tuple[Any, ...]:
        self._become(CLOSED, now, "the executor is gone")
        return (EndGroup(),)

    # ---- rules ----

    def _ask_when_due(self, loss: float, now: float) -> tuple[Any, ...]:
        """An update of an agent that asks by itself: ask, if it is time."""
        side, made = self.side, self._updates - self._published
        self._loss += loss
        early = side.asks_at_loss and self._loss > side.asks_at_loss
        if self.state is not TRAINING or (made < side.asks_after and not early):
            return _NOTHING
        shard, self._loss, self._published = self._asked % self.shards, 0.0, self._updates
        self._asked += 1
        tau = self._updates - self._tau_from[shard]
        self._tau_from[shard] = self._updates
        self._become(ASKING, now, f"{made} updates are done")
        return (Ask(self._asked, shard, tau, self.installed[shard]),)

    def _answered(self, event: Install, now: float) -> tuple[Any, ...]:
        """What has come is the answer to an Exchange, whatever its version is."""
        if self.state is not ASKING or event.shard != (self._asked - 1) % self.shards:
            return (Release(event.shard, event.version, event.mode),)
        taken = self._take(event)
        resets = (ResetOptimizer(),) if self._resets(False) else _NOTHING
        return (taken, *resets, *self._go_on(f"exchange {self._asked} was answered", now))

    def _go_on(self, reason: str, now: float) -> tuple[Any, ...]:
        if self.state is not ASKING:
            return _NOTHING
        self._become(TRAINING, now, reason)
        return self._answer_deferred()

    def _exchange(self, asked: SnapshotRequest) -> tuple[Any, ...]:
        """Publish one shard and install what waits, in the method's order."""
        if asked.shard >= self.shards:
            return (Publish(asked.cycle, asked.shard, 0),)
        replacing, self._replacing = self._replacing and bool(self._pending), False
        if replacing:  # a slot may just have been freed for what the replacement lacks, which comes behind this request
            return (self._publish(asked),)
        # A replacement still lacks shards, which were given up: the shards that came are better than the trained ones.
        if self.side.when is When.BEFORE_SNAPSHOT or any(one.mode == "replace" for one in self._pending.values()):
            taken = self._take_pending()
            return (*taken, self._publish(asked))
        published = self._publish(asked)
        return (published, *self._take_pending())

    def _publish(self, asked: SnapshotRequest) -> Publish:
        shard, last = asked.shard, self._answer
        tau = self._updates - self._tau_from[shard]
        if not tau and last is not None and last[:2] == (asked.cycle, shard):
            return last
        self._tau_from[shard] = self._published = self._updates
        self._answer = Publish(asked.cycle, shard, tau)
        return self._answer

    def _take_pending(self) -> tuple[Any, ...]:
        if not self._pending:
            return _NOTHING
        waiting = [self._pending[shard] for shard in sorted(self._pending)]
        self._pending.clear()
        taken = tuple([self._take(one) for one in waiting])
        resets = self._resets(any(one.mode == "replace" for one in waiting))
        return (*taken, ResetOptimizer()) if resets else taken

    def _resets(self, replaced: bool) -> bool:
        """Whether the optimiser's state begins anew. What is exchanged of it has come with the parameters."""
        return self.side.resets_optimizer or (replaced and not self.side.exchanges_optimizer)

    def _release_installs(self) -> tuple[Any, ...]:
        """Free the slots of shards that wait for an exchange, since a replacement is coming."""
        waiting = [one for one in self._pending.values() if one.mode == "install"]
        for one in waiting:
            del self._pending[one.shard]
        return tuple([Release(one.shard, one.version, one.mode) for one in waiting])

    def _answer_deferred(self) -> tuple[Any, ...]:
        asked, self._deferred = self._deferred, None
        return _NOTHING if asked is None else self._exchange(asked)

    def _stale(self, event: Install) -> bool:
        """Whether an arrived shard is too old. A replacement of the same version is not: the driver has decided to send it."""
        waiting = self._pending.get(event.shard)
        newest = self.installed[event.shard] if waiting is None else waiting.version
        return event.version < newest or (event.version == newest and event.mode != "replace")

    def _take(self, event: Install) -> Take:
        shard, version, mode = event.shard, event.version, event.mode
        self.installed[shard] = version
        if mode == "replace" or self.side.how is How.REPLACE:
            self._tau_from[shard] = self._updates
            self._answer = None
        if mode == "replace":
            self._published = self._updates
        if version == 1:
            self._first[shard] = self._updates
        elif mode == "replace":
            self._first[shard] = None
        if self.side.how in (How.PULL, How.TILT):
            # An agent that joins starts at the joint state, without a pull.
            self._alphas[shard] = event.alpha if mode == "install" else None
            self._pull_anew()
        shares = self.side.how in (How.MIX, How.EAGER) and mode == "install"
        return Take(shard, version, mode, event.alpha if shares else 0.0)

    def _pull_anew(self) -> None:
        """Compute the pulls before the next gradient: alpha as the driver sent it, or more during the first updates."""
        pulls, self.bursting = [], False
        for shard, alpha in enumerate(self._alphas):
            if alpha is None:
                continue
            age = first = self._first[shard]
            if first is not None:
                age = self.installed[shard] - 1 if self.side.decay_by_version else self._updates - first
            now = self.side.penalty(alpha, age)
            self.bursting = self.bursting or (now > alpha and not self.side.decay_by_version)
            if now:
                pulls.append((shard, now))
        self.pulls = tuple(pulls)

    def _count_arrival(self, shard: int, now: float) -> None:
        """For methods that hold: the next tau updates begin when the last shard of a joint state has come."""
        if not self._holds:
            return
        self._arrived |= 1 << shard
        if self._arrived != (1 << self.shards) - 1:
            return
        self._arrived, self._since_install, self._installed_at = 0, 0, now
        if self.state is HOLDING:
            self._become(TRAINING, now, f"joint state {self.installed[shard]} is installed")

    def _become(self, state: State, now: float, reason: str) -> None:
        if state not in MOVES[self.state]:
            raise LocalProtocolError(f'illegal move: agent={self.agent} state {self.state} -> {state} reason="{reason}"')
        if _log.isEnabledFor(logging.INFO):
            _log.info('agent=%d state %s -> %s reason="%s"', self.agent, self.state, state, reason)
        self.state, self.state_since = state, now


_DECISIONS: dict[type, Callable[[AgentMachine, Any, float], tuple[Any, ...]]] = {
    Attached: AgentMachine._attached,
    Stepped: AgentMachine._stepped,
    Returned: AgentMachine._returned,
    Raised: AgentMachine._raised,
    StopSeen: AgentMachine._stop_seen,
    LinkLost: AgentMachine._lost,
    Begin: AgentMachine._begin,
    Cut: AgentMachine._cut,
    SnapshotRequest: AgentMachine._snapshot_request,
    Install: AgentMachine._install,
    ReadersChanged: AgentMachine._told_readers,
    SaveState: AgentMachine._save_state,
    StateTaken: AgentMachine._state_taken,
    Stop: AgentMachine._stop,
}
