"""Reads the load of a machine and its processes from /proc while a bench runs: idle share, bytes, memory, CPU seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import psutil

__all__ = ["LEAST_IDLE", "Sampler", "Ticks", "cpu_idle_share", "cpu_ticks", "interface_bytes", "invalid_reason", "rss_bytes"]

T = TypeVar("T")

#: When a smaller share of the CPU is idle, a bench measures the machine and not the exchange.
LEAST_IDLE = 0.20


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
