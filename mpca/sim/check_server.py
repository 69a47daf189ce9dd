"""Invariants of a method on a server: what `check.Checker` says of cycles, said of single exchanges.

    I1  an exchange of an incarnation is taken in at most once
    I2  joint model = model before, and what the listed agent sent, by the method's rule; tau is counted from the trainer's
        updates, staleness from what the agent took last
    I10 an answer is what the method makes of that exchange; when nothing was taken in, it is a joint state
    fence  nothing of an older incarnation is taken in

It replays the ledger by what the trainers handed over, one exchange after the other, in float64.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from mpca.agent.events import Ask
from mpca.algorithm import JointShard
from mpca.methods.base import Method
from mpca.records import ExchangeRecord
from mpca.sim.check_joint import JointCheck, close_to
from mpca.wire.agent_ref import AgentId

__all__ = ["ServerCheck"]

Key = tuple[AgentId, int]  # process, and number of its exchange


class ServerCheck:
    """See the module's text.

    Args:
        method: of the run.
        agents: of the run.
        joint: holds the joint states.
        broken: raises the violation of an invariant, by its name and what is wrong.
    """

    def __init__(self, method: Method, agents: int, joint: JointCheck, broken: Callable[[str, str], None]) -> None:
        self._method, self._agents, self._joint, self._broken = method, agents, joint, broken
        self._sent: dict[Key, tuple[Ask, np.ndarray]] = {}
        self._used: set[Key] = set()
        self._answers: dict[Key, np.ndarray] = {}
        self._states: dict[int, Any] = {}  # by shard: the joint state after its newest exchange
        self._newest: deque[int] = deque(maxlen=3 * agents)  # agents of the newest exchanges

    @property
    def contributors(self) -> set[int]:
        """Agents that exchanged of late."""
        return set(self._newest)

    def sent(self, who: AgentId, one: Ask, data: np.ndarray, tau: int) -> None:
        """An agent asks. `tau`: updates that its trainer has made since the shard was handed over or replaced."""
        if tau != one.updates:
            self._broken("I2", f"tau of exchange {one.number} of {who}: said {one.updates}, trained {tau}")
        self._sent[(who, one.number)] = one, data.copy()

    def listed(self, record: ExchangeRecord, newest: int) -> None:
        """A line of the ledger. `newest` is the incarnation of the agent that was started last."""
        if record.reason:
            return
        key, shard = (AgentId(record.agent, record.incarnation), record.number), record.shard
        before = self._states.get(shard) or self._joint.states[shard]
        self._joint.look()
        after = self._joint.states[shard]
        if key in self._used:
            self._broken("I1", f"exchange {key} was taken in twice")
        if record.incarnation != newest:
            self._broken("fence", f"exchange {key} was taken in, the newest incarnation is {newest}")
        if key not in self._sent:
            self._broken("I2", f"exchange {key} was taken in and never sent")
        self._used.add(key)
        one, data = self._sent.pop(key)
        stale = before.k - max(0, one.version)
        if (record.tau, record.staleness, record.version) != (one.updates, stale, after.k):
            self._broken("I2", f"{record}: it was sent with tau {one.updates}, staleness {stale}, and made version {after.k}")
        wide = JointShard(before.x.astype(np.float64), before.v.astype(np.float64), before.k)
        served = self._method.serve(wide, data.astype(np.float64), stale, self._agents)
        if not close_to(after.x, served.state.x) or not close_to(after.v, served.state.v):
            self._broken("I2", f"version {after.k} of shard {shard} is not that before and exchange {key}")
        self._states[shard] = after
        self._answers[key] = served.answer
        self._newest.append(record.agent)

    def answered(self, who: AgentId, number: int, data: np.ndarray, version: int, mode: str) -> None:
        """An answer is handed to its agent."""
        expected = self._answers.pop((who, number), None)
        if expected is None or mode == "replace":
            states = [one for (_, k), one in self._joint.committed.items() if k == version]
            if not any(np.array_equal(one.x, data) for one in states):
                self._broken("I10", f"agent {who.agent} is answered by what is no joint state of version {version}")
        elif not close_to(data, expected):
            self._broken("I10", f"agent {who.agent} gets another answer to exchange {number} than the method gives")
