"""A driver that stands still (SIGSTOP, a machine that is suspended) while another wants its run: exactly one writes.

On HDFS the lease runs out and the other one takes over; the old one, continued, must find that out before it writes. On one
machine the other one is refused: `tests/spark/test_half_and_driver.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

from mpca.records import PauseRecord, read_records
from mpca.storage import LocalStore, joined
from tests.support.fake_executor import wait_until

ROOT = Path(__file__).resolve().parents[2]


class Holders:
    """Processes that hold, or want, one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[subprocess.Popen[str]] = []

    def start(self, letter: str, *resume: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.api.holder", str(self.folder), letter, *resume]
        self.all.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return self.all[-1]

    def close(self) -> None:
        for one in self.all:
            with suppress(ProcessLookupError):
                one.kill()
            one.communicate()

    def letters(self) -> str:
        """Who wrote the records, in their order: "AB" when all of A's stand before all of B's."""
        copy = self.folder.parent / "copy.jsonl"
        copy.write_bytes(joined(LocalStore(self.folder)))
        said = [one.reason for one in read_records(copy).records if isinstance(one, PauseRecord)]
        return "".join(letter for letter, _ in groupby(said))


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Holders]:
    several = Holders(tmp_path / "run")
    yield several
    several.close()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stopped_holder(holders: Holders) -> subprocess.Popen[str]:
    """A holder whose records lie in the folder, and which stands still."""
    old = holders.start("A")
    assert says(old) == "took term 1"
    wait_until(lambda: "A" in holders.letters(), "its records")
    os.kill(old.pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(old), "it stands still")
    return old


@pytest.mark.slow
def test_it_is_continued_while_the_next_attempt_runs_and_writes_no_more(holders: Holders) -> None:
    old = stopped_holder(holders)
    new = holders.start("B", "resume")
    assert says(new) == "took term 2", "the lease of one that stands still runs out"
    wait_until(lambda: holders.letters() == "AB", "records of the next attempt")
    assert is_stopped(old)
    os.kill(old.pid, signal.SIGCONT)
    said = says(old)
    assert said.startswith("lost: another driver writes here: ")
    assert f"pid {new.pid} on " in said
    assert old.wait(10) == 1
    assert new.poll() is None, "the next attempt did not notice"
    seen = len(joined(LocalStore(holders.folder)))
    wait_until(lambda: len(joined(LocalStore(holders.folder))) > seen, "it goes on")
    new.communicate("end\n")
    assert new.returncode == 0
    assert holders.letters() == "AB", "nothing of the old one among or behind the new one's"
