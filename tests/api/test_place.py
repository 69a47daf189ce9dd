"""A later attempt of an application in the run folder of the one before: what it goes on from, and what it leaves alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from mpca.api.finish import is_final
from mpca.api.place import HdfsPlace
from mpca.errors import AgentFailed, BackupError, BadRecords, ConfigError, EnvironmentRefused, JvmError, RunFailed
from mpca.records import Summary, write_summary
from mpca.spark.submitted import Origin
from mpca.storage import LocalStore, Location, RunLock


def origin(attempt: int) -> Origin:
    return Origin("application_7_0001", attempt, yarn=True, cluster_mode=True, submitted=None, began=0.0, home="")


def attempt(folder: Path, number: int, status: str, final: bool) -> bytes:
    """One attempt from its first moment to its end; the records of those before it, as it found them."""
    with ExitStack() as stack:
        place = HdfsPlace(Location.parse(folder), stack)
        epoch = place.take(None, False, origin(number))
        found = place.folder.records.read_bytes() if place.folder.records.exists() else b""
        with place.folder.records.open("ab") as records:
            records.write(f"attempt {number}\n".encode())
        place.began(epoch)
        summary = Summary(status, f"reason {number}", "mpca", 2, 0, 1.0, None, attempts=epoch, final=final)
        write_summary(place.folder.summary, summary)
        place.publish()
        return found


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_what_the_surroundings_ended_is_gone_on_with(tmp_path: Path, status: str) -> None:
    folder = tmp_path / "run"
    assert attempt(folder, 1, status, final=False) == b""
    assert attempt(folder, 2, "reached", final=False) == b"attempt 1\n"
    assert (folder / "records.jsonl").read_text() == "attempt 1\nattempt 2\n"


def test_what_the_user_ended_is_not_repeated_by_any_later_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    attempt(folder, 1, "failed", final=False)
    attempt(folder, 2, "failed", final=True)
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("lock")}
    for number in (3, 4):
        with pytest.raises(RunFailed, match=rf"^reason 2 \(an earlier attempt ended so, and attempt {number} does not repeat"):
            attempt(folder, number, "reached", final=False)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("lock")} == kept


def test_a_run_that_another_driver_took_over_is_left_to_it(tmp_path: Path) -> None:
    """Also when that driver is gone: what it has made of the run is its own."""
    folder = tmp_path / "run"
    attempt(folder, 1, "interrupted", final=False)
    rival = RunLock(LocalStore(folder))
    rival.claim("application_7_0002, pid 1 on w2", alive=lambda owner: False)
    rival.release()
    with pytest.raises(BackupError, match=r"another driver has taken this run over: owner=application_7_0002, pid 1 on w2"):
        attempt(folder, 2, "reached", final=False)
    assert attempt(tmp_path / "other", 2, "reached", final=False) == b"", "one that nobody has had is begun"


@pytest.mark.parametrize("error", [AgentFailed, BackupError, BadRecords, ConfigError, EnvironmentRefused])
def test_the_users_own_errors_are_final(error: type[Exception]) -> None:
    assert is_final(error("x"))


@pytest.mark.parametrize("error", [JvmError, RunFailed, OSError, MemoryError, AssertionError, KeyboardInterrupt])
def test_what_may_go_better_another_time_is_not(error: type[BaseException]) -> None:
    assert not is_final(error("x"))
