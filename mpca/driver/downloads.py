"""Who has acknowledged a download, who is late with it, and the one download that outlives its cycle.

An agent that is late alone (`PublishedShard.overdue`) may take its download until the deadline; the cycle ends without that
agent. The deadline is that of the cycle, or twice the mean time that agents took for the download before: else, where a shard
takes nearly as long as `cluster.cycle_deadline`, all would be late whenever anything happens. `now` is seconds of the machine's
clock.
"""

from __future__ import annotations

import logging
from statistics import fmean

from mpca.driver.agent_table import Agent
from mpca.driver.events import Acknowledged
from mpca.driver.instructions import Instruction
from mpca.driver.late_agents import DOWNLOAD_LATE
from mpca.driver.published import PublishedShard
from mpca.driver.run import Run
from mpca.driver.states import AgentState
from mpca.wire.agent_ref import AgentId

__all__ = ["Downloads"]

log = logging.getLogger("mpca.cycle")


class Downloads:
    """See the module's text. `one` is what the present cycle's orders say to download; None: nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._owed: PublishedShard | None = None  # of an earlier cycle; an agent that is late alone still downloads it
        self._may_take = run.shape.deadline_s  # seconds that a download may take at least

    def acknowledged(self, one: PublishedShard | None, event: Acknowledged, now: float) -> bool:
        """An executor has a broadcast for an agent.

        Args:
            one: the download of the present cycle.
            event: which executor has what, for whom.
            now: seconds of the machine.

        Returns:
            Whether it is the download of the present cycle.
        """
        key = event.id
        if self._owed is not None and event.broadcast == self._owed.broadcast:
            self._owed.acknowledged(key, now)
        if one is None or event.broadcast != one.broadcast:
            return False
        one.acknowledged(key, now)
        return True

    def waits(self, one: PublishedShard | None) -> bool:
        """Whether some agent is missing: asked after each event, so it looks no further than the first."""
        return one is not None and any(self._active(key) is not None for key in one.waiting)

    def missing(self, one: PublishedShard) -> list[Agent]:
        """ACTIVE agents that were told to download it and have not acknowledged it."""
        active = map(self._active, one.waiting)
        return sorted((agent for agent in active if agent is not None), key=lambda agent: agent.index)

    def _active(self, key: AgentId) -> Agent | None:
        found = self._run.table.find(key)
        return found if found is not None and found.state == AgentState.ACTIVE else None

    def look(self, one: PublishedShard, deadline: float, now: float) -> list[Instruction]:
        """Declare agents late that do not acknowledge: all of them after the deadline, one alone sooner.

        Args:
            one: the download of the present cycle.
            deadline: of that cycle, in seconds of the machine.
            now: seconds of the machine.

        Returns:
            A record for each that is late after the deadline.
        """
        out: list[Instruction] = []
        missing, deadline = self.missing(one), max(deadline, self._until(one))
        if missing and now > deadline:
            log.warning(
                "agents=%s have not received shard %d, cycle %d, within %gs, and train on without it; "
                "if their hosts are well, raise cluster.cycle_deadline, which is %gs, or method.shards",
                [agent.index for agent in missing],
                one.shard,
                one.cycle,
                deadline - one.since,
                self._run.shape.deadline_s,
            )
        for agent in missing:
            if now > deadline:
                out += self._run.late.left_out(agent, DOWNLOAD_LATE, now)
            elif one.overdue(now):
                self._run.late.late_alone(agent, self._until(one), now)
        return out

    def end(self, one: PublishedShard | None, now: float) -> list[Instruction]:
        """The cycle ends: withdraw its download, unless an agent that is late alone may still acknowledge it.

        Returns:
            Withdraw for each broadcast that nobody waits for.
        """
        if one is None:
            return []
        if one.took:
            self._may_take = max(self._run.shape.deadline_s, 2 * fmean(one.took))
        done: PublishedShard | None = one
        if self._owes(one, now):  # one at most: agents that are late with an older one are given up
            done, self._owed = self._owed, one
        return self._run.orders.drop([done] if done is not None else [])

    def end_owed(self, now: float) -> list[Instruction]:
        """Withdraw the older download once no agent may acknowledge it any more.

        Returns:
            Withdraw, or nothing.
        """
        if self._owed is None or self._owes(self._owed, now):
            return []
        owed, self._owed = self._owed, None
        return self._run.orders.drop([owed])

    def _owes(self, one: PublishedShard, now: float) -> bool:
        return now <= self._until(one) and any(self._run.late.owes(key) for key in one.waiting)

    def _until(self, one: PublishedShard) -> float:
        return one.since + self._may_take
