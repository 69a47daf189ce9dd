"""What follows when an order fails: who is left out of its repetition, and when it goes out again.

Executors that are known to be lost explain a failure. When no loss is known after a moment's grace, the executors that failed
or did not end are left out as late. An executor whose bytes were damaged twice is left out at once, and barred.
"""

from __future__ import annotations

import logging

from mpca.driver.events import ExecutorDamages, OrderFailed, StopRequested
from mpca.driver.instructions import Instruction
from mpca.driver.run import Run
from mpca.driver.running import Running
from mpca.driver.states import AgentState, RunState

__all__ = ["DEADLINE", "Failures"]

log = logging.getLogger("mpca.cycle")

#: How executors begin to say that an order took too long (`Waits.java`).
DEADLINE = "deadline passed"
#: The run ends after more failures in a row than it has agents and this many more, if no loss explains them; after the second
#: that x_0 takes too long.
MOST_MORE = 3


class Failures:
    """See the module's text. `now` is seconds of the machine's clock."""

    def __init__(self, run: Run, exchange: Running) -> None:
        self._run, self._exchange = run, exchange
        self._in_a_row = 0  # failures that no loss explains

    def order_done(self) -> None:
        """An order has ended well."""
        self._in_a_row = 0

    def order_failed(self, event: OrderFailed, now: float) -> list[Instruction]:
        """Keep the failed order until its cause is known. While the run stops, the order does not go out again.

        Args:
            event: which order failed, and how.
            now: seconds of the machine.

        Returns:
            What `retry` returns.
        """
        run = self._run
        order = run.orders.done(event.order)
        if order is None:
            return []
        if run.state is RunState.STOPPING:
            if run.local.owns(order):
                run.local.give_up(event.reason, now)
            if order.stop:
                run.finishing.unheard(now)
            return []
        log.warning("order=%d failed executor=%s reason=%s", event.order, event.executor, event.reason)
        run.orders.keep_failed(event, order, now)
        return self.retry(now)

    def retry(self, now: float) -> list[Instruction]:
        """Submit the failed order once more, when its time has come, without the executors that are known to be lost.

        Args:
            now: seconds of the machine.

        Returns:
            Records of agents that are left out, and SubmitOrder; nothing while the order waits.
        """
        orders = self._run.orders
        failed = orders.take_failed(now)
        if failed is None:
            return []
        out = [] if orders.lost_one(failed.order) and not failed.event.damages else self._suspect(failed.event, now)
        if self._run.trains:
            out += self._exchange.submit_again(now)
        return out  # an order of no cycle is built anew from what is true now

    def _suspect(self, event: OrderFailed, now: float) -> list[Instruction]:
        """No executor is known to be lost: leave out those that failed or did not end, and ask them later."""
        run, out = self._run, []
        culprits = [event.executor] if event.executor else event.unfinished  # a failed task ends all others
        self._in_a_row += 1
        slow = run.state is RunState.READING and event.reason.startswith(DEADLINE)  # each time takes as long as the start may
        if not culprits or self._in_a_row > (1 if slow else len(run.table.agents) + MOST_MORE):
            run.stop(StopRequested("failed", self._why(event.reason)), now)
            return []
        if event.executor and event.damages:
            run.late.bar(event.executor, now)
        for name in culprits:
            out += self._leave_out(name, event.reason, now)
        return out

    def _why(self, reason: str) -> str:
        shape, reads = self._run.shape, self._run.state is RunState.READING
        what = "the reading of x_0" if reads else f"cycle {self._exchange.cycle}"
        key, value = ("start_timeout", shape.start_timeout_s) if reads else ("cycle_deadline", shape.deadline_s)
        remedy = f"; if links are slow for this model, raise cluster.{key}={value:g}s, or method.shards"
        return f"{what} failed {self._in_a_row} times: {reason}" + remedy * reason.startswith(DEADLINE)

    def damaged(self, event: ExecutorDamages, now: float) -> list[Instruction]:
        """Bytes of an executor came damaged, and no order failed by that: leave the executor out, and bar it for `BARRED_S`.

        Args:
            event: which executor, and what was seen.
            now: seconds of the machine.

        Returns:
            Records of agents that are left out.
        """
        run = self._run
        if not run.trains or event.executor not in run.table.executors:
            return []
        log.warning("%s", event.reason)
        run.late.bar(event.executor, now)
        return self._leave_out(event.executor, event.reason, now)

    def _leave_out(self, executor: str, reason: str, now: float) -> list[Instruction]:
        """From the next order on the executor's part is in no range: all ranges of a sum have the same contributors."""
        out: list[Instruction] = []
        self._exchange.forget_part(executor)
        # LATE agents too: one that did not acknowledge its download during the grace is LATE already, yet its part is in this
        # cycle, and the record must say that it was left out
        for agent in list(self._run.table.in_state(AgentState.ACTIVE, AgentState.LATE)):
            if agent.executor == executor:
                self._exchange.leave_out(agent.index, reason)
                out += self._run.late.left_out(agent, reason, now)
        return out
