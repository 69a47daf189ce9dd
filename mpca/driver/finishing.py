"""What becomes of the train functions once the run stops: how long each may take, who is still at work, what was cut off.

A function hears of the stop between two batches, leaves its loop, does what stands behind the loop (a last evaluation, a
`torch.save`) and returns. The driver knows only what the agent says (`Progress.function`), and when:

    silent     no word that the function left its loop: in a long batch, behind a loop that ended by itself, or stuck
    left       the function knows of the stop and has made no update since
    overran    the function made updates later than `STOP_GRACE_S` after the stop was sent; it stays so
    ended      finished, raised, died, or lost with its executor

    which                                 may take
    overran                               STOP_GRACE_S
    silent, left                          `cluster.finish_timeout`, at least STOP_GRACE_S
    all, of a run interrupted or failed   STOP_GRACE_S from then on

Nothing is killed here: the cluster is closed when no function is waited for any more. A function that overran and returns
before that has finished like any other. When the order that says stop failed, it goes out again, since agents that did not
hear of it would train on. Endings outrank each other (`Finishing.again`): a function that raises behind its loop makes a
run that had reached its end a failed one. Pure: events in, answers out, the time is an argument, in seconds of the machine's
clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mpca.driver.agent_table import Agent
from mpca.driver.events import AgentProgress, StopRequested
from mpca.driver.instructions import CutOff, End
from mpca.driver.states import AgentState
from mpca.timeouts import STOP_AGAIN_S, STOP_GRACE_S
from mpca.units import format_duration
from mpca.wire.agent_ref import AgentId
from mpca.wire.messages import LEFT, OVERRUN

__all__ = ["HURRIED", "Finishing"]

#: After these endings no function's work is waited for.
HURRIED = ("interrupted", "failed")
# How often the line about functions that are still at work is renewed.
_SAY_EVERY_S = 60.0
_NAMED = 8  # agents, in a line that must stay one


@dataclass(slots=True)
class _Function:
    """The train function of one agent that was told to stop."""

    left: bool = False
    overran: bool = False
    ended: str = ""  # how, if it did not return


class Finishing:
    """From the first request to stop to the end of the run.

    Args:
        finish_s: `cluster.finish_timeout` in seconds.
    """

    def __init__(self, finish_s: float) -> None:
        #: Which functions are waited for, in one line. It changes when there is news, and is empty before STOP_GRACE_S is over.
        self.at_work = ""
        self._finish_s = max(STOP_GRACE_S, finish_s)
        self._told: float | None = None  # when the order that says stop went out first
        self._again_at: float | None = None  # when it goes out again
        self._until = 0.0  # from then on no function is waited for
        self._told_failure = False  # the reason of an interruption names a failure too
        self._hurry = ""  # why functions have less time than `cluster.finish_timeout`
        self._said = 0.0  # when `at_work` was made
        self._functions: dict[AgentId, _Function] = {}

    # ---- endings -------------------------------------------------------------------------------------------------------

    def again(self, ending: StopRequested, event: StopRequested, now: float) -> StopRequested:
        """What the run ends as when it is asked to stop once more.

        A failure outranks an end that was reached. Beside an interruption, a failure is only told. An interruption shortens
        the time that is left.

        Args:
            ending: what the run ends as so far.
            event: the new request.
            now: seconds of the machine.

        Returns:
            What the run ends as from now on.
        """
        if ending.status == "failed" or event.status not in HURRIED or (ending.status == event.status):
            return ending
        if event.status == "interrupted":
            self._hasten(event.reason, now)
            return ending
        self._hasten("the run failed", now)
        if ending.status == "interrupted":
            told, self._told_failure = self._told_failure, True
            return ending if told else replace(ending, reason=f"{ending.reason}; then {event.reason}")
        before = f"before that, training had come to its end: {ending.status}, {ending.reason}"
        return replace(event, reason=f"{event.reason.rstrip()}\n{before}")

    def _hasten(self, why: str, now: float) -> None:
        if not self._hurry:
            self._hurry = why.partition("\n")[0]
            self._until = min(self._until, now + STOP_GRACE_S)

    # ---- who is told -----------------------------------------------------------------------------------------------------

    @property
    def told(self) -> bool:
        """Whether the order that says stop has gone out."""
        return self._told is not None

    def tell(self, agents: Iterable[Agent], ending: StopRequested, now: float) -> None:
        """The order that says stop goes out now.

        Args:
            agents: who gets it.
            ending: what the run ends as; it decides how long the functions have.
            now: seconds of the machine.
        """
        self._again_at = None
        if self._told is None:
            self._told = now
            if ending.status in HURRIED:
                self._hurry = ending.reason.partition("\n")[0]
            self._until = now + (STOP_GRACE_S if self._hurry else self._finish_s)
        for agent in agents:
            self._functions.setdefault(agent.id, _Function())

    def unheard(self, now: float) -> None:
        """That order failed, so some agents may not have heard of it: it goes out again, as long as that makes a difference."""
        if self._told is not None and now < self._told + STOP_GRACE_S:
            self._again_at = now + STOP_AGAIN_S

    def due_again(self, now: float) -> bool:
        """Whether the order that says stop must go out again at `now` (seconds of the machine)."""
        return self._again_at is not None and now >= self._again_at

    # ---- what they do ----------------------------------------------------------------------------------------------------

    def progress(self, event: AgentProgress, now: float) -> None:
        """Take down what an agent says of its function, at `now` (seconds of the machine)."""
        one = self._functions.get(event.id)
        if one is None or self._told is None:
            return
        one.left = event.function == LEFT or (one.left and event.function != OVERRUN)
        one.overran = one.overran or (event.function == OVERRUN and now > self._told + STOP_GRACE_S)

    def ended(self, who: AgentId, how: str) -> None:
        """The function will not return: it raised, or its process died, or its executor is lost.

        Args:
            who: the process.
            how: what happened; its first line is kept.
        """
        one = self._functions.get(who)
        if one is not None and not one.ended:
            one.ended = how.partition("\n")[0]

    def waits_for(self, agent: Agent, now: float) -> bool:
        """Whether the function of a living agent has time left at `now` (seconds of the machine)."""
        one = self._functions.get(agent.id)
        if one is None or self._told is None or one.ended:
            return False
        return now < (min(self._until, self._told + STOP_GRACE_S) if one.overran else self._until)

    def say(self, waiting: Iterable[Agent], now: float) -> None:
        """Renew `at_work`: when `STOP_GRACE_S` is over, when other agents are waited for than before, and once a minute.

        Args:
            waiting: agents that are waited for.
            now: seconds of the machine.
        """
        if self._told is None or now < self._told + STOP_GRACE_S:
            return
        agents = list(waiting)
        left = [agent.index for agent in agents if self._functions[agent.id].left]
        silent = [agent.index for agent in agents if agent.index not in left]
        parts = [f"{_names(left)} at work behind the loop"] if left else []
        parts += [f"no word from {_names(silent)} since the stop"] if silent else []
        who = ", ".join(parts)
        if self.at_work and self.at_work.startswith(f"{who}; ") and now < self._said + _SAY_EVERY_S:
            return
        self._said = now
        self.at_work = f"{who}; at most {format_duration(round(self._until - now))} more" if who else ""

    # ---- the end ---------------------------------------------------------------------------------------------------------

    def end(self, ending: StopRequested, agents: Iterable[Agent], now: float) -> End:
        """How the run has ended, and which functions were cut off.

        Args:
            ending: what the run was to end as.
            agents: all agents of the run.
            now: seconds of the machine.

        Returns:
            End. It is final when work behind a loop was lost in a run that had reached its end.
        """
        cut = tuple(self._cut_off(agent, now) for agent in agents if self._is_cut_off(agent))
        reason = ending.reason
        lost = [f"agent {one.agent} {one.reason}" for one in cut if one.work_lost]
        if lost and ending.status not in HURRIED:
            more = f", and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
            reason += f"; but what stood behind the loop was cut off: {', '.join(lost[:_NAMED])}{more}"
            return End(ending.status, reason, final=True, cut_off=cut)
        return End(ending.status, reason, ending.final, cut)

    def _is_cut_off(self, agent: Agent) -> bool:
        return agent.state != AgentState.FINISHED and agent.id in self._functions

    def _cut_off(self, agent: Agent, now: float) -> CutOff:
        one = self._functions[agent.id]
        assert self._told is not None
        if one.ended:
            return CutOff(agent.index, one.ended, work_lost=one.left)
        after = f"{format_duration(round(now - self._told, 1))} after the stop"
        if one.overran:
            return CutOff(agent.index, f"went on making updates {after}", work_lost=False)
        what = "was at work behind its loop" if one.left else "had not said a word"
        why = f"({self._hurry})" if self._hurry else "(cluster.finish_timeout)"
        return CutOff(agent.index, f"{what} {after} {why}", work_lost=True)


def _names(agents: list[int]) -> str:
    listed = ", ".join(str(agent) for agent in agents[:_NAMED])
    more = f" and {len(agents) - _NAMED} more" if len(agents) > _NAMED else ""
    return f"agent{'s' if len(agents) > 1 else ''} {listed}{more}"
