"""Faults as data: what happens to which agent, at which point of which cycle. `FaultScript.fired` has those that did happen.

The simulated cluster passes these points as it works on the orders of a cycle:

    submit       the driver handed an order over, no task has begun
    started      its tasks have begun, the downloads too
    downloading  half of a download's time is over
    reducing     half of the reduction's time is over
    reduced      the sum is made, no agent was interrupted yet
    freezing     agents are interrupted, none has handed over
    frozen       all agents have handed over, the driver does not know yet

This one it passes before the first cycle, with cycle -1:

    cut          agents were told to cut the model anew, none has said hello again

And these, as it carries an exchange that an agent asked for; their number is that of the exchange, from 1:

    asked        it is its turn
    sending      half of what the agent sent has come to the driver
    arrived      all has come, the driver does not know yet
    answering    half of the time until the answer is there is over
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from mpca.sim.cluster import SimCluster
from mpca.sim.world import World

__all__ = ["EXCHANGE_POINTS", "KINDS", "LASTING", "POINTS", "Fault", "FaultScript", "fault_pair", "random_faults", "swizzle"]

POINTS = ("submit", "started", "downloading", "reducing", "reduced", "freezing", "frozen")
#: Those that last.
LASTING = ("stop_agent", "clog_driver", "clog_peers")
EXCHANGE_POINTS = ("asked", "sending", "arrived", "answering")
KINDS = (
    "kill_agent", "kill_executor", "stop_agent", "non_finite", "end_hold", "retry_task", "misplace", "join",
    "refuse_start", "skew_driver", "skew_executor", "clog_driver", "clog_peers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Times are seconds of virtual time."""

    kind: str  # one of KINDS, or "damage": an executor recovers from that later than a random schedule ends
    agent: int  # to which it happens, or to whose executor
    cycle: int
    point: str  # one of POINTS, or of EXCHANGE_POINTS, or "cut"
    for_s: float = 0.0  # those of LASTING: how long
    times: int = 1  # damage: how many of the executor's next transfers
    by_s: float = 0.0  # skew_driver, skew_executor: how far the wall clock is set forward, or back
    after_s: float = 0.0  # how long after the point


class FaultScript:
    """Makes faults happen when their point is reached.

    `fired` has those that happened: they found a process, an executor or a task.

    Args:
        world: virtual time.
        cluster: where they happen.
        faults: of one run.
    """

    def __init__(self, world: World, cluster: SimCluster, faults: tuple[Fault, ...]) -> None:
        self.fired: list[Fault] = []
        self.over_at = 0.0  # seconds of virtual time: when the last fault that happened was over
        self._world, self._cluster = world, cluster
        self._waiting: dict[tuple[str, int], list[Fault]] = {}
        for fault in faults:
            self._waiting.setdefault((fault.point, fault.cycle), []).append(fault)

    def reach(self, point: str, cycle: int) -> None:
        """The cluster passes a point: the faults of that point are planned.

        Args:
            point: one of POINTS, or of EXCHANGE_POINTS.
            cycle: of the order that is worked on, or the number of the exchange.
        """
        due = self._waiting.pop((point, cycle), None)
        for fault in due or ():
            # never within this call: the caller is in the middle of its work
            self._world.after(fault.after_s, self._fire, fault)

    def _fire(self, fault: Fault) -> None:
        cluster, agent = self._cluster, fault.agent
        if fault.kind in LASTING:
            happened = getattr(cluster, fault.kind)(agent, fault.for_s)
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


def random_faults(
    random: Random, agents: int, cycles: int, mean: float, deadline_s: float, points: tuple[str, ...] = POINTS
) -> tuple[Fault, ...]:
    """Draw a schedule.

    Swarm testing: it draws only from a random subset of the kinds, so that no kind hides another.

    Args:
        random: the source of chance.
        agents: of the run.
        cycles: of the run; the last ten have no faults.
        mean: how many faults a schedule has on average.
        deadline_s: of a cycle, in seconds; what lasts does so for up to three times as long.
        points: at which they may happen.
    """
    kinds = random.sample(KINDS, random.randint(1, len(KINDS)))
    count = min(round(random.expovariate(1 / mean)), 4 * round(mean) + 1)
    faults = []
    for _ in range(count):
        kind = random.choice(kinds)
        cycle = random.randint(1, max(1, cycles - 10))
        faults.append(_drawn(random, kind, agents, cycle, deadline_s, points))
    return tuple(faults)


def _drawn(random: Random, kind: str, agents: int, cycle: int, deadline_s: float, points: tuple[str, ...]) -> Fault:
    return Fault(
        kind,
        random.randrange(agents),
        cycle,
        random.choice(points),
        for_s=random.choice((0.1, 1.0, deadline_s, 3 * deadline_s)) if kind in LASTING else 0.0,
        by_s=random.choice((-600.0, -30.0, 30.0, 600.0)) if kind.startswith("skew") else 0.0,
        after_s=random.choice((0.0, 0.0, random.uniform(0, 0.3))),
    )


def swizzle(random: Random, agents: int, cycles: int, deadline_s: float) -> tuple[Fault, ...]:
    """Draw a partition that comes and heals piece by piece, as FoundationDB's: links are clogged one after the other, and
    open in another order.

    Args:
        random: the source of chance.
        agents: of the run; those whose links are clogged are two or more of them.
        cycles: of the run; the last ten have no faults.
        deadline_s: of a cycle, in seconds. Links are clogged over one such time, and opened over another.
    """
    clogged = random.sample(range(agents), random.randint(2, agents))
    begins = sorted(random.uniform(0, deadline_s) for _ in clogged)
    heals = [deadline_s * (1 + at / len(clogged)) for at in range(len(clogged))]
    random.shuffle(heals)
    cycle, point = random.randint(4, max(4, cycles - 10)), random.choice(POINTS)  # every point is passed from then on
    return tuple(
        Fault(random.choice(("clog_driver", "clog_peers")), agent, cycle, point, for_s=until - begin, after_s=begin)
        for agent, begin, until in zip(clogged, begins, heals, strict=True)
    )


def fault_pair(random: Random, kinds: tuple[str, str], agents: int, cycle: int, deadline_s: float) -> tuple[Fault, Fault]:
    """Draw two faults of these kinds, of the same cycle or of two that follow each other, to the same agent or to two.

    Args:
        random: the source of chance.
        kinds: of the two.
        agents: of the run.
        cycle: of the first one.
        deadline_s: of a cycle, in seconds.
    """
    first, second = (_drawn(random, kind, agents, cycle, deadline_s, POINTS) for kind in kinds)
    return first, replace(second, cycle=cycle + random.randint(0, 1))
