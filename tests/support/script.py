"""Scripted scenarios that come out the same on simulated and on real executors: a cluster port around a cluster port.

Nothing in a run with real processes is deterministic, except what follows from the order in which the driver hears of events.
So this wrapper puts the events into an order, and touches nothing else:

* The wrapper does an act (kill, stop, ...) when the driver submits the order that the act must precede. That order goes out
  when the events that follow from the act have come.
* An order is done only when its downloads are acknowledged and the agents that it told to begin have taken a step, and then had
  the time for some more. By then an agent in step with others has done all that it does before it waits for them.
* The driver hears of a replacement, executor or agent, only when an act admits it.

With a method in step (`sync`) tau does not depend on time either, and the ledger is the same to the bit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mpca.driver.cluster import AgentSpec, Cluster, Outgoing
from mpca.driver.events import (
    Acknowledged,
    AgentBack,
    AgentDied,
    AgentHello,
    AgentProgress,
    ExecutorLost,
    ExecutorReady,
    HoldEnded,
    OrderDone,
)
from mpca.records import CycleRecord
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.orders import Order

__all__ = ["Act", "Hands", "Script", "ScriptedCluster", "integer_ledger"]

PATIENCE_S = 60.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that is done to a run, and when."""

    do: str  # a method of Hands, or "admit_executor", "admit_agent"
    agent: int  # to whom, or to whose executor
    before: str  # which order of the cycle: "freeze" or "reduce"
    cycle: int


@dataclass(frozen=True)
class Script:
    """One file of `tests/golden/scenarios`."""

    name: str
    story: str
    agents: int
    method: dict[str, Any]
    cycles: int
    deadline_s: float
    parameters: int  # of a model whose loss is <g, x>: `trainers.LinearTrainer`
    acts: list[Act]
    exact: bool  # tau and crc are compared too, since the method is in step
    min_agents: int = 1
    ledger: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Script:
        """Read a script's file.

        Raises:
            TypeError: it has a key that no script has, or lacks one.
        """
        values = json.loads(path.read_text(encoding="utf-8"))
        values["acts"] = [Act(**one) for one in values["acts"]]
        return cls(**values)


class Hands(Protocol):
    """What can reach processes: the simulated cluster, or a test that knows pids."""

    def kill_agent(self, agent: int) -> Any:
        """SIGKILL for the agent's process."""
        ...

    def kill_executor(self, agent: int) -> Any:
        """SIGKILL for the agent's executor."""
        ...

    def stop_agent(self, agent: int) -> Any:
        """SIGSTOP for the agent's process."""
        ...

    def continue_agent(self, agent: int) -> Any:
        """SIGCONT for the agent's process."""
        ...


class ScriptedCluster:
    """See the module's text; `driver.cluster.Cluster` documents the port.

    Args:
        inner: the cluster that does the work.
        acts: what is done to the run.
        hands: do it.
        executors: how many the run begins with; later ones are replacements.
        now: a clock, in seconds.
        settle_s: how long agents that have begun get for more steps, in seconds of that clock.
    """

    def __init__(
        self,
        inner: Cluster,
        acts: list[Act],
        hands: Hands,
        executors: int,
        now: Callable[[], float] = time.monotonic,
        settle_s: float = 1.0,
    ) -> None:
        self.done: list[Act] = []
        self._inner, self._hands, self._now = inner, hands, now
        self._settle_s = settle_s
        self._settled: dict[int, float] = {}  # order that said begin -> when its agents have had time for more steps
        self._waiting = list(acts)
        self._executors = executors
        self._heard: list[Any] = []  # for the next poll
        self._kept: list[Any] = []  # events of replacements that no act has admitted yet
        self._orders: dict[int, Order] = {}
        self._acknowledged: set[tuple[int, AgentId]] = set()  # broadcast, and for whom
        self._gone: set[AgentId] = set()
        self._stepped: set[AgentId] = set()
        self._finished: list[OrderDone] = []  # orders that wait for acknowledgements and first steps

    # ---- the port ------------------------------------------------------------------------------------------------------

    def start_agent(self, who: AgentRef, spec: AgentSpec) -> None:
        self._inner.start_agent(who, spec)

    def submit(self, order: Order) -> None:
        """As `Cluster.submit`, after the acts that must precede this order.

        Raises:
            TimeoutError: what an act brings about has not come within `PATIENCE_S`.
        """
        for act in list(self._waiting):
            part = order.reduce if act.before == "reduce" else order.freeze
            if part is not None and part.cycle == act.cycle:
                self._waiting.remove(act)
                self._act(act)
                self.done.append(act)
        self._orders[order.order] = order
        self._inner.submit(order)

    def cancel(self, order: int, reason: str) -> None:
        self._inner.cancel(order, reason)

    def room(self, elements: int) -> np.ndarray:
        return self._inner.room(elements)

    def take_sum(self, order: int, length: int, into: np.ndarray | None = None) -> np.ndarray:
        return self._inner.take_sum(order, length, into)

    def publish(self, vector: np.ndarray, joint: Outgoing | None = None) -> int:
        return self._inner.publish(vector, joint)

    def withdraw(self, broadcast: int) -> None:
        self._inner.withdraw(broadcast)

    def rediscover(self, executors: list[str]) -> None:
        self._inner.rediscover(executors)

    def poll(self, timeout_s: float) -> list[Any]:
        """As `Cluster.poll`, without the events that are held back."""
        self._listen(0.0 if self._heard else timeout_s)
        heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        self._inner.close()

    # ---- acts ----------------------------------------------------------------------------------------------------------

    def _act(self, act: Act) -> None:
        agent = act.agent
        if act.do == "admit_executor":
            self._admit(lambda event: isinstance(event, ExecutorReady))
            return
        if act.do == "admit_agent":
            self._admit(lambda event: _hello_of(event) == agent)
            return
        getattr(self._hands, act.do)(agent)
        if act.do == "kill_agent":
            self._await(lambda event: isinstance(event, AgentDied) and event.agent == agent, self._heard)
        elif act.do == "kill_executor":
            self._await(lambda event: isinstance(event, ExecutorLost), self._heard)
        elif act.do == "continue_agent":
            self._await(lambda event: isinstance(event, AgentBack) and event.agent == agent, self._heard)

    def _admit(self, fits: Callable[[Any], bool]) -> None:
        event = self._await(fits, self._kept)
        self._kept.remove(event)
        self._heard.append(event)

    def _await(self, fits: Callable[[Any], bool], among: list[Any]) -> Any:
        until = self._now() + PATIENCE_S
        while True:
            for event in among:
                if fits(event):
                    return event
            if self._now() > until:
                raise TimeoutError(f"what an act brings about has not come: heard={self._heard}, kept={self._kept}")
            self._listen(POLL_S)

    # ---- the order of events -------------------------------------------------------------------------------------------

    def _listen(self, timeout_s: float) -> None:
        for event in self._inner.poll(timeout_s):
            if isinstance(event, OrderDone):
                self._finished.append(event)
                continue
            if isinstance(event, ExecutorReady):
                self._executors -= 1
            if (isinstance(event, ExecutorReady) and self._executors < 0) or _hello_of(event) is not None:
                self._kept.append(event)
                continue
            self._note(event)
            self._heard.append(event)
        for done in list(self._finished):
            if self._complete(self._orders[done.order]):
                self._finished.remove(done)
                self._heard.append(done)

    def _note(self, event: Any) -> None:
        if isinstance(event, Acknowledged):
            self._acknowledged.add((event.broadcast, event.id))
        elif isinstance(event, AgentProgress) and event.steps:
            self._stepped.add(event.id)
        elif isinstance(event, (AgentDied, HoldEnded)):
            self._gone.add(event.id)

    def _complete(self, order: Order) -> bool:
        downloads = all(
            (one.broadcast, who.id) in self._acknowledged or who.id in self._gone
            for one in order.downloads
            for who in one.agents
        )
        if not downloads or any(who.id not in self._stepped | self._gone for who in order.begin):
            return False
        return not order.begin or self._now() >= self._settled.setdefault(order.order, self._now() + self._settle_s)


def _hello_of(event: Any) -> int | None:
    """The agent of a replacement's Hello."""
    if isinstance(event, AgentHello) and event.hello.incarnation > 0:
        return event.hello.agent
    return None


def integer_ledger(commits: list[CycleRecord], cycles: int, exact: bool) -> list[dict[str, Any]]:
    """What is compared of two runs: nothing that depends on time or on the names of executors.

    Args:
        commits: records of the run's cycles.
        cycles: how many of them, from the first.
        exact: whether tau and crc are compared too.

    Returns:
        One dictionary a cycle, with strings for keys as in JSON.
    """
    keep = ("incarnation", "tau", "crc") if exact else ("incarnation",)
    return [
        {
            "cycle": one.cycle,
            "shard": one.shard,
            "contributors": {str(agent): {key: said[key] for key in keep} for agent, said in sorted(one.contributors.items())},
            "left_out": {str(agent): _kind(reason) for agent, reason in sorted(one.left_out.items())},
        }
        for one in commits[:cycles]
    ]


def _kind(reason: str) -> str:
    """A reason without names and times."""
    head = reason.split(":")[0].split(";")[0]
    if head in ("absent", "starting", "joining", "beginning", "late", "finished"):
        return head
    return "executor lost" if "executor" in reason else head
