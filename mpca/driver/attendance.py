"""Who is late, who answers again, and whose holding job ended: what rediscovery is asked for, and what its answer means.

Beside the roster, which knows in which state an agent is. Agents are named by (agent, incarnation): the fence again.
"""

from __future__ import annotations

from mpca.driver import cluster as c
from mpca.driver import instructions as i
from mpca.driver.roster import ACTIVE, FINISHED, Agent, Roster

__all__ = ["ASK_AGAIN_S", "Attendance"]

# How often executors are asked whether the agents that were left out, or whose holding job ended, live.
ASK_AGAIN_S = 5.0

Key = tuple[int, int]


class Attendance:
    """Answers that are outstanding, and how they come."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._suspects: set[Key] = set()  # left out though nobody said that they were lost: to be asked for again
        self._ask_at = 0.0
        self._unheld: set[Key] = set()  # their holding job ended
        self._early: set[Key] = set()  # they answered late before they were known to be late

    def left_out(self, agent: Agent, reason: str, now: float) -> list:
        """Late, and it owes no answer that would bring it back: it is asked for."""
        self._suspects.add((agent.index, agent.incarnation))
        self._ask_at = now + ASK_AGAIN_S
        return self._roster.late(agent.index, agent.incarnation, reason, now)

    def was_late(self, key: Key, reason: str, now: float) -> list:
        """Its executor answered without it; if it has answered since, it owes nothing any more."""
        if key in self._early:
            self._early.discard(key)
            return []
        return self._roster.late(*key, reason, now)

    def answered(self, key: Key) -> None:
        """It handed a yield over in time."""
        self._early.discard(key)

    def on_back(self, event: c.AgentBack, now: float) -> list:
        key = (event.agent, event.incarnation)
        found = self._roster.find(*key)
        if found is not None and found.state == ACTIVE:
            self._early.add(key)
        return self._roster.back(*key, now, "it answered again")

    def on_acknowledged(self, key: Key, now: float) -> list:
        return self._roster.back(*key, now, "its download came after all") if key in self._suspects else []

    def on_hold_ended(self, event: c.HoldEnded) -> list:
        found = self._roster.find(event.agent, event.incarnation)
        if found is None or found.state == FINISHED or found.executor not in self._roster.executors:
            return []  # ended, or lost with its executor: those events say the rest
        self._unheld.add((event.agent, event.incarnation))
        return self.ask()

    def on_found(self, event: c.AgentsFound, now: float) -> list:
        out: list = []
        settled = {(one.agent, one.incarnation) for one in event.agents}
        for one in event.agents:
            key = (one.agent, one.incarnation)
            found = self._roster.find(*key)
            if found is None or found.executor != event.executor or found.state == FINISHED:
                continue
            if key in self._unheld:  # only then: a second holding job would take the core that orders need
                out += self._roster.hold_again(*key, event.executor)
            if key in self._suspects:
                out += self._roster.back(*key, now, "its executor answered again")
        for key in sorted(self._unheld - settled):
            found = self._roster.find(*key)
            if found is None or found.executor == event.executor:  # for the others their own executors answer
                out += self._roster.died(*key, "its holding job ended, and its process with it", now)
                settled.add(key)
        self._unheld -= settled
        self._suspects -= settled
        return out

    def on_tick(self, now: float) -> list:
        """Ask again, from time to time, for those about whom something is open: an answer may never come."""
        if now < self._ask_at:
            return []
        self._ask_at = now + ASK_AGAIN_S
        self._suspects = {key for key in self._suspects if self._roster.is_late(*key)}
        return self.ask()

    def ask(self) -> list:
        """Rediscovery on the executors of those about whom something is open, and on no others: a question is a Spark job."""
        open_ones = [self._roster.find(*key) for key in self._suspects | self._unheld]
        executors = sorted({found.executor for found in open_ones if found is not None and found.executor})
        return [i.Rediscover(executors)] if executors else []
