"""Where a run's folder lies, and what a user is told, before anything is opened."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from mpca.api.launch import Job, Listeners, _Launch, launch, resolve

HOME = "hdfs://nn1:8020/user/ann"


def session(mode: str) -> MagicMock:
    """What of a Spark session tells where it comes from."""
    one = MagicMock()
    context = one.sparkContext
    context.applicationId = "application_7_0001"
    context.startTime = 1000
    settings = {"spark.master": "yarn", "spark.submit.deployMode": mode}
    context.getConf.return_value.get.side_effect = lambda key, default=None: settings.get(key, default)
    context._jsc.sc.return_value.applicationAttemptId.return_value.isDefined.return_value = False
    context._jvm.org.apache.hadoop.fs.FileSystem.get.return_value.getHomeDirectory.return_value.toString.return_value = HOME
    return one


@pytest.mark.parametrize(
    ("mode", "sets", "location"),
    [
        ("cluster", (), f"{HOME}/mpca/runs/night-application_7_0001"),
        ("cluster", ("run.dir=hdfs://nn1:8020/mine",), "hdfs://nn1:8020/mine"),
        ("client", (), "runs/night-"),
    ],
)
def test_in_a_container_a_run_that_is_given_no_folder_lies_on_hdfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, sets: tuple[str, ...], location: str
) -> None:
    """The container's own folders are gone with it, and the next attempt is another container."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        launching = _Launch(Job(resolve(None, ("run.name=night", *sets)), b"", session=session(mode)), Listeners(), stack)
        shown = str(launching._location.shown)
    assert shown.startswith(location)
    assert list(tmp_path.iterdir()) == []


def test_goals_that_nobody_looks_at_are_told_before_executors_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(_Launch, "_open_session", MagicMock(side_effect=InterruptedError))
    job = Job(resolve(None, ("objectives.target_error=0.1",)), b"", run_dir=str(tmp_path / "run"))
    with pytest.raises(InterruptedError):
        launch(job, on_stage=told.append)
    assert [line.partition(":")[0] for line in told] == [f"run folder {tmp_path / 'run'}", "warning"]
    assert "objectives.target_error = 0.1" in told[1]
