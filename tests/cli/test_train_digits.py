"""`mpca train conf/digits.toml` end to end, as a user's shell sees it: what it says, what it leaves, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from mpca import data, models
from mpca.records import AgentRecord, BeginRecord, CycleRecord, EndRecord, EvaluationRecord, RunRecord, read_records
from tests.records.test_records import SUMMARY_KEYS
from tests.report.test_page import page_of
from tests.support.fake_executor import wait_until

ROOT = Path(__file__).resolve().parents[2]
MPCA = [sys.executable, "-m", "mpca.cli"]
FILES = {"config.toml", "records.jsonl", "summary.json", "model.safetensors", "report.html", "backups"}

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


def train(run_dir: Path, *sets: str, json_out: bool = True) -> subprocess.Popen[str]:
    """Start a run in a session of its own, so that nothing but the signals sent here reaches it."""
    command = [*MPCA, "train", str(ROOT / "conf" / "digits.toml"), "--run-dir", str(run_dir), *(["--json"] if json_out else [])]
    for one in sets:
        command += ["--set", one]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=run_dir.parent
    )


def living(process: subprocess.Popen[str], run_dir: Path) -> list[str]:
    """Processes of that run which still live: of its session, or with the run folder on their command line."""
    found = []
    for one in psutil.process_iter(["pid", "cmdline", "status"]):
        words = " ".join(one.info["cmdline"] or [])
        try:
            ours = os.getsid(one.pid) == process.pid or str(run_dir) in words
        except ProcessLookupError:
            continue
        if ours and one.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(words[:100])
    return found


def wait_for(run_dir: Path, kind: str, count: int, process: subprocess.Popen[str], seconds: float = 180) -> None:
    """Until so many records of a kind are there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        path = run_dir / "records.jsonl"
        if path.is_file() and path.read_text(encoding="utf-8").count(f'"kind": "{kind}"') >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {count} records of kind {kind} in {seconds} s")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whole run, of which an agent is killed in the middle."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    # No target, so that there is time for a kill and for what follows it. Two agents: a replacement that imports torch
    # beside three that train takes a minute on two cores.
    two = ("cluster.agents=2", "cluster.min_agents=1")
    process = train(folder, "objectives.target_error=0", "objectives.max_time=75s", *two)
    wait_for(folder, "cycle", 10, process)
    (victim,) = [
        record.pid
        for record in read_records(folder / "records.jsonl").records
        if isinstance(record, AgentRecord) and record.index == 1
    ]
    os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert living(process, folder) == []
    summary = json.loads(out)
    assert summary.pop("run_dir") == str(folder)
    assert summary == json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return folder


def test_the_run_folder_is_the_interface(run_dir: Path) -> None:
    assert {path.name for path in run_dir.iterdir()} >= FILES
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    assert list(summary) == SUMMARY_KEYS.split()
    assert summary["status"] == "max_time"
    assert summary["method"] == "mpca-nesterov"
    assert summary["num_agents"] == len(summary["steps"]) == 2
    assert 74 < summary["seconds"] < 100
    records = read_records(run_dir / "records.jsonl").records
    (began,) = [one for one in records if isinstance(one, BeginRecord)]
    assert began.agents == 2
    assert summary["seconds"] <= records[-1].t - began.t, "what follows the stop is no training"
    last = max(one.t for one in records if isinstance(one, CycleRecord))
    assert summary["seconds"] == pytest.approx(last - began.t, abs=1.0)
    assert not [one for one in records if isinstance(one, CycleRecord) and one.t < began.t]
    assert summary["final_error"] < 0.1
    assert summary["best_error"] <= summary["final_error"]
    assert summary["agents_lost"] == 1
    assert summary["agents_replaced"] == 1


def test_records_tell_the_story_in_order(run_dir: Path) -> None:
    file = read_records(run_dir / "records.jsonl")
    records = file.records
    assert file.torn is None
    assert isinstance(records[0], RunRecord)
    assert isinstance(records[-1], EndRecord)
    assert [one.t for one in records] == sorted(one.t for one in records)
    cycles = [one for one in records if isinstance(one, CycleRecord)]
    assert [one.cycle for one in cycles] == list(range(len(cycles)))
    (begin,) = [one for one in records if isinstance(one, BeginRecord)]
    assert all(one.shard == one.cycle % begin.shards for one in cycles)
    assert all(one.contributors.keys().isdisjoint(one.left_out) for one in cycles)
    taus = [given["tau"] for one in cycles for given in one.contributors.values()]
    assert min(taus) >= 0
    assert np.mean(taus) > 1
    lost = next(one for one in records if isinstance(one, AgentRecord) and one.event == "lost")
    assert (lost.index, lost.incarnation) == (1, 0)
    again = next(one for one in records if isinstance(one, AgentRecord) and one.event == "replaced")
    assert (again.index, again.incarnation) == (1, 1)
    assert any(1 in one.contributors and one.contributors[1]["incarnation"] == 1 for one in cycles), "the replacement took part"


def test_every_stage_of_a_cycle_ends_before_the_next_cycle_begins(run_dir: Path) -> None:
    cycles = [one for one in read_records(run_dir / "records.jsonl").records if isinstance(one, CycleRecord)]
    for before, after in pairwise(cycles):
        end = max(stage["end"] for stage in before.stages.values())
        start = min(stage["start"] for name, stage in after.stages.items() if name != "prepare")
        assert end <= start + 0.05, f"cycle {before.cycle}"


def test_the_report_says_what_the_records_say(run_dir: Path) -> None:
    page = page_of(run_dir)
    records = read_records(run_dir / "records.jsonl").records
    evaluations = [one for one in records if isinstance(one, EvaluationRecord)]
    (zero,) = [one.t for one in records if isinstance(one, BeginRecord)]  # the report's times are of training
    assert [(p["cycle"], p["error"]) for p in page.data["curve"]] == [(e.cycle, e.error) for e in evaluations]
    assert [p["t"] for p in page.data["curve"]] == pytest.approx([e.t - zero for e in evaluations])
    stages = [
        (one.cycle, name, stage["shard"], pytest.approx(stage["start"] - zero), pytest.approx(stage["end"] - zero))
        for one in records
        if isinstance(one, CycleRecord)
        for name, stage in sorted(one.stages.items())
    ]
    assert sorted((b["cycle"], b["stage"], b["shard"], b["start"], b["end"]) for b in page.data["bars"]) == stages
    lost = [one for one in records if isinstance(one, AgentRecord) and one.event == "lost"]
    assert [(x["agent"], x["incarnation"], x["seconds"]) for x in page.data["losses"]] == [
        (one.index, one.incarnation, pytest.approx(one.t - zero)) for one in lost
    ]
    assert page.data["losses"][0]["replaced_after_s"] > 0


def test_everything_in_the_run_folder_is_its_owners_alone(run_dir: Path) -> None:
    everything = [run_dir, *run_dir.rglob("*")]
    assert run_dir / "backups" in everything
    assert [path for path in everything if path.stat().st_mode & 0o077] == []


def test_the_saved_model_is_the_one_that_was_evaluated_last(run_dir: Path) -> None:
    import torch

    state = {name: torch.from_numpy(value) for name, value in load_file(run_dir / "model.safetensors").items()}
    model = models.create("digits_convnet")
    model.load_state_dict(state)
    model.eval()
    images, labels = data.load("digits", "test").tensors
    with torch.inference_mode():
        error = (model(images).argmax(dim=1) != labels).float().mean().item()
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    assert error == pytest.approx(summary["final_error"], abs=1e-9)


@pytest.mark.parametrize("method", ["single", "sync"])
def test_the_other_methods_go_through_the_same_door(tmp_path: Path, method: str) -> None:
    process = train(tmp_path / "run", f"method.name={method}", "objectives.target_error=0.1", "objectives.max_time=60s")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert (summary["method"], summary["status"]) == (method, "reached")
    assert summary["num_agents"] == (1 if method == "single" else 4)
    assert living(process, tmp_path / "run") == []


@pytest.mark.quiet
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_within_ten_seconds_with_the_model_saved(tmp_path: Path, signum: int, code: int) -> None:
    process = train(tmp_path / "run", "objectives.target_error=0", json_out=False)
    wait_for(tmp_path / "run", "cycle", 5, process)
    sent = time.monotonic()
    os.kill(process.pid, signum)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 10
    assert process.returncode == code
    assert err.strip().splitlines()[-1] == f"mpca: {signal.Signals(signum).name}"
    assert (tmp_path / "run" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))["status"] == "interrupted"
    assert living(process, tmp_path / "run") == []
    assert not (tmp_path / "run" / "spark").exists(), "Spark's files are gone"


def test_a_signal_during_the_start_ends_it_too(tmp_path: Path) -> None:
    process = train(tmp_path / "run")
    wait_until(lambda: (tmp_path / "run" / "spark" / "driver.log").exists(), "Spark is starting")
    sent = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - sent < 10
    assert process.returncode == 130
    assert living(process, tmp_path / "run") == []
    run = tmp_path / "run"
    if run.exists():  # it had just begun
        assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"
        assert not (run / "spark").exists()
