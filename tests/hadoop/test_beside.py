"""Two secured runs at once on one cluster, in client and in cluster mode, beside an application that is none of ours.

The first is in a queue that has what others leave: the second takes half of it away, by preemption.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.spark.yarn.client import application_ids
from mpca.storage import Location, joined
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import (
    GENTLE,
    SECURED,
    application,
    end_applications,
    living,
    nothing_lives,
    only,
    program,
    records,
    submit,
)

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
#: A plain application has no plug-in of ours, and one small executor.
PLAIN = ("cluster.agents=1", "spark.plugins=", "spark.executor.memoryOverhead=300m")
#: In 16 GiB there is room for two executors of 3.25 GiB beside the other application, or for one of them beside a second run (a
#: driver of 2.4 GiB, two executors of 2.5), on whichever of the two nodes YARN puts what, and beside one executor more: the
#: count that Spark asks for may cross with YARN's answer, and YARN then takes for wanted what was just given, for a heartbeat.
#: The first executor that fails, by YARN's count, ends the application.
LARGE = ("spark.executor.memoryOverhead=2816m", "spark.executor.maxNumFailures=1")


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


def test_two_secured_runs_beside_another_application_and_one_gives_way_to_the_other(
    hadoop: Hadoop, folder: str, tmp_path: Path
) -> None:
    """The first, by ranges and relay, trains before, while and after the second, by tree and torrent, does."""
    end, near = tmp_path / "end", tmp_path / "run" / "records.jsonl"
    far = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))

    def cycles() -> list[dict[str, Any]]:
        return records(near.read_text(), "cycle") if near.exists() else []

    def told(event: str) -> list[dict[str, Any]]:
        return [one for one in records(near.read_text(), "agent") if one["event"] == event]

    other = program(tmp_path, "other.py", str(end), sets=PLAIN)
    one = submit(
        tmp_path,
        *("--queue", "spare", *GENTLE, str(end)),
        sets=(*SECURED, *LARGE, f"run.dir={near.parent}", "run.name=same", "objectives.max_time=20min"),
    )
    two = None
    try:
        one.until(lambda: len(cycles()) > 3, "cycles of the first run")
        other.until(lambda: "job 1" in other.said(), "jobs of the other application")
        first_pids = set(one.until(lambda: both(agents(only(one.text()))), "both agents of the first run"))
        two = submit(
            tmp_path,
            *("--deploy-mode", "cluster"),
            sets=(
                *SECURED,
                f"run.dir={hadoop.hdfs_url}{folder}",
                "run.name=same",
                "cluster.reducer=tree",
                "cluster.broadcast=torrent",
                "objectives.target_error=0.08",
                "objectives.max_time=20min",
            ),
        )
        # Each agent is in a container of its own application.
        id = two.until(lambda: application_ids(two.text()), "an application")[0]
        second_pids = set(two.until(lambda: both(agents(id)), "both agents of the second run"))
        two.until(lambda: far.exists("") and records(joined(far).decode(), "cycle"), "cycles of the second run")
        one.until(lambda: told("lost"), "the first run has lost an agent to the second")
        before, jobs = len(cycles()), other.said().count("job ")
        assert two.ended() == 0, two.text()[-4000:]
        ended = time.monotonic()
        one.until(lambda: len(cycles()) > before + 3, "the first run goes on")
        other.until(lambda: other.said().count("job ") > jobs, "the other application goes on")
        nothing_lives(id)
        one.until(lambda: len(cycles()[-1]["contributors"]) == 2, "it has its agent again")
        print(f"the first run had its agent again {time.monotonic() - ended:.1f} s after the second had ended")
        end.touch()
        assert one.ended() == 0, one.text()[-4000:]
        assert other.ended() == 0, other.text()[-4000:]
    finally:
        end.touch()
        for run in (one, two, other):
            if run is not None:
                run.close()
    first = json.loads((near.parent / "summary.json").read_text())
    second = json.loads(far.read("summary.json"))
    assert (first["status"], first["reason"]) == ("reached", "every train function returned")
    assert second["status"] == "reached"
    assert second["final_error"] <= 0.08
    ledgers = [near.read_text(), joined(far).decode()]
    for summary, ledger, pids in zip((first, second), ledgers, (first_pids, second_pids), strict=True):
        assert (summary["num_agents"], summary["attempts"]) == (2, 1)
        assert {each["pid"] for each in records(ledger, "agent") if each["event"] == "started"} == pids
        numbers = [each["cycle"] for each in records(ledger, "cycle")]
        assert numbers == list(range(summary["cycles"])), "every cycle was committed, each once"
    assert second["agents_lost"] == 0
    assert all(set(each["contributors"]) == {"0", "1"} for each in records(ledgers[1], "cycle"))

    # What YARN took is an agent that is lost and comes back, the other one's process stays, and nothing is counted.
    assert (len(told("lost")), len(told("replaced")), told("rediscovered")) == (1, 1, []), [*told("lost"), *told("replaced")]
    (lost,), (replaced,) = told("lost"), told("replaced")
    away, stayed = str(lost["index"]), str(1 - lost["index"])
    assert "was preempted" in lost["reason"]
    assert (lost["incarnation"], replaced["index"], replaced["incarnation"]) == (0, lost["index"], 1)
    assert (first["agents_lost"], first["agents_replaced"]) == (1, 1)
    # The executor that dies may owe the other one pieces of a broadcast: it then takes longer than a second, which is late
    # alone, and cycles go on until it has them: once. At the end each agent finishes when its function returns, which may be
    # in the middle of a cycle.
    lines = cycles()
    said = [each["left_out"].get(stayed, "in").split(":")[0] for each in lines]
    story = " ".join(what for what, _ in groupby(said))
    assert re.fullmatch(r"in( late in)?( ended before it handed over| no such incarnation)?( finished)?", story), story
    assert {each["contributors"][stayed]["incarnation"] for each in lines if stayed in each["contributors"]} == {0}
    assert [stayed] in [list(each["contributors"]) for each in lines], "it trained on alone"
    assert 1 in [each["contributors"].get(away, {}).get("incarnation") for each in lines], "and then not"
    yarn = [application(hadoop, only(run.text())) for run in (one, two, other)]
    assert [each["numNonAMContainerPreempted"] for each in yarn] == [1, 0, 0], "as YARN tells it"
    for each in yarn:
        assert each["numAMContainerPreempted"] == 0
        assert (each["state"], each["finalStatus"]) == ("FINISHED", "SUCCEEDED")
        nothing_lives(each["id"])
    far.close()


def agents(id: str) -> list[int]:
    """Pids of the agents in an application's containers: what their parents, whose name they have, have forked."""
    named = [int(line.split()[0]) for line in living(id) if "mpca.agent.parent" in line]
    return [pid for pid in named if psutil.pid_exists(pid) and psutil.Process(pid).ppid() in named]


def both(pids: list[int]) -> list[int] | None:
    return pids if len(pids) == 2 else None
