"""The agent's decisions: when it may train, when it publishes and installs, and with which tau. No I/O, no clock.

Every event is handed over between two batches, so an instruction can be carried out at once. Stages:

    STARTING   the user's function runs; `attach` has not been called
    WAITING    Hello was said; x_0 may be read and replaced; no step yet
    TRAINING   steps are taken, and interrupted when asked
    HOLDING    a method in step with others (sync): tau updates are done, the answering joint state is not here yet
    STOPPING   asked to stop: what is asked is still answered, until the user's function returns; `function` says whether
               it goes on with its loop or has left it
    LEAVING    the user's function returned by itself, of a model with local tensors: what is asked is still answered,
               so that they can be read, until Stop comes
    CLOSED     the last word is said

What is not obvious. *tau* is updates since the last snapshot of that shard, whatever became of that snapshot, or since
the shard was replaced, if that was later: updates that were thrown away are no weight. An arrival waits for the next
exchange or is taken at once, as the method says. The order at an exchange is snapshot, then install, except for
delay-corrected methods, where that order would never damp. A method that holds answers a SnapshotRequest only when its
tau updates are done: not earlier, or its average would be of unequal steps.

An agent that trains and is told to replace its parameters had some that were not finite. It takes all shards between the
same two batches, since one update with a shard that is not finite spoils the others again, and its optimiser begins anew.
Shards behind the method's own are the local tensors: they are no exchange, have no tau, and are answered at once.
See README.md beside this file for a failure told step by step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from mpca.agent.events import (
    Attached,
    EndGroup,
    LinkLost,
    Publish,
    Raised,
    Release,
    ResetOptimizer,
    Returned,
    SayFailed,
    SayFinished,
    SayHello,
    SayProgress,
    Stepped,
    StopSeen,
    Take,
    TakeMembers,
)
from mpca.errors import LocalProtocolError
from mpca.wire.messages import ENDED, LEFT, LOOP, OVERRUN, RETURNED, Begin, Install, Members, SnapshotRequest, Stop

__all__ = ["CLOSED", "HOLDING", "LEAVING", "STARTING", "STOPPING", "TRAINING", "WAITING", "AgentMachine", "AgentMethod"]

_log = logging.getLogger("mpca.agent")

STARTING, WAITING, TRAINING, HOLDING, STOPPING, LEAVING, CLOSED = (
    "STARTING", "WAITING", "TRAINING", "HOLDING", "STOPPING", "LEAVING", "CLOSED",
)  # fmt: skip

_NOTHING: tuple[Any, ...] = ()

# One update after Stop is the rest of accumulated gradients, as many scripts make it behind their loop; more are a loop.
_UPDATES_AFTER_STOP = 1
# A loop that asks `mpca.stopping()` at every batch and goes on need not be reported at every batch.
_SAY_LEFT_EVERY_S = 0.5


class AgentMethod(Protocol):
    """What the agent asks of its method; `methods.base.Method` has the meanings."""

    @property
    def arrival(self) -> str: ...
    @property
    def install(self) -> str: ...
    @property
    def install_first(self) -> bool: ...
    @property
    def hold_after(self) -> int: ...
    def penalty(self, alpha: float, updates: int | None) -> float: ...


# Measured on one of two busy cores (Python 3.11): 0.4 us an update, 4.6 us an event where installs and exchanges alternate.
class AgentMachine:
    """One incarnation of one agent. Owned by its loop, or by the simulator's."""

    __slots__ = (
        "_alphas", "_arrived", "_deferred", "_first", "_hold_after", "_install_first", "_left_at", "_local", "_members",
        "_method", "_on_arrival", "_pending", "_pulled", "_replaces", "_returns", "_said_left", "_since_install", "_stop_at",
        "_tau_from", "_updates", "agent", "bursting", "incarnation", "installed", "pulls", "shards", "stage", "stage_since",
        "stop_reason",
    )  # fmt: skip

    def __init__(self, agent: int, incarnation: int, shards: int, method: AgentMethod) -> None:
        self.agent = agent
        self.incarnation = incarnation
        self.shards = shards
        self.stage = STARTING
        self.stage_since = 0.0  # when the stage was entered, as `now` of that event
        self.stop_reason: str | None = None
        self.installed = [-1] * shards  # version of each shard's newest installed joint state, -1 before the first
        #: (shard, alpha) of the pulls before the next gradient; shards with alpha 0 are left out.
        self.pulls: tuple[tuple[int, float], ...] = _NOTHING
        self._method = method
        self._pulled = method.arrival == "target"
        self._replaces = method.arrival == "replace"
        self._alphas: list[float | None] = [None] * shards  # came with the newest installed joint states; None: not pulled
        self._first: list[int | None] = [None] * shards  # `_updates` when version 1 was installed; None: began at a later one
        self.bursting = False  # whether pulls change with the next update
        self._on_arrival = method.install == "arrival"
        self._install_first = method.install_first
        self._hold_after = method.hold_after
        self._updates = 0  # optimiser updates of this incarnation
        self._members = 0  # version of the newest membership that it was told
        self._tau_from = [0] * shards  # `_updates` when each shard was last published or replaced
        self._since_install = 0  # updates since all shards arrived, for methods that hold
        self._arrived = 0  # bit s: shard s arrived since then
        self._pending: dict[int, Install] = {}  # arrivals that wait for the next exchange, or to replace all shards at once
        self._local = False  # the model has tensors that stay local
        self._returns = b""  # of the user's function, while LEAVING
        self._stop_at = 0  # `_updates` when Stop came
        self._left_at: int | None = None  # ... when the function knew of it
        self._said_left: float | None = None  # when that was told last
        self._deferred: SnapshotRequest | None = None  # asked of a method that holds, before its tau updates were done

    def handle(self, event: Any, now: float) -> tuple[Any, ...]:
        """Apply one event at time `now` (seconds, monotonic) and say what to do next, in order.

        Raises:
            LocalProtocolError: an event that this machine does not know, or not at this stage; nothing was changed.
        """
        decide = _DECISIONS.get(type(event))
        if decide is None:
            raise LocalProtocolError(f"no such event: {event!r}, agent={self.agent}, stage={self.stage}")
        if self.stage is CLOSED:  # what was said before our last word was read
            return _NOTHING
        return decide(self, event, now)

    @property
    def updates(self) -> int:
        """Optimiser updates of this incarnation."""
        return self._updates

    @property
    def function(self) -> str:
        """Where the user's function is, as `Progress` says it."""
        if self.stage is STOPPING:
            if self._left_at == self._updates:
                return LEFT
            return OVERRUN if self._updates - self._stop_at > _UPDATES_AFTER_STOP else LOOP
        return {LEAVING: RETURNED, CLOSED: ENDED}.get(self.stage, LOOP)

    # ---- the user's function ----

    def _attached(self, event: Attached, now: float) -> tuple[Any, ...]:
        if self.stage is STOPPING:  # stopped while it built its model: it need not be known any more
            return _NOTHING
        if self.stage is not STARTING:
            raise LocalProtocolError(f"attached twice: agent={self.agent}, stage={self.stage}")
        self._local = event.local
        self._become(WAITING, now, "attach was called")
        return (SayHello(),)

    def _stepped(self, event: Stepped, now: float) -> tuple[Any, ...]:
        count = event[0]
        self._updates += count
        if self.bursting:
            self._pull_anew()
        if not self._hold_after:
            return _NOTHING
        self._since_install += count
        if self.stage is not TRAINING or self._since_install < self._hold_after:
            return _NOTHING
        self._become(HOLDING, now, f"{self._since_install} of {self._hold_after} updates are done")
        return self._answer_deferred()

    def _stop_seen(self, event: StopSeen, now: float) -> tuple[Any, ...]:
        if self.stage is not STOPPING or self._left_at == self._updates:
            return _NOTHING
        self._left_at = self._updates
        if self._said_left is not None and now - self._said_left < _SAY_LEFT_EVERY_S:
            return _NOTHING
        self._said_left = now
        return (SayProgress(),)

    def _returned(self, event: Returned, now: float) -> tuple[Any, ...]:
        if self._local and self.stage is TRAINING:
            self._returns = event.returns
            self._become(LEAVING, now, "the train function returned")
            return (SayProgress(), *self._answer_deferred())
        self._become(CLOSED, now, "the train function returned")
        return (SayFinished(event.returns),)

    def _raised(self, event: Raised, now: float) -> tuple[Any, ...]:
        self._become(CLOSED, now, event.error)
        return (SayFailed(event.error, event.traceback),)

    # ---- the executor ----

    def _begin(self, event: Begin, now: float) -> tuple[Any, ...]:
        if self.stage is WAITING:
            self._become(TRAINING, now, "x_0 is agreed")
            return _NOTHING
        # said again with an order that was submitted again; or the driver has sent a joint model that is to replace ours, and
        # it may be waiting for the slots of older arrivals
        return self._release_installs()

    def _told_members(self, event: Members, now: float) -> tuple[Any, ...]:
        if event.version <= self._members:  # said again with an order that was submitted again
            return _NOTHING
        self._members = event.version
        return (TakeMembers(event.members),)

    def _snapshot_request(self, event: SnapshotRequest, now: float) -> tuple[Any, ...]:
        if event.shard >= self.shards:
            return (Publish(event.cycle, event.shard, 0),)
        if self._hold_after and self.stage is TRAINING:
            self._deferred = event
            return _NOTHING
        return self._exchange(event)

    def _install(self, event: Install, now: float) -> tuple[Any, ...]:
        if event.shard >= self.shards:
            return (Take(event.shard, event.version, event.mode),)
        if self._stale(event):
            return (Release(event.shard, event.version, event.mode),)
        older = self._pending.pop(event.shard, None)
        freed = _NOTHING if older is None else (Release(older.shard, older.version, older.mode),)
        replaces = event.mode == "replace"
        if replaces and self.stage in (TRAINING, STOPPING):
            freed += self._release_installs()
            self._pending[event.shard] = event
            return (*freed, *self._take_pending()) if len(self._pending) == self.shards else freed
        if replaces or self._on_arrival or self.stage is HOLDING:
            taken = self._take(event)
            self._count_arrival(event.shard, now)
            return (*freed, taken, ResetOptimizer()) if replaces and self._updates else (*freed, taken)
        self._pending[event.shard] = event
        return freed

    def _stop(self, event: Stop, now: float) -> tuple[Any, ...]:
        if self.stage is STOPPING:
            return _NOTHING
        self.stop_reason = event.reason
        if self.stage is LEAVING:
            self._become(CLOSED, now, event.reason)
            return (SayFinished(self._returns),)
        self._stop_at = self._updates
        self._become(STOPPING, now, event.reason)
        return self._answer_deferred()

    def _lost(self, event: LinkLost, now: float) -> tuple[Any, ...]:
        self._become(CLOSED, now, "the executor is gone")
        return (EndGroup(),)

    # ---- rules ----

    def _exchange(self, asked: SnapshotRequest) -> tuple[Any, ...]:
        """Publish one shard and take in what waits, in the method's order."""
        # a replacement that is not whole yet: its missing shards were given up, and what is here is better than what is trained
        if self._install_first or any(one.mode == "replace" for one in self._pending.values()):
            taken = self._take_pending()
            return (*taken, self._publish(asked))
        published = self._publish(asked)
        return (published, *self._take_pending())

    def _publish(self, asked: SnapshotRequest) -> Publish:
        shard = asked.shard
        tau = self._updates - self._tau_from[shard]
        self._tau_from[shard] = self._updates
        return Publish(asked.cycle, shard, tau)

    def _take_pending(self) -> tuple[Any, ...]:
        if not self._pending:
            return _NOTHING
        waiting = [self._pending[shard] for shard in sorted(self._pending)]
        self._pending.clear()
        taken = tuple([self._take(one) for one in waiting])
        return (*taken, ResetOptimizer()) if any(one.mode == "replace" for one in waiting) else taken

    def _release_installs(self) -> tuple[Any, ...]:
        """Free the slots of arrivals that wait for an exchange: a replacement is on its way."""
        waiting = [one for one in self._pending.values() if one.mode == "install"]
        for one in waiting:
            del self._pending[one.shard]
        return tuple([Release(one.shard, one.version, one.mode) for one in waiting])

    def _answer_deferred(self) -> tuple[Any, ...]:
        asked, self._deferred = self._deferred, None
        return _NOTHING if asked is None else self._exchange(asked)

    def _stale(self, event: Install) -> bool:
        """The newest version wins; a replacement of the same version is the driver's own decision and wins too."""
        waiting = self._pending.get(event.shard)
        newest = self.installed[event.shard] if waiting is None else waiting.version
        return event.version < newest or (event.version == newest and event.mode != "replace")

    def _take(self, event: Install) -> Take:
        shard, version, mode = event.shard, event.version, event.mode
        self.installed[shard] = version
        if mode == "replace" or self._replaces:
            self._tau_from[shard] = self._updates
        if version == 1:
            self._first[shard] = self._updates
        elif mode == "replace":
            self._first[shard] = None
        if self._pulled:
            # A joiner starts at the joint state, unpulled.
            self._alphas[shard] = event.alpha if mode == "install" else None
            self._pull_anew()
        return Take(shard, version, mode)

    def _pull_anew(self) -> None:
        """Pulls before the next gradient: each alpha as it came, or more at the beginning."""
        pulls, self.bursting = [], False
        for shard, alpha in enumerate(self._alphas):
            if alpha is None:
                continue
            first = self._first[shard]
            now = self._method.penalty(alpha, None if first is None else self._updates - first)
            self.bursting = self.bursting or now > alpha
            if now:
                pulls.append((shard, now))
        self.pulls = tuple(pulls)

    def _count_arrival(self, shard: int, now: float) -> None:
        """For methods that hold: with the last shard of a joint state the next tau updates begin."""
        if not self._hold_after:
            return
        self._arrived |= 1 << shard
        if self._arrived != (1 << self.shards) - 1:
            return
        self._arrived, self._since_install = 0, 0
        if self.stage is HOLDING:
            self._become(TRAINING, now, f"joint state {self.installed[shard]} is installed")

    def _become(self, stage: str, now: float, reason: str) -> None:
        if _log.isEnabledFor(logging.INFO):
            _log.info('agent=%d stage %s -> %s reason="%s"', self.agent, self.stage, stage, reason)
        self.stage, self.stage_since = stage, now


_DECISIONS: dict[type, Callable[[AgentMachine, Any, float], tuple[Any, ...]]] = {
    Attached: AgentMachine._attached,
    Stepped: AgentMachine._stepped,
    Returned: AgentMachine._returned,
    Raised: AgentMachine._raised,
    StopSeen: AgentMachine._stop_seen,
    LinkLost: AgentMachine._lost,
    Begin: AgentMachine._begin,
    SnapshotRequest: AgentMachine._snapshot_request,
    Install: AgentMachine._install,
    Members: AgentMachine._told_members,
    Stop: AgentMachine._stop,
}
