"""Reads the load of a machine and its processes from /proc while a bench runs: idle share, bytes, memory, CPU seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import psutil

__all__ = [
    "COMPILER_THREADS",
    "JOB_THREADS",
    "LEAST_IDLE",
    "Processes",
    "Sampler",
    "Ticks",
    "cpu_idle_share",
    "cpu_ticks",
    "interface_bytes",
    "invalid_reason",
    "rss_bytes",
    "thread_cpu_s",
]

T = TypeVar("T")

#: When a smaller share of the CPU is idle, a bench measures the machine and not the exchange.
LEAST_IDLE = 0.20
#: Threads of a JVM that compile, and of a driver's that work for Spark's jobs alone, by the 15 characters that a kernel keeps.
COMPILER_THREADS = ("C1 Compiler", "C2 Compiler")
JOB_THREADS = ("dag-scheduler-e", "dispatcher-Coar", "task-result-get", "task-scheduler-", "element-trackin", "spark-listener-")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Ticks:
    """Jiffies since boot, over all cores."""

    idle: int
    total: int


def cpu_ticks() -> Ticks:
    with open("/proc/stat") as file:
        fields = [int(one) for one in file.readline().split()[1:9]]
    return Ticks(fields[3] + fields[4], sum(fields))


def cpu_idle_share(start: Ticks, end: Ticks) -> float:
    return (end.idle - start.idle) / max(1, end.total - start.total)


def invalid_reason(idle: float) -> str:
    """Why figures mean nothing when this share of the CPU was idle; empty: they mean something."""
    if idle >= LEAST_IDLE:
        return ""
    return f"CPU idle share {idle:.2f} is below {LEAST_IDLE:.2f}: the machine was the limit, not the exchange"


def interface_bytes(name: str) -> tuple[int, int]:
    """(received, sent) of an interface in this process's network namespace; zeros if there is no such interface."""
    with open("/proc/self/net/dev") as file:
        for line in file:
            if line.strip().startswith(f"{name}:"):
                fields = line.partition(":")[2].split()
                return int(fields[0]), int(fields[8])
    return 0, 0


def rss_bytes(pids: Iterable[int]) -> int:
    """Resident memory of these processes together; processes that have ended count 0."""
    total = 0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_info().rss
    return total


class Processes:
    """The processes of one run by role, and the CPU seconds that each has used.

    Executors are found by their application's id, which is on their command line: on nodes of their own they are nobody's
    children here. What is below an executor and no JVM is an agent.
    """

    def __init__(self, application: str) -> None:
        me = psutil.Process()
        backends = [one for one in psutil.process_iter(["cmdline"]) if application in (one.info["cmdline"] or ())]
        executors = [one for one in backends if one.name() == "java"]
        below = [child for one in executors for child in one.children(recursive=True)]
        self._roles = {
            "driver_python": [me],
            "driver_jvm": [one for one in me.children() if one.name() == "java"],
            "executor": executors,
            "agent": [one for one in below if one.name() != "java"],
        }

    def cpu_s(self) -> dict[str, list[float]]:
        """CPU seconds so far of each process of a role, without those of its children; a process that has ended is left out."""
        return {role: [s for one in processes for s in _cpu_s(one)] for role, processes in self._roles.items()}

    def all_s(self) -> float:
        """CPU seconds so far of all of them together."""
        return sum(sum(seconds) for seconds in self.cpu_s().values())

    def jvms_s(self) -> tuple[float, float]:
        """CPU seconds so far of all JVMs, and what of these their compilers have used."""
        jvms = [one for role in ("driver_jvm", "executor") for one in self._roles[role]]
        return sum(s for one in jvms for s in _cpu_s(one)), sum(thread_cpu_s(one.pid, COMPILER_THREADS) for one in jvms)

    def descriptors(self) -> dict[str, list[int]]:
        """How many descriptors each process of a role has open; a process that has ended is left out."""
        return {role: [n for one in processes for n in _descriptors(one)] for role, processes in self._roles.items()}


def thread_cpu_s(pid: int, names: tuple[str, ...]) -> float:
    """CPU seconds so far of the threads of a process whose names begin so; threads that have ended are left out."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it ends just now
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith(names):
                fields = rest.split()
                total += int(fields[11]) + int(fields[12])
    return total * _TICK_S


def _descriptors(process: psutil.Process) -> list[int]:
    with suppress(psutil.NoSuchProcess):
        return [process.num_fds()]
    return []


def _cpu_s(process: psutil.Process) -> list[float]:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return [times.user + times.system]
    return []


class Sampler(Generic[T]):
    """Calls `read` every `interval_s` seconds in a thread of its own, and keeps (monotonic time, value)."""

    def __init__(self, read: Callable[[], T], interval_s: float) -> None:
        self.samples: list[tuple[float, T]] = []
        self._read, self._interval_s = read, interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-sampler", daemon=True)

    def __enter__(self) -> Sampler[T]:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.samples.append((time.monotonic(), self._read()))
            if self._ended.wait(self._interval_s):
                return
