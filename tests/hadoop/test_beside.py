"""Two secured runs at once on one cluster, in client and in cluster mode, beside an application that is none of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.spark.yarn import application_ids
from mpca.storage import Location, joined
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import (
    ROOT,
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


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


def test_two_secured_runs_beside_another_application_each_reach_their_own_end(
    hadoop: Hadoop, folder: str, tmp_path: Path
) -> None:
    """The first, by ranges and relay, trains before, while and after the second, by tree and torrent, does."""
    end, near = tmp_path / "end", tmp_path / "run" / "records.jsonl"
    far = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    script = ROOT / "tests" / "hadoop" / "programs" / "until.py"

    def cycles() -> int:
        return len(records(near.read_text(), "cycle")) if near.exists() else 0

    other = program(tmp_path, "other.py", str(end), sets=PLAIN)
    one = submit(
        tmp_path,
        *("--train", str(script), str(end)),
        sets=(*SECURED, f"run.dir={near.parent}", "run.name=same", "objectives.max_time=20min"),
    )
    two = None
    try:
        one.until(lambda: cycles() > 3, "cycles of the first run")
        other.until(lambda: "job 1" in other.text(), "jobs of the other application")
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
        ids = [only(one.text()), two.until(lambda: application_ids(two.text()), "an application")[0]]
        seen = [set(two.until(lambda id=id: both(agents(id)), f"both agents of {id}")) for id in ids]
        two.until(lambda: far.exists("") and records(joined(far).decode(), "cycle"), "cycles of the second run")
        before, jobs = cycles(), other.text().count("job ")
        assert two.ended() == 0, two.text()[-4000:]
        one.until(lambda: cycles() > before + 3, "the first run goes on")
        other.until(lambda: other.text().count("job ") > jobs, "the other application goes on")
        nothing_lives(ids[1])
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
    for summary, ledger, pids, whole in zip((first, second), ledgers, seen, (before, second["cycles"]), strict=True):
        assert (summary["num_agents"], summary["agents_lost"], summary["attempts"]) == (2, 0, 1)
        assert {each["pid"] for each in records(ledger, "agent") if each["event"] == "started"} == pids
        lines = records(ledger, "cycle")
        assert [each["cycle"] for each in lines] == list(range(summary["cycles"])), "every cycle was committed, each once"
        assert all(set(each["contributors"]) == {"0", "1"} for each in lines[:whole])
    for run in (one, other):
        told = application(hadoop, only(run.text()))
        assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
        nothing_lives(told["id"])
    far.close()


def agents(id: str) -> list[int]:
    """Pids of the agents in an application's containers."""
    return [int(line.split()[0]) for line in living(id) if "mpca.agent.main" in line]


def both(pids: list[int]) -> list[int] | None:
    return pids if len(pids) == 2 else None
