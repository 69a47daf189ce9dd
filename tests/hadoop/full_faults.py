"""Faults of HDFS that take too long for every day: answers that are lost, no DataNode, a resume without a NameNode, and a
driver that dies while a file is open. Collected only when the file is named: ``make test-hadoop-full``.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.records import AgentRecord, BackupRecord, CycleRecord
from mpca.storage import Backups, Location, RunLock
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.losing_proxy import LATE, REPLY, REQUEST, LosingProxy
from tests.hadoop.support import DIGITS, MPCA, Submitted, records
from tests.hadoop.test_run import Run, run
from tests.storage.test_backup import same, state

__all__ = ["run"]  # a fixture

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
NODES = ("datanode1", "datanode2")
#: Without the soft and the hard limit of a lease, 60 and 1,200 s, or a time-out of minutes.
MOST_S = 240.0


@pytest.fixture(autouse=True)
def all_is_well(hadoop: Hadoop) -> Iterator[None]:
    yield
    hadoop.up()


@pytest.mark.parametrize("loses", [REQUEST, REPLY, LATE])
def test_of_each_call_three_are_lost_and_each_is_carried_out_once(hadoop: Hadoop, folder: str, loses: str) -> None:
    """Fault 19, over WebHDFS: the request, only its answer, or it comes after its own repetition."""
    address = hadoop.webhdfs_url.partition("://")[2]
    began = time.monotonic()
    with (
        LosingProxy(address, loses, 3) as proxy,
        closing(WebHdfsStore(Location.parse(f"webhdfs://{proxy.address}{folder}"))) as store,
    ):
        for number in range(4):  # each must be seen as one's own
            store.create_exclusive(f"exclusive-{number}", b"%d" % number)
        lock = RunLock(store)
        lock.claim("application_1", alive=lambda owner: False)
        backups = Backups(store, "backups", keep=2, guard=lock.check)
        for cycle in range(6):
            backups.write(state(cycle))
        store.rmdir("nothing")
        for number in range(4):
            store.rmdir(f"exclusive-{number}")
        assert same(backups.newest().state, state(5))
    print({"seconds": round(time.monotonic() - began, 1), **proxy.lost})
    for what in ("RENAME", "DELETE", "MKDIRS", "LISTSTATUS", "GETFILESTATUS", "CREATE", "OPEN"):
        assert proxy.lost[f"namenode {what}"] == 3, dict(proxy.lost)
    for what in ("CREATE", "OPEN"):
        assert proxy.lost[f"datanode {what}"] == 3, dict(proxy.lost)
    assert time.monotonic() - began < MOST_S
    with closing(WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))) as plain:
        assert plain.names("") == ["backups", "lock"]
        assert plain.names("backups") == ["term-0001-cycle-00000004", "term-0001-cycle-00000005"]
        assert same(Backups(plain, "backups").newest().state, state(5))


def test_no_data_node_costs_backups_and_nothing_else(run: Run) -> None:
    """Fault 31: all of them die, and come back."""
    hadoop, took = run.hadoop, {}

    def story(run: Run) -> None:
        run.backup_after(0)
        for one in NODES:
            hadoop.kill(one)
        assert [hadoop.status()[one] for one in NODES] == ["down", "down"]
        began, at = time.monotonic(), run.cycle
        while time.monotonic() - began < 20.0:
            run.cycles_go_on()
        took["cycles without"] = run.cycle - at
        for one in NODES:
            hadoop.start(one)
        began = time.monotonic()
        run.backup_after(run.cycle)
        took["seconds to the next backup"] = round(time.monotonic() - began, 1)

    ended = run.go(story)
    print(took)
    assert ended.exit_code == 0, ended.reason
    found = run.records()
    cycles = [one.cycle for one in found if isinstance(one, CycleRecord)]
    assert cycles == list(range(ended.summary["cycles"])), "no record was lost"
    assert not [one for one in found if isinstance(one, AgentRecord) and one.event == "lost"]
    written = [one for one in found if isinstance(one, BackupRecord)]
    failed = [one.reason or "" for one in written if not one.ok]
    assert all("/backups/" in one for one in failed), failed
    longest = max(b.t - a.t for a, b in pairwise(written))
    assert failed or longest > 15.0, "backups were kept waiting, or failed"
    assert took["seconds to the next backup"] < MOST_S
    assert run.backups.newest().state.cycle == max(one.cycle for one in run.backups.found()), "the newest is whole"


def test_a_resume_waits_for_a_name_node_that_is_away_and_for_one_in_safe_mode(run: Run) -> None:
    """Faults 30 and 29: the next attempt finds no NameNode, and then one that takes no writes."""
    hadoop = run.hadoop
    first = run.go(lambda run: run.backup_after(5))
    assert first.exit_code == 0, first.reason
    for away in ("killed", "safe mode"):
        before = run.backups.found()[0]
        if away == "killed":
            hadoop.kill("namenode")
            back = threading.Timer(15.0, hadoop.start, ("namenode",))
        else:
            hadoop.admin("-safemode", "enter")
            back = threading.Timer(15.0, hadoop.admin, ("-safemode", "leave"))
        back.start()
        began: dict[str, float] = {"at": time.monotonic()}

        def story(run: Run, began: dict[str, float] = began) -> None:
            run.until(lambda: run.cycle > 0, "the first cycle of the next attempt")
            began["took"] = time.monotonic() - began["at"]
            run.backup_after(run.cycle)

        run.said.clear()
        again = run.go(story, resume="auto")
        back.join()
        print(away, {"seconds to the first cycle": round(began["took"], 1)}, run.said)
        assert again.exit_code == 0, again.reason
        assert 15.0 <= began["took"] < MOST_S
        assert (again.summary["resumed_from"] or "").endswith(before.name)


def kill_all(run: Submitted) -> None:
    """The driver, its JVMs and agents, at once: nobody closes a file."""
    parent = psutil.Process(run.process.pid)
    for one in [*parent.children(recursive=True), parent]:
        with suppress(psutil.Error):
            one.send_signal(signal.SIGSTOP)
    for one in [*parent.children(recursive=True), parent]:
        with suppress(psutil.Error):
            one.kill()
    run.process.wait()


def test_a_driver_that_dies_while_a_backup_is_open_keeps_nobody_waiting(hadoop: Hadoop, folder: str, tmp_path: Path) -> None:
    """Fault 34: the DataNodes stand still, so that the backup's file stays open; then the driver is killed."""
    url, took = f"{hadoop.hdfs_url}{folder}/run", {}
    store = WebHdfsStore(Location.parse(f"{hadoop.webhdfs_url}{folder}/run"))

    def train(*words: str, target: str) -> Submitted:
        sets = ("cluster.agents=2", "backup.interval=1s", "objectives.max_time=10min", f"objectives.target_error={target}")
        command = [*MPCA, "train", str(DIGITS), "--run-dir", url, *words]
        return Submitted(*command, *(w for one in sets for w in ("--set", one)), cwd=tmp_path, log=tmp_path / f"{target}.log")

    def open_files() -> list[str]:
        said = hadoop.admin("-listOpenFiles", "-path", f"{folder}/run/backups")
        return [line.split()[-1] for line in said.splitlines() if "/backups/" in line and "path" not in line]

    first = train(target="0")
    pids = [hadoop.pid(one) for one in NODES]
    try:
        first.until(lambda: len(store.names("backups")) >= 2, "two backups")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        first.until(open_files, "a file of a backup that is open")
        kill_all(first)
        held = open_files()
        assert held, "its lease is the dead driver's"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        first.close()
    newest = Backups(store, "backups").found()[0]
    began = time.monotonic()
    second = train("--resume", "auto", target="0.05")
    try:
        second.until(
            lambda: [one for one in Backups(store, "backups").found() if one.cycle > newest.cycle], "a backup of its own"
        )
        took["seconds to the next backup"] = round(time.monotonic() - began, 1)
        assert second.ended() == 0, second.text()[-4000:]
    finally:
        second.close()
    print(took, held)
    assert took["seconds to the next backup"] < MOST_S
    summary: dict[str, Any] = json.loads(store.read("summary.json"))
    assert (summary["status"], summary["attempts"]) == ("reached", 2)
    assert summary["resumed_from"].startswith(f"{url}/backups/term-")
    assert not [one for one in store.names("backups") if one.startswith(".")], "what the dead one began is gone"
    lines = records(store.read("records.jsonl").decode(), "backup")
    assert lines[-1]["ok"]
    store.close()
