"""Faults as data: what befalls whom, at which point of which cycle. Each counts whether it happened.

A point is passed by the simulated cluster as it works on the orders of a cycle:

    submit       the driver handed an order over, no task has begun
    started      its tasks have begun, the downloads too
    downloading  half of a download's time is over
    reducing     half of the reduction's time is over
    reduced      the sum is made, nobody was interrupted yet
    freezing     agents are interrupted, none has handed over
    frozen       all have, the driver does not know yet
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from mpca.sim.cluster import SimCluster
from mpca.sim.world import World

__all__ = ["KINDS", "POINTS", "Fault", "FaultScript", "random_faults"]

POINTS = ("submit", "started", "downloading", "reducing", "reduced", "freezing", "frozen")
KINDS = (
    "kill_agent", "kill_executor", "stop_agent", "non_finite", "end_hold", "retry_task", "misplace", "join",
    "refuse_start", "skew_driver", "skew_executor",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str  # one of KINDS, or "damage", of which an executor recovers later than a random schedule ends
    agent: int  # or its executor
    cycle: int
    point: str  # one of POINTS
    for_s: float = 0.0  # stop_agent: how long
    times: int = 1  # damage: of the next transfers of that executor
    by_s: float = 0.0  # skew_driver, skew_executor: how far the wall clock is set forward, or back
    after_s: float = 0.0  # how long after the point


class FaultScript:
    """Makes faults happen when their point is reached. `fired` has those that found something to befall."""

    def __init__(self, world: World, cluster: SimCluster, faults: tuple[Fault, ...]) -> None:
        self.fired: list[Fault] = []
        self.over_at = 0.0  # when the last one that happened was over
        self._world, self._cluster = world, cluster
        self._waiting: dict[tuple[str, int], list[Fault]] = {}
        for fault in faults:
            self._waiting.setdefault((fault.point, fault.cycle), []).append(fault)

    def reach(self, point: str, cycle: int) -> None:
        due = self._waiting.pop((point, cycle), None)
        for fault in due or ():
            # never within the caller: the point is in the middle of its work
            self._world.after(fault.after_s, self._fire, fault)

    def _fire(self, fault: Fault) -> None:
        cluster, agent = self._cluster, fault.agent
        if fault.kind == "stop_agent":
            happened = cluster.stop_agent(agent, fault.for_s)
        elif fault.kind == "skew_driver":
            self._world.clock.set_wall_forward(fault.by_s)
            happened = True
        elif fault.kind == "skew_executor":
            happened = cluster.skew_executor(agent, fault.by_s)
        elif fault.kind == "damage":
            happened = cluster.damage(agent, fault.times)
        elif fault.kind == "join":
            cluster.add_executor()
            happened = True
        else:
            happened = getattr(cluster, fault.kind)(agent)
        if happened:
            self.fired.append(fault)
            self.over_at = max(self.over_at, self._world.now + fault.for_s)
            cluster.watch.tell(fault.kind, agent, fault.point, fault.cycle)


def random_faults(random: Random, agents: int, cycles: int, mean: float, deadline_s: float) -> tuple[Fault, ...]:
    """A schedule of one seed. Swarm testing: it draws only from a random subset of the kinds, so that no kind hides another."""
    kinds = random.sample(KINDS, random.randint(1, len(KINDS)))
    count = min(round(random.expovariate(1 / mean)), 4 * round(mean) + 1)
    faults = []
    for _ in range(count):
        kind = random.choice(kinds)
        faults.append(
            Fault(
                kind,
                random.randrange(agents),
                random.randint(1, max(1, cycles - 10)),
                random.choice(POINTS),
                for_s=random.choice((0.1, 1.0, deadline_s, 3 * deadline_s)) if kind == "stop_agent" else 0.0,
                by_s=random.choice((-600.0, -30.0, 30.0, 600.0)) if kind.startswith("skew") else 0.0,
                after_s=random.choice((0.0, 0.0, random.uniform(0, 0.3))),
            )
        )
    return tuple(faults)
