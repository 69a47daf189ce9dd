"""What becomes of the train functions once the run stops: how long each may take, who is still at work, what was cut off.

A function hears of the stop between two batches, leaves its loop, does what stands behind it (a last evaluation, a
`torch.save`) and returns. What the driver knows of it is what its agent says (`Progress.function`) and when:

    silent     no word that it left its loop: in a long batch, behind a loop that ended by itself, or stuck
    left       it knows of the stop and has made no update since
    overran    it made updates later than `STOP_GRACE_S` after the stop was sent; for good
    ended      finished, raised, died, or lost with its executor

    who                                   may take
    overran                               STOP_GRACE_S
    silent, left                          `cluster.finish_timeout`, at least STOP_GRACE_S
    all, of a run interrupted or failed   STOP_GRACE_S from then on

Nobody is killed here: the cluster is closed when nobody is waited for any more. A function that overran and returns before
that has finished like any other. The order that says stop goes out again when it failed, since those who did not hear of it
would train on. Endings outrank each other (`Finishing.again`): what raises behind its loop makes a run that had reached its end
a failed one. Pure: events in, answers out, the time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mpca.driver.agent_id import AgentId
from mpca.driver.agent_table import Agent
from mpca.driver.events import AgentProgress, StopRequested
from mpca.driver.instructions import CutOff, End
from mpca.driver.states import AgentState
from mpca.timeouts import STOP_AGAIN_S, STOP_GRACE_S
from mpca.units import format_duration
from mpca.wire.messages import LEFT, OVERRUN

__all__ = ["HURRIED", "Finishing"]

#: Ways to end that nobody's work is waited for.
HURRIED = ("interrupted", "failed")
# Who is still at work is said anew this often.
_SAY_EVERY_S = 60.0
_NAMED = 8  # agents, in a line that must stay one


@dataclass(slots=True)
class _Function:
    """The train function of one agent that was told to stop."""

    left: bool = False
    overran: bool = False
    ended: str = ""  # how, if it did not return


class Finishing:
    """From the first request to stop to the end of the run."""

    def __init__(self, finish_s: float) -> None:
        #: Who is waited for, in a line that changes when there is something new to say; empty before STOP_GRACE_S is over.
        self.at_work = ""
        self._finish_s = max(STOP_GRACE_S, finish_s)
        self._told: float | None = None  # when the order that says stop went out first
        self._again_at: float | None = None  # when it goes out again
        self._until = 0.0  # when nobody is waited for any more
        self._told_failure = False  # beside an interruption
        self._hurry = ""  # why sooner than by `cluster.finish_timeout`
        self._said = 0.0  # when `at_work` was made
        self._functions: dict[AgentId, _Function] = {}

    # ---- endings -------------------------------------------------------------------------------------------------------

    def again(self, ending: StopRequested, event: StopRequested, now: float) -> StopRequested:
        """What the run ends as when it is asked to stop by `event` while it stops by `ending`.

        A failure outranks an end that was reached, and is told beside an interruption. An interruption shortens what is left.
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
        return self._told is not None

    def tell(self, agents: Iterable[Agent], ending: StopRequested, now: float) -> None:
        """The order that says stop goes out to these, now."""
        self._again_at = None
        if self._told is None:
            self._told = now
            if ending.status in HURRIED:
                self._hurry = ending.reason.partition("\n")[0]
            self._until = now + (STOP_GRACE_S if self._hurry else self._finish_s)
        for agent in agents:
            self._functions.setdefault(agent.id, _Function())

    def unheard(self, now: float) -> None:
        """That order failed: some may not have heard of it. As long as it makes a difference."""
        if self._told is not None and now < self._told + STOP_GRACE_S:
            self._again_at = now + STOP_AGAIN_S

    def due_again(self, now: float) -> bool:
        return self._again_at is not None and now >= self._again_at

    # ---- what they do ----------------------------------------------------------------------------------------------------

    def progress(self, event: AgentProgress, now: float) -> None:
        one = self._functions.get(event.id)
        if one is None or self._told is None:
            return
        one.left = event.function == LEFT or (one.left and event.function != OVERRUN)
        one.overran = one.overran or (event.function == OVERRUN and now > self._told + STOP_GRACE_S)

    def ended(self, who: AgentId, how: str) -> None:
        """It will not return: it raised, died, or its executor is lost."""
        one = self._functions.get(who)
        if one is not None and not one.ended:
            one.ended = how.partition("\n")[0]

    def waits_for(self, agent: Agent, now: float) -> bool:
        """Whether a living agent's function has time left."""
        one = self._functions.get(agent.id)
        if one is None or self._told is None or one.ended:
            return False
        return now < (min(self._until, self._told + STOP_GRACE_S) if one.overran else self._until)

    def say(self, waiting: Iterable[Agent], now: float) -> None:
        """Renew `at_work`: when `STOP_GRACE_S` is over, when it is others than before, and once a minute."""
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
        """How the run has ended, with what was cut off."""
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
