"""One run on a cluster of containers whose workers stand still, lose their network and die, one after the other."""

from __future__ import annotations

import json

import pytest
from dockerized.cluster import Cluster

from tests.docker.support import Run, nothing_runs_on_workers, whole

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]
#: Generous: what is slow here is the machine. YARN takes a node for lost after 30 to 40 s, then two JVMs and torch start.
MOST_S = 240.0


def test_one_run_goes_on_when_a_worker_stands_still_is_cut_off_and_is_killed(cluster: Cluster) -> None:
    run = Run(
        cluster,
        "faults",
        *("objectives.target_error=0", "objectives.max_time=60min", "backup.interval=3s", "cluster.cycle_deadline=3s"),
    )
    try:
        run.until(lambda: len(run.full(-1)) > 3, "the first cycles")
        assert run.application()["state"] == "RUNNING"
        assert len(set(run.places().values())) == 2, "agents on two workers"

        # it stands still for several deadlines (an order, its grace, a download), and YARN does not notice
        agent = run.away_from_the_master()
        worker, away = run.places()[agent], str(agent)
        at = run.cycle()
        cluster.pause(worker)
        paused = run.seconds_until(left_out=lambda: run.without(agent, at), lost=lambda: run.seen("agent", event="lost"))
        assert cluster.nodes()[worker] == "RUNNING", paused
        at = run.cycle()
        cluster.resume(worker)
        paused |= run.seconds_until(full_cycle_after_resume=lambda: run.full(at))
        assert {one["contributors"][away]["incarnation"] for one in run.full(-1)} == {0}, "the same process is back"
        assert not run.seen("agent", event="replaced")
        events = [one["event"] for one in run.seen("agent", index=agent)]
        assert set(events[1:]) == {"lost", "rediscovered"}

        # it is cut off until it was given up and replaced; what lives behind the cut is not let in again
        at = run.cycle()
        cluster.cut_off(worker)
        cut = run.seconds_until(
            left_out=lambda: run.without(agent, at),
            yarn=lambda: cluster.nodes()[worker] == "LOST",
            replaced=lambda: run.seen("agent", event="replaced", index=agent),
            full_cycle=lambda: [one for one in run.full(at) if one["contributors"][away]["incarnation"] > 0],
        )
        assert run.places()[agent] != worker
        cluster.connect(worker)
        cut |= run.seconds_until(node_back=lambda: cluster.nodes()[worker] == "RUNNING")
        at = run.cycle()
        run.until(lambda: len(run.full(at)) > 3, "cycles after the network is back")

        # it is killed, DataNode, NodeManager, executor and agent at once
        agent = run.away_from_the_master()
        worker, away = run.places()[agent], str(agent)
        incarnation = len(run.seen("agent", event="replaced", index=agent))
        lost_before = len(run.seen("agent", event="lost", index=agent))
        at = run.cycle()
        cluster.kill(worker)
        killed = run.seconds_until(
            lost=lambda: run.seen("agent", event="lost", index=agent)[lost_before:],
            left_out=lambda: run.without(agent, at),
            yarn=lambda: cluster.nodes()[worker] == "LOST",
            full_cycle=lambda: [one for one in run.full(at) if one["contributors"][away]["incarnation"] > incarnation],
        )
        cluster.start(worker)
        killed |= run.seconds_until(node_back=lambda: cluster.nodes()[worker] == "RUNNING")
        for what, took in (("paused", paused), ("cut off", cut), ("killed", killed)):
            print(f"seconds after {what}: {took}")
            assert max(took.values()) < MOST_S

        newest = run.cycle()
        run.until(lambda: [one for one in run.seen("backup", ok=True) if one["cycle"] > newest], "a backup after it all")
        assert run.interrupt() == 130, run.submitted.text()[-4000:]
    finally:
        run.submitted.close()
    summary = json.loads((run.folder / "summary.json").read_text())
    whole(run.seen("cycle"), summary)
    assert summary["status"] == "interrupted"
    assert summary["agents_replaced"] == len(run.seen("agent", event="replaced")) >= 2
    assert summary["final_error"] < 0.1, "and it learnt meanwhile"
    checked = cluster.run("client", "python", "-m", "mpca.cli", "backups", "verify", run.backups, "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads(checked.stdout)["backups"]
    assert run.application()["state"] == "FINISHED"
    nothing_runs_on_workers(cluster)
