"""Backups with agents' own states, on real executors: who goes on is what it was, to the bit of every tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpca.records import BackupRecord
from tests.spark.engine import Told
from tests.spark.jobs import remembering

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

AGENTS = 3
SAVED = ("backup.interval=1s", "backup.optimizers=true")


def tapes(told: Told) -> dict[int, list[str]]:
    """By agent, what it was after `attach` and after each iteration."""
    found = {
        one["agent"]: Path(told.run.folder, f"agent{one['agent']}-{one['pid']}.txt") for one in told.ended.returns.values()
    }
    return {agent: path.read_text().splitlines() for agent, path in sorted(found.items())}


def manifests(run_dir: Path) -> list[dict[str, Any]]:
    """Of complete backups, newest last."""
    return [json.loads(path.read_text()) for path in sorted(run_dir.glob("backups/term-*/manifest.json"))]


@pytest.mark.parametrize("method", ["mpca-nesterov", "sync", "mpca-paper"])
def test_optimisers_schedules_random_numbers_and_parameters_go_on(engine: Any, tmp_path: Path, method: str) -> None:
    run_dir, of = tmp_path / "run", f"method.name={method}"
    first = engine(remembering, run_dir=run_dir, sets=(*SAVED, of, "objectives.max_time=6s"))
    assert first.ended.exit_code == 0, first.ended.reason
    before = tapes(first)
    newest = manifests(run_dir)[-1]
    assert set(newest["agents"]) == {"0", "1", "2"}
    folder = max(run_dir.glob("backups/term-*"))
    assert {path.name for path in folder.glob("agent-*")} == {one["file"] for one in newest["agents"].values()}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [], "no checksum files of Hadoop's"
    backups = [one for one in first.records if isinstance(one, BackupRecord)]
    assert len(backups) >= 2
    assert all(one.ok for one in backups)
    assert any(one.agents_s is not None and one.agents_s > 0 for one in backups)
    assert backups[-1].bytes > sum(one["bytes"] for one in newest["agents"].values()) > 0

    # the newest was saved by the order that stopped the run, maybe in one pause with a joint state that came behind it
    _, still, last = sorted(run_dir.glob("backups/term-*"))[-3:]
    assert last == folder
    again = engine(remembering, run_dir=run_dir, resume=str(still), sets=(*SAVED, of, "objectives.max_time=8s"))
    assert again.ended.exit_code == 0, again.ended.reason
    assert again.agents("lost") == []
    after = tapes(again)
    for agent in range(AGENTS):
        *optimizer, model = after[agent][0].split()
        there = [line.split() for line in before[agent]]
        assert optimizer in [line[:-1] for line in there[1:]], "what it was after an iteration of the first attempt"
        at = next(number for number, line in enumerate(there) if line[:-1] == optimizer)
        assert at > len(there) // 4, "of a late backup"
        assert int(optimizer[-1]) == at, "the schedule has made a step for each iteration"
        assert model == there[at][-1] or method == "sync"  # who held takes the next joint state before `attach` returns


def test_another_number_of_agents_begins_at_the_joint_model(engine: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    first = engine(remembering, run_dir=run_dir, sets=(*SAVED, "objectives.max_time=3s"))
    assert first.ended.exit_code == 0, first.ended.reason
    more = ("cluster.agents=2", "objectives.max_time=5s")
    again = engine(remembering, run_dir=run_dir, resume="auto", sets=(*SAVED, *more))
    assert again.ended.exit_code == 0, again.ended.reason
    after, before = tapes(again), tapes(first)
    assert set(after) == {0, 1}
    assert not {lines[0] for lines in after.values()} & {line for lines in before.values() for line in lines}
    assert set(manifests(run_dir)[-1]["agents"]) == {"0", "1"}


def test_an_agent_that_dies_while_it_is_saved_costs_the_backup_its_states_alone(engine: Any, tmp_path: Path) -> None:
    def story(run):
        yield lambda: run.coming is not None and run.coming.save is not None
        run.kill_agent(1)
        yield lambda: run.takes_part(1, incarnation=1)
        saved = len(run.orders)
        yield lambda: sum(order.save is not None and len(order.save.agents) == 3 for order in run.orders[saved:]) >= 2
        run.end()

    run_dir = tmp_path / "run"
    told = engine(remembering, story=story, run_dir=run_dir, sets=(*SAVED, "backup.keep=1000"))
    assert told.ended.exit_code == 0, told.ended.reason
    (lost,) = told.agents("lost")
    assert (lost.index, lost.incarnation) == (1, 0)
    backups = [one for one in told.records if isinstance(one, BackupRecord)]
    assert all(one.ok for one in backups), [one.reason for one in backups]
    written = [{agent: one["file"] for agent, one in held.get("agents", {}).items()} for held in manifests(run_dir)]
    assert {len(files) for files in written} == {0, AGENTS}, "all of them or none"
    assert "agent-00001-1.pt" in [files["1"] for files in written if files], "its replacement's"
    hidden = [path.name for path in (run_dir / "backups").iterdir() if path.name.startswith(".")]
    assert hidden == []
