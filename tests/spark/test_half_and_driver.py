"""A run's next attempt: refused while its driver stands still; going on when it died with half of its agents in one cycle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpca.records import AgentRecord, BackupRecord, CycleRecord, Record, RunRecord, read_records
from mpca.storage import Backups, LocalStore
from tests.spark.support import ROOT, alive, java_pids
from tests.support.fake_executor import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(400)]

AGENTS = 4


class Attempt:
    """A process, and what is seen of it from outside."""

    def __init__(self, folder: Path, resume: str) -> None:
        self.run_dir = folder / "run"
        self._log = folder / f"{resume}.log"
        sets = (f"cluster.agents={AGENTS}", "cluster.agents_per_executor=2", "cluster.min_agents=1", "backup.interval=1s")
        command = [sys.executable, "-m", "tests.spark.attempt", str(self.run_dir), str(folder), resume, *sets]
        with self._log.open("w") as sink:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=sink, start_new_session=True)

    def records(self) -> list[Record]:
        path = self.run_dir / "records.jsonl"
        return read_records(path).records if path.exists() else []

    def said(self) -> str:
        return self._log.read_text()

    def files(self) -> dict[Path, bytes]:
        """What is the run's own: not Spark's work folder."""
        mine = [
            path for path in self.run_dir.rglob("*") if path.is_file() and "spark" not in path.relative_to(self.run_dir).parts
        ]
        return {path: path.read_bytes() for path in mine}

    def until(self, condition: Callable[[], object], what: str) -> None:
        def now() -> bool:
            assert self.process.poll() is None, self.said()
            return bool(condition())

        wait_until(now, what, 150.0)


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Callable[[str], Attempt]]:
    """Starts attempts of one run; what still lives at the end is ended: JVMs and agents with their driver."""
    made: list[Attempt] = []

    def start(resume: str) -> Attempt:
        made.append(Attempt(tmp_path, resume))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def cycles(records: list[Record]) -> list[CycleRecord]:
    return [one for one in records if isinstance(one, CycleRecord)]


def test_the_next_attempt_goes_on_with_everyone(attempt: Callable[[str], Attempt], tmp_path: Path) -> None:
    first = attempt("-")

    def backed_up() -> list[BackupRecord]:
        return [one for one in first.records() if isinstance(one, BackupRecord) and one.ok and one.cycle > 0]

    first.until(backed_up, "a backup of a trained model")
    started = {one.index: one.pid for one in first.records() if isinstance(one, AgentRecord) and one.event == "started"}
    everyone = [*started.values(), *java_pids(first.run_dir).values(), first.process.pid]
    assert len(set(everyone)) == AGENTS + 2 + 1

    # The driver stands still: it lives, so nobody else may write. Continued, it goes on.
    os.kill(first.process.pid, signal.SIGSTOP)
    files = first.files()
    refused = attempt("auto")
    assert refused.process.wait(60) != 0
    assert "another driver writes here" in refused.said()
    assert f"pid {first.process.pid} on " in refused.said()
    assert first.files() == files
    at = len(cycles(first.records()))
    os.kill(first.process.pid, signal.SIGCONT)
    first.until(lambda: len(cycles(first.records())) > at + 3, "cycles of the driver that was continued")

    at = len(cycles(first.records()))
    first.until(lambda: len(cycles(first.records())) > at, "the beginning of a cycle")
    before = cycles(first.records())[-1].cycle
    for pid in (started[1], started[2], first.process.pid):  # one of each executor, and the driver
        os.kill(pid, signal.SIGKILL)
    assert first.process.wait(10) == -signal.SIGKILL
    left = cycles(first.records())
    assert left[-1].cycle <= before + 1, "all of it in one cycle"
    wait_until(lambda: not any(map(alive, everyone)), "the end of what was the first attempt's", 15.0)
    newest = max(one.cycle for one in Backups(LocalStore(first.run_dir), "backups").found())

    second = attempt("auto")

    def again() -> list[CycleRecord]:
        records = second.records()
        began = [at for at, one in enumerate(records) if isinstance(one, RunRecord) and one.attempt == 2]
        return cycles(records[began[0] :]) if began else []

    second.until(lambda: sum(len(one.contributors) == AGENTS for one in again()) >= 3, "cycles with everyone")
    (tmp_path / "end").touch()
    assert second.process.wait(60) == 0
    assert [one.cycle for one in again()] == list(range(newest, newest + len(again()))), "from the newest backup on"
    assert all(
        incarnation == 0 for one in again() for incarnation in (said["incarnation"] for said in one.contributors.values())
    )
    assert (first.run_dir / "model.safetensors").is_file()
