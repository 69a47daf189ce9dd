"""The kinds of faults, their order by a seed, and when the run has recovered from one.

A fault is begun, lasts for some seconds if it is one that lasts, and is undone. The run has recovered when everything that the
kind asks for has come after it, such as a new incarnation of the agent, and then a cycle that all agents took part in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

__all__ = ["KINDS", "Done", "Kind", "Place", "drawn"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent is."""

    index: int
    incarnation: int
    host: str
    pid: int  # in its container


class Grounds(Protocol):
    """What faults need of the cluster."""

    def away(self) -> Place:
        """An agent whose worker the driver is not on."""
        ...

    def driver_host(self) -> str: ...

    def signal(self, host: str, name: str, pid: int) -> None: ...

    def pids(self, host: str, words: str) -> list[int]:
        """Of processes in a container whose command line has these words."""
        ...

    def on(self, host: str, *words: str) -> None:
        """Run a command there, which must end well."""
        ...

    def container(self, what: str, host: str) -> None:
        """Kill, start, pause, resume, cut_off or connect a host."""
        ...

    def admin(self, *words: str) -> None:
        """`hdfs dfsadmin` in the client."""
        ...

    def yarn_says(self, host: str, state: str) -> None:
        """Wait until YARN has a worker in that state."""
        ...

    @property
    def backups(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Done:
    """A fault that has begun."""

    where: str
    undo: Callable[[], None] | None = None
    agent: Place | None = None  # whose next incarnation is waited for
    without: Place | None = None  # an agent that a cycle is to leave out


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault.

    `waits_for` has "attempt" (a new one of the driver), "refused" (a backup that failed), "backup" (one that did not).
    """

    name: str
    begin: Callable[[Grounds], Done]
    lasts_s: tuple[float, float] = (0.0, 0.0)
    waits_for: tuple[str, ...] = ()


_EXECUTOR = "YarnCoarseGrainedExecutorBackend"
_MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"
_FILLER = "/data/nodemanager/local/filler"


def _java(grounds: Grounds, host: str, main: str) -> int:
    """The JVM, and not the shell that started it, which has the same words."""
    return max(grounds.pids(host, f"bin/java.*{main}"))


def _kill_agent(grounds: Grounds) -> Done:
    place = grounds.away()
    grounds.signal(place.host, "KILL", place.pid)
    return Done(f"agent {place.index} on {place.host}", agent=place)


def _stop_agent(grounds: Grounds) -> Done:
    place = grounds.away()
    grounds.signal(place.host, "STOP", place.pid)
    return Done(f"agent {place.index} on {place.host}", lambda: grounds.signal(place.host, "CONT", place.pid))


def _nan_agent(grounds: Grounds) -> Done:
    place = grounds.away()
    grounds.on(place.host, "touch", "/data/soak-nan")
    return Done(f"agent {place.index} on {place.host}", without=place)


def _kill_parent(grounds: Grounds) -> Done:
    place = grounds.away()
    grounds.signal(place.host, "KILL", min(grounds.pids(place.host, "mpca.agent.parent")))
    return Done(f"parent of agent {place.index} on {place.host}", agent=place)


def _kill_executor(grounds: Grounds) -> Done:
    place = grounds.away()
    grounds.signal(place.host, "KILL", _java(grounds, place.host, _EXECUTOR))
    return Done(f"executor on {place.host}", agent=place)


def _stop_executor(grounds: Grounds) -> Done:
    place = grounds.away()
    pid = _java(grounds, place.host, _EXECUTOR)
    grounds.signal(place.host, "STOP", pid)
    return Done(f"executor on {place.host}", lambda: grounds.signal(place.host, "CONT", pid))


def _kill_worker(grounds: Grounds) -> Done:
    place = grounds.away()
    grounds.container("kill", place.host)

    def undo() -> None:
        grounds.yarn_says(place.host, "LOST")
        grounds.container("start", place.host)
        grounds.yarn_says(place.host, "RUNNING")

    return Done(place.host, undo, place)


def _pause_worker(grounds: Grounds) -> Done:
    place = grounds.away()
    grounds.container("pause", place.host)
    return Done(place.host, lambda: grounds.container("resume", place.host))


def _cut_off_for(grounds: Grounds, *, lost: bool) -> Done:
    place = grounds.away()
    grounds.container("cut_off", place.host)

    def undo() -> None:
        if lost:
            grounds.yarn_says(place.host, "LOST")
        grounds.container("connect", place.host)
        grounds.yarn_says(place.host, "RUNNING")

    return Done(place.host, undo, place if lost else None)


def _cut_off(grounds: Grounds) -> Done:
    return _cut_off_for(grounds, lost=True)


def _one_way(grounds: Grounds) -> Done:
    place = grounds.away()
    rule = ("OUTPUT", "-d", grounds.driver_host(), "-j", "DROP")
    grounds.on(place.host, "iptables", "-A", *rule)
    return Done(f"from {place.host} to the driver", lambda: grounds.on(place.host, "iptables", "-D", *rule))


def _kill_driver(grounds: Grounds) -> Done:
    host = grounds.driver_host()
    grounds.signal(host, "KILL", _java(grounds, host, _MASTER))
    return Done(host)


def _kill_python(grounds: Grounds) -> Done:
    host = grounds.driver_host()
    grounds.signal(host, "KILL", max(grounds.pids(host, "python.*mpca_run.py")))
    return Done(host)


def _kill_namenode(grounds: Grounds) -> Done:
    grounds.container("kill", "namenode")
    return Done("namenode", lambda: grounds.container("start", "namenode"))


def _full_disk(grounds: Grounds) -> Done:
    place = grounds.away()
    # A NodeManager whose only disk is full ends its containers; dd ends with an error then, as it should.
    grounds.on(place.host, "bash", "-c", f"dd if=/dev/zero of={_FILLER} bs=1M || true")

    def undo() -> None:
        grounds.yarn_says(place.host, "UNHEALTHY")
        grounds.on(place.host, "rm", _FILLER)
        grounds.yarn_says(place.host, "RUNNING")

    return Done(place.host, undo, place)


def _quota(grounds: Grounds) -> Done:
    grounds.admin("-setSpaceQuota", "1k", grounds.backups)
    return Done(grounds.backups, lambda: grounds.admin("-clrSpaceQuota", grounds.backups))


KINDS = (
    Kind("kill agent", _kill_agent),
    Kind("stop agent", _stop_agent, (5.0, 25.0)),
    Kind("NaN agent", _nan_agent),
    Kind("kill parent of agents", _kill_parent),
    Kind("kill executor", _kill_executor),
    Kind("stop executor", _stop_executor, (5.0, 25.0)),
    Kind("kill worker", _kill_worker),
    Kind("pause worker", _pause_worker, (5.0, 20.0)),
    Kind("cut off worker", _cut_off),
    Kind("packets lost one way", _one_way, (5.0, 25.0)),
    Kind("kill driver", _kill_driver, waits_for=("attempt",)),
    Kind("kill driver's Python", _kill_python, waits_for=("attempt",)),
    Kind("kill NameNode", _kill_namenode, (10.0, 30.0), ("backup",)),
    Kind("full disk", _full_disk),
    Kind("quota", _quota, (20.0, 30.0), ("refused", "backup")),
)


def drawn(seed: int) -> Iterator[tuple[Kind, float]]:
    """Faults without end, with how long each lasts: all kinds in one order, then all in another."""
    chance = random.Random(seed)
    while True:
        for kind in chance.sample(KINDS, len(KINDS)):
            yield kind, round(chance.uniform(*kind.lasts_s), 1)
