"""The folder of a run: what a later attempt goes on from, what is left alone, whose it is, and an end that it does not take."""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from mpca.api import launch
from mpca.api.finish import is_final
from mpca.api.launch import Job, resolve
from mpca.api.location import HdfsRunLocation, LocalRunLocation, RunLocation
from mpca.api.run_files import close_folder, keep
from mpca.errors import AgentFailed, BackupError, BadRecords, ConfigError, EnvironmentRefused, JvmError, RunFailed
from mpca.records import BadFile, RunRecord, Summary, read_records, read_summary, write_summary
from mpca.records.lines import line_of
from mpca.spark.yarn.submitted import ApplicationInfo
from mpca.storage import Backups, LocalStore, Location, RunLock
from tests.storage.test_backup import state
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long

RUN = RunRecord(t=0.0, name="digits", method="mpca", num_agents=2, seed=0, shards=3, phases=3)


def application(attempt: int) -> ApplicationInfo:
    return ApplicationInfo("application_7_0001", attempt, yarn=True, cluster_mode=True, submitted=None, began=0.0, home="")


def attempt(folder: Path, number: int, status: str, final: bool) -> bytes:
    """One attempt from its first moment to its end; the records of those before it, as it found them."""
    with ExitStack() as stack:
        location = HdfsRunLocation(Location.parse(folder), stack)
        term = location.take(None, False, application(number))
        found = location.folder.records.read_bytes()
        records = location.begin(term, resolve(None), replace(RUN, attempt=number))
        summary = Summary(status, f"reason {number}", "mpca", 2, 0, 1.0, None, attempts=term, final=final)
        write_summary(location.folder.summary, summary)
        location.publish(records.waiting)
        return found


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_what_the_surroundings_ended_is_gone_on_with(tmp_path: Path, status: str) -> None:
    folder = tmp_path / "run"
    assert attempt(folder, 1, status, final=False) == b""
    assert attempt(folder, 2, "reached", final=False) == line_of(replace(RUN, attempt=1))
    assert [one.attempt for one in read_records(folder / "records.jsonl").records] == [1, 2]


def test_what_the_user_ended_is_not_repeated_by_any_later_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    attempt(folder, 1, "failed", final=False)
    attempt(folder, 2, "failed", final=True)
    kept = everything(folder)
    for number in (3, 4):
        with pytest.raises(RunFailed, match=rf"^reason 2 \(an earlier attempt ended so, and attempt {number} does not repeat"):
            attempt(folder, number, "reached", final=False)
    assert everything(folder) == kept


def test_a_run_that_another_driver_took_over_is_left_to_it(tmp_path: Path) -> None:
    """Also when that driver is gone: what it has made of the run is its own."""
    folder = tmp_path / "run"
    attempt(folder, 1, "interrupted", final=False)
    rival = RunLock(LocalStore(folder))
    rival.claim("application_7_0002, pid 1 on w2", alive=lambda holder: False)
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


def test_bad_records_are_on_hdfs_while_a_run_goes_on_and_the_next_attempt_goes_on_with_them(tmp_path: Path) -> None:
    folder, there = tmp_path / "run", tmp_path / "run" / "bad.jsonl"
    for number, record in ((1, "a"), (2, "b")):
        with ExitStack() as stack:
            location = HdfsRunLocation(Location.parse(folder), stack)
            location.begin(location.take(None, False, application(number)), resolve(None), replace(RUN, attempt=number))
            bad = BadFile(location.folder.bad)
            for _ in range(2):
                bad.met(1.0, 0, 0, [[record, "damaged"]], 0)
                bad.flush(at_once=True)
            wait_until(lambda bad=bad: there.exists() and there.read_bytes() == bad.text(), "the file on HDFS", 20.0)
        # this attempt's driver is gone without an end
    assert [json.loads(line)["record"] for line in there.read_text().splitlines()] == ["a", "b"]


# ---- what is left alone ------------------------------------------------------------------------------------------------

HDFS_AND_LOCAL = pytest.mark.parametrize("kind", [LocalRunLocation, HdfsRunLocation], ids=["local", "hdfs"])


def open_location(kind: type[RunLocation], folder: Path, stack: ExitStack) -> RunLocation:
    return LocalRunLocation(folder, stack) if kind is LocalRunLocation else HdfsRunLocation(Location.parse(folder), stack)


def everything(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Names, rights and bytes of all that is in a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
    }


def driver_was_killed(folder: Path) -> None:
    """The lock is there, and the process that it names is not."""
    text = json.loads((folder / "lock.term-1").read_text())
    text["process"]["start"] -= 1
    (folder / "lock.term-1").write_text(json.dumps(text))
    (folder / "lock.term-1").rename(folder / "lock")


def run_once(kind: type[RunLocation], folder: Path, resume: bool) -> int:
    """An attempt that begins and ends; its term."""
    with ExitStack() as stack:
        location = open_location(kind, folder, stack)
        term = location.take(None, resume, None)
        records = location.begin(term, resolve(None), RUN)
        write_summary(location.folder.summary, Summary("reached", "", "mpca", 2, 0, 1.0, None, attempts=term))
        location.publish(records.waiting)
        return term


@HDFS_AND_LOCAL
@pytest.mark.parametrize("before", ["nothing", "users", "run", "killed"])
def test_a_run_that_never_begins_leaves_its_folder_as_it_was(tmp_path: Path, kind: type, before: str) -> None:
    folder = tmp_path / "run"
    if before != "nothing":
        (folder / "backups" / "term-0001-cycle-00000005").mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
        (folder / "spark").mkdir()
        (folder / "records").mkdir()
    if before in ("run", "killed"):
        run_once(kind, folder, resume=True)
        with (folder / "records.jsonl").open("ab") as records:
            records.write(b'{"kind": "torn')
    if before == "killed":
        driver_was_killed(folder)
        (folder / "lock.beat").write_bytes(b"7")
        (folder / "lock.beat").chmod(0o600)
    was = everything(folder)
    with ExitStack() as stack:  # Java is missing, say
        open_location(kind, folder, stack).take(None, before != "nothing", None)
        assert everything(folder) != was, "it has the lock"
    assert everything(folder) == was
    assert folder.exists() == (before != "nothing")


@HDFS_AND_LOCAL
def test_what_others_put_into_a_folder_that_never_began_stays(tmp_path: Path, kind: type) -> None:
    folder = tmp_path / "run"
    with ExitStack() as stack:
        open_location(kind, folder, stack).take(None, False, None)
        (folder / "letter").write_text("mine")
    assert everything(folder).keys() == {"letter"}


@HDFS_AND_LOCAL
def test_files_that_no_run_wrote_are_not_written_over(tmp_path: Path, kind: type) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"mine")
    (folder / "config.toml").write_text("[mine]\n")
    was = everything(folder)
    with pytest.raises(ConfigError, match=r"files that no run wrote: .*: config\.toml, model\.safetensors; move them away"):
        run_once(kind, folder, resume=True)
    assert everything(folder) == was


@HDFS_AND_LOCAL
@pytest.mark.parametrize("mark", ["config.toml", "records.jsonl", "lock.term-1"])
def test_a_runs_folder_is_known_by_any_of_its_marks(tmp_path: Path, kind: type, mark: str) -> None:
    run_once(kind, tmp_path / "run", resume=False)
    (tmp_path / "moved").mkdir()
    for name in (mark, "summary.json"):
        (tmp_path / "run" / name).rename(tmp_path / "moved" / name)
    run_once(kind, tmp_path / "moved", resume=True)
    assert (tmp_path / "moved" / "summary.json").exists()


def test_records_of_somebody_else_stay_when_the_parts_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "records").mkdir(parents=True)
    (folder / "records" / "song.ogg").write_bytes(b"la")
    run_once(HdfsRunLocation, folder, resume=True)
    assert (folder / "records" / "song.ogg").read_bytes() == b"la"
    assert [one.name for one in (folder / "records").iterdir()] == ["song.ogg"]


def test_an_existing_folder_is_not_begun_anew_because_its_driver_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_once(HdfsRunLocation, folder, resume=False)
    driver_was_killed(folder)
    was = everything(folder)
    with pytest.raises(ConfigError, match="run folder exists"):
        run_once(HdfsRunLocation, folder, resume=False)
    assert everything(folder) == was


def test_of_two_attempts_at_once_one_has_the_folder_and_the_other_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with ExitStack() as stack:
        LocalRunLocation(folder, stack).take(None, False, None)
        was = everything(folder)
        with pytest.raises(BackupError, match=rf"another driver writes here: .*owner=pid {os.getpid()} on .*; stop it, or use"):
            run_once(LocalRunLocation, folder, resume=True)
        assert everything(folder) == was


@HDFS_AND_LOCAL
def test_a_resume_beside_a_driver_that_has_no_backup_yet_names_that_driver(
    tmp_path: Path, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr(launch, "choose_location", lambda _folder, _name, _wall, stack: open_location(kind, folder, stack))
    job = Job(resolve(None), b"", run_dir=folder, resume="auto")
    with ExitStack() as stack:
        first = open_location(kind, folder, stack)
        first.begin(first.take(None, False, None), resolve(None), RUN)
        lock = (folder / "lock").read_bytes()
        with pytest.raises(BackupError, match=rf"another driver writes here: .*owner=pid {os.getpid()} on .*; stop it, or use"):
            launch.launch(job)
        assert (folder / "lock").read_bytes() == lock
    with pytest.raises(BackupError, match=r"no valid backup: .*: there is none"):
        launch.launch(job)


@pytest.mark.parametrize(
    "left",
    [
        {"owner": "pid 1 on " + platform.node(), "term": 3},
        {"owner": "pid 7 on elsewhere", "term": 3},
        {"owner": "pid 1 on elsewhere", "term": 3, "process": {"boot": "b", "namespace": "n", "pid": 1, "start": 1}},
    ],
    ids=["reused pid", "other host", "other host that says so"],
)
def test_a_lock_that_nobody_holds_blocks_no_resume(tmp_path: Path, left: dict) -> None:
    run_once(LocalRunLocation, tmp_path / "run", resume=False)
    (tmp_path / "run" / "lock").write_text(json.dumps(left))
    assert run_once(LocalRunLocation, tmp_path / "run", resume=True) == 4


def test_a_driver_whose_lock_was_removed_by_hand_yields_to_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with ExitStack() as stack:
        first = LocalRunLocation(folder, stack)
        first.begin(first.take(None, False, None), resolve(None), RUN)
        (folder / "lock").unlink()
        assert first.lost is None, "a lock that is merely gone is nobody's"
        with ExitStack() as other:
            LocalRunLocation(folder, other).take(None, True, None, above=1)
            wait_until(lambda: first.lost is not None, "the look at the lock", 20.0)
        assert "another driver writes here" in str(first.lost)


@HDFS_AND_LOCAL
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777], ids=oct)
def test_all_of_a_run_is_its_owners_alone_whatever_the_umask(tmp_path: Path, kind: type, mask: int) -> None:
    folder = tmp_path / "runs" / "a"
    before = os.umask(mask)
    try:
        with ExitStack() as stack:
            location = open_location(kind, folder, stack)
            records = location.begin(location.take(None, False, None), resolve(None), RUN)
            Backups(LocalStore(folder, private=True), "backups").write(state(3))
            summary = Summary("reached", "", "mpca", 2, 0, 1.0, None)
            bad = BadFile(location.folder.bad)
            bad.met(1.0, 0, 0, [["a", "damaged"]], 0)
            assert close_folder(records, bad, location.folder, 1.0, summary, b"model") == []
            location.publish(records.waiting)
    finally:
        os.umask(before)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert names >= {
        "config.toml",
        "records.jsonl",
        "bad.jsonl",
        "summary.json",
        "report.html",
        "model.safetensors",
        "lock.term-1",
    }
    assert [path for path in folder.rglob("*.safetensors") if "backups" in path.parts]
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


# ---- an end that cannot be saved ---------------------------------------------------------------------------------------


def test_what_a_folder_does_not_take_is_said_and_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "run"
    summary = Summary("reached", "", "mpca", 2, 0, 1.0, None)
    with ExitStack() as stack:
        location = LocalRunLocation(folder, stack)
        records = location.begin(location.take(None, False, None), resolve(None), RUN)
        shutil.rmtree(folder)
        bad = BadFile(location.folder.bad)
        bad.met(1.0, 0, 0, [["a", "damaged"]], 0)
        faults = close_folder(records, bad, location.folder, 1.0, summary, b"model")
        told = keep(location.folder, records, bad, summary, b"model")
    files = ("model.safetensors", "records.jsonl", "bad.jsonl", "summary.json")
    assert faults == [f"{name}: No such file or directory" for name in files]
    assert not folder.exists(), "a folder that was removed is not made again"
    kept = Path(told.rpartition(" ")[2])
    assert kept.parent == tmp_path
    assert (kept / "model.safetensors").read_bytes() == b"model"
    assert (kept / "bad.jsonl").read_bytes() == bad.text() != b""
    assert [one.kind for one in read_records(kept / "records.jsonl").records] == ["end"]
    assert read_summary(kept / "summary.json") == summary
