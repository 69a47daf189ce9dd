"""What train functions and people should not do, in runs on real executors: what it costs the run, and the sentence for it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from mpca import Distributor, Evaluate, MaxCycles
from mpca.records import read_records
from tests.spark.jobs import quadratic, refused
from tests.spark.test_engine_losing import check_model, check_survivors
from tests.support.fake_executor import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]


def test_a_flood_of_prints_a_fork_and_a_process_that_ends_itself(engine, capfd: pytest.CaptureFixture[str]) -> None:
    """One after the other, in one run; agent 2 is touched by none of it."""
    pids = {}

    def story(run):
        yield lambda: run.reducing(3)
        run.tell_agent(0, "flood 200000")
        run.tell_agent(1, "fork")
        yield lambda: run.fired(0, "flood") and run.fired(1, "fork")
        last = max(cycle for cycle, _ in run.contributed)
        yield lambda: run.takes_part(0, incarnation=0, after=last) and run.takes_part(1, incarnation=0, after=last)
        pids["exit"] = run.pid(1)
        run.tell_agent(1, "exit 3")
        yield lambda: run.takes_part(1, incarnation=1)
        run.end()

    told = engine(quadratic, story=story, obey=True)
    assert told.ended.exit_code == 0, told.ended.reason
    (lost,) = told.agents("lost")
    assert (lost.index, lost.incarnation, lost.pid) == (1, 0, pids["exit"])
    assert lost.reason.startswith("exit code 3: the process ended itself, without an exception (os._exit?)")
    said = capfd.readouterr().out
    assert "[agent 1] ValueError: the child's own mistake" in said
    assert " more lines, too many to show" in said
    assert said.count("[agent 0] line ") < 200_000, "a flood is cut before it reaches the driver"
    check_survivors(told, 0, 2)
    check_model(told)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("half precision", "a parameter has half precision: parameter=weight, "),
        ("small set", "fewer samples than agents: samples=2, agents=3; use a larger data set or fewer agents"),
    ],
)
def test_what_agents_refuse_fails_the_run_by_its_sentence(
    engine, how: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    told = engine(refused, how)
    assert told.ended.exit_code == 1
    assert f"raised mpca.errors.ConfigError: {says}" in told.ended.reason.splitlines()[0]
    assert told.cycles == []
    assert "saving the joint model" not in capfd.readouterr().out, "there is none yet"


def test_a_notebooks_interrupt_ends_the_cell_and_not_the_session(spark, tmp_path: Path) -> None:
    """A notebook sends SIGINT to its kernel's whole group, in which nothing else is: no JVM, agent or evaluator."""
    records = tmp_path / "run" / "records.jsonl"
    others = []

    def interrupt() -> None:
        try:
            wait_until(lambda: records.exists() and records.read_text().count('"kind": "cycle"') >= 5, "five cycles", 120)
        finally:
            children = psutil.Process().children(recursive=True)
            others.extend(one.cmdline() for one in children if os.getpgid(one.pid) == os.getpgrp())
            os.kill(os.getpid(), signal.SIGINT)

    def run(name: str, *goals: object) -> object:
        folder = tmp_path / f"{name}-files"
        folder.mkdir()
        evaluate = Evaluate(lambda state: {"error": 0.5}, every="200ms")
        distributor = Distributor(3, objectives=[evaluate, *goals], run_dir=tmp_path / name, spark=spark)
        return distributor.run(quadratic, str(folder))

    person = threading.Thread(target=interrupt)
    person.start()
    with pytest.raises(KeyboardInterrupt, match=f"the joint model is in {tmp_path / 'run'}"):
        run("run")
    person.join()
    assert others == []
    assert (tmp_path / "run" / "model.safetensors").is_file()
    end = read_records(records).records[-1]
    assert (end.status, end.reason) == ("interrupted", "SIGINT")
    assert run("next", MaxCycles(5)).status == "max_cycles", "the next cell trains in the same session"
