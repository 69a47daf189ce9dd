"""A driver that is a process on a node of a bench's network, and waits until the test has made the network what it tries."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mpca.cli.bench.net.network import Network
from mpca.records import AgentRecord, CycleRecord, Record, read_records

__all__ = ["Run", "ready_driver"]


@contextmanager
def ready_driver(net: Network, module: str, arguments: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """``python -m module arguments`` on the node called "driver", when it has said "ready": a line on its stdin lets it go on.

    What it says on stderr goes into `log`.
    """
    command = net.command("driver", [sys.executable, "-m", module, *arguments])
    with (
        log.open("w") as sink,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True) as driver,
    ):
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n", log.read_text()
        yield driver


class Run:
    """What the test sees of a run in another process: its records, as they are written."""

    def __init__(self, run_dir: Path, process: subprocess.Popen[str], agents: int) -> None:
        self._path, self._process, self._agents = run_dir / "records.jsonl", process, agents

    def records(self) -> list[Record]:
        return read_records(self._path).records if self._path.exists() else []

    def cycles(self, after: int = -1) -> list[CycleRecord]:
        return [one for one in self.records() if isinstance(one, CycleRecord) and one.cycle > after]

    def agents(self, event: str) -> list[AgentRecord]:
        return [one for one in self.records() if isinstance(one, AgentRecord) and one.event == event]

    def cycle(self) -> int:
        """The newest that has ended."""
        return self.cycles()[-1].cycle

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 90.0) -> float:
        """Seconds that it took."""
        began = time.monotonic()
        while not condition():
            assert self._process.poll() is None, f"the run has ended: {what}"
            assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}; {self.records()[-3:]}"
            time.sleep(0.1)
        return time.monotonic() - began

    def until_whole(self, count: int, what: str) -> float:
        """So many cycles more with everyone."""
        at = self.cycle()
        return self.until(lambda: sum(len(one.contributors) == self._agents for one in self.cycles(at)) >= count, what)
