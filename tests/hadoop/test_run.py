"""A run whose folder is on HDFS: its NameNode restarts, refuses and comes back, a backup rots, another driver comes.

One folder, three attempts, each with a story told by a thread beside the run. Executors are those of this machine.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from mpca.api.launch import Ended, Job, launch, resolve
from mpca.api.location import HdfsRunLocation
from mpca.api.shipping import ship
from mpca.cli.dev.hadoop import Hadoop
from mpca.driver.status import RunStatus
from mpca.errors import BackupError
from mpca.records import AgentRecord, BackupRecord, CycleRecord, Record, RunRecord, read_records
from mpca.storage import Backups, Location, RunLock, joined
from mpca.storage.webhdfs import WebHdfsStore
from tests.spark import jobs

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.timeout(900)]
cloudpickle.register_pickle_by_value(jobs)
PATIENCE_S = 180.0


class Run:
    """One attempt, and what its story can see: the newest status, and the folder on HDFS from outside."""

    def __init__(self, spark: Any, hadoop: Hadoop, folder: str, here: Path) -> None:
        self.hadoop, self.here = hadoop, here
        self.url = hadoop.hdfs_url + folder
        self.store = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
        self.backups = Backups(self.store, "backups")
        self.folder = folder
        self.cycle = 0
        self.said: list[str] = []
        self.over = threading.Event()
        self._spark = spark

    def go(self, story: Callable[[Run], None], resume: str | None = None) -> Ended:
        (self.here / "end").unlink(missing_ok=True)
        sets = ["cluster.agents=2", "cluster.start_timeout=150s", "backup.interval=1s"]
        job = Job(
            resolve(None, sets),
            ship(jobs.quadratic, (str(self.here),), {"tape": False, "pause_s": 0.01}),
            run_dir=self.url,
            resume=resume,
            session=self._spark,
        )
        failed: list[BaseException] = []

        def tell() -> None:
            try:
                story(self)
            except BaseException as error:
                failed.append(error)
            finally:
                (self.here / "end").touch()

        def note(status: RunStatus) -> None:
            self.cycle = status.cycle

        teller = threading.Thread(target=tell)
        self.cycle = 0
        self.over.clear()
        teller.start()
        ended = None
        try:
            ended = launch(job, on_status=note, on_stage=self.said.append)
        finally:
            self.over.set()
            teller.join()
        assert not failed, f"{failed[0]}; the run: {ended.summary['status']}, {ended.reason}"
        return ended

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait for a condition, as long as the run goes on."""
        until = time.monotonic() + seconds
        while not condition():
            assert not self.over.is_set(), f"the run is over: {what}"
            assert time.monotonic() < until, f"not within {seconds} s: {what}"
            time.sleep(0.3)

    def cycles_go_on(self, count: int = 10) -> None:
        beyond = self.cycle + count
        self.until(lambda: self.cycle >= beyond, f"cycle {beyond}")

    def backup_after(self, cycle: int) -> None:
        self.until(lambda: any(one.cycle > cycle for one in self.backups.found()), f"a backup after cycle {cycle}")

    def records(self) -> list[Record]:
        """As they lie on HDFS."""
        copy = self.here / "records.jsonl"
        copy.write_bytes(joined(self.store))
        return read_records(copy).records


@pytest.fixture
def run(spark: Any, hadoop: Hadoop, folder: str, tmp_path: Path) -> Iterator[Run]:
    one = Run(spark, hadoop, f"{folder}/run", tmp_path)
    yield one
    one.store.close()


def troubles(run: Run) -> None:
    """The first attempt: records are there while it runs, a second driver, NameNode down, safe mode, quota."""
    run.backup_after(0)
    run.until(lambda: any(isinstance(one, CycleRecord) for one in run.records()), "records on HDFS", 10.0)
    with ExitStack() as stack, pytest.raises(BackupError, match=r"another driver writes here: .*/run/lock, owner=.*pid \d+ on"):
        HdfsRunLocation(run.store.root, stack).take(None, False, None)

    run.hadoop.kill("namenode")
    run.cycles_go_on()
    run.hadoop.start("namenode")
    run.backup_after(run.cycle)

    run.hadoop.admin("-safemode", "enter")
    try:
        run.cycles_go_on()
    finally:
        run.hadoop.admin("-safemode", "leave")
    run.backup_after(run.cycle)

    run.hadoop.admin("-setSpaceQuota", "1m", f"{run.folder}/backups")
    run.until(lambda: any("Quota" in (one.reason or "") for one in told_backups(run)), "a backup beyond the quota")
    assert len(run.backups.found()) == 3
    run.hadoop.admin("-clrSpaceQuota", f"{run.folder}/backups")
    run.backup_after(run.cycle)


def told_backups(run: Run) -> list[BackupRecord]:
    return [one for one in run.records() if isinstance(one, BackupRecord)]


def taken_over(run: Run) -> None:
    """The last attempt: another driver believes that this one is dead. Nobody ends the run but itself."""
    run.cycles_go_on()
    RunLock(run.store).claim("application_7, pid 1 on elsewhere", alive=lambda owner: False)
    run.over.wait(PATIENCE_S)


def test_a_run_on_hdfs_outlives_its_troubles_goes_on_from_a_backup_and_yields_to_a_new_owner(run: Run) -> None:
    ended = run.go(troubles)
    assert ended.exit_code == 0, ended.reason
    assert ended.run_dir == run.url
    assert set(run.store.names("")) == {
        *("backups", "config.toml", "lock.term-1", "model.safetensors", "records.jsonl", "report.html", "summary.json"),
    }
    assert json.loads(run.store.read("summary.json"))["status"] == ended.summary["status"]
    whole = run.records()
    cycles = [one.cycle for one in whole if isinstance(one, CycleRecord)]
    assert cycles == list(range(ended.summary["cycles"]))
    assert not [one for one in whole if isinstance(one, AgentRecord) and one.event == "lost"]
    written = [one for one in whole if isinstance(one, BackupRecord)]
    refused = [one for one in written if not one.ok]
    assert refused
    assert all("DSQuotaExceededException" in (one.reason or "") and "/backups/" in (one.reason or "") for one in refused)
    assert sum(one.ok for one in written) == ended.summary["backups"]

    newest, before = run.backups.found()[:2]
    model = f"backups/{newest.name}/model.safetensors"
    run.store.write(model, run.store.read(model)[:-1])
    run.said.clear()
    again = run.go(lambda run: run.cycles_go_on(before.cycle + 10), resume="auto")
    assert again.exit_code == 0, again.reason
    assert any(before.name in line for line in run.said)
    assert any(line.startswith(f"passed over: {newest.name}") for line in run.said)
    records = run.records()
    assert records[: len(whole)] == whole
    first, second = (one for one in records if isinstance(one, RunRecord))
    assert (second.attempt, second.resumed_from) == (2, again.summary["resumed_from"])
    assert before.name in (second.resumed_from or "")
    added = [one.cycle for one in records[len(whole) :] if isinstance(one, CycleRecord)]
    assert added == list(range(before.cycle, again.summary["cycles"]))
    assert second.t > first.t

    kept = {name: run.store.read(name) for name in ("records.jsonl", "model.safetensors")}
    last = run.go(taken_over, resume="auto")
    assert last.exit_code == 1
    assert "another driver writes here" in last.reason
    assert "owner=application_7" in last.reason
    assert {name: run.store.read(name) for name in kept} == kept
    assert not run.store.exists("summary.json")
