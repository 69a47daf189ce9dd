"""The progress line on a stream that goes away: what would be shown is lost, and nothing else."""

from __future__ import annotations

import io
import os
import pty
from dataclasses import replace

import pytest

from mpca.driver.status import RunStatus
from mpca.report import ProgressLine
from mpca.report.progress import status_line


def show(progress: ProgressLine) -> None:
    progress.say("run folder runs/a")
    for evaluations in range(3):
        progress.update(RunStatus(seconds=1.0, cycle=evaluations, evaluations=evaluations, agents_alive=1, agents_wanted=1))
        progress.output(0, "a line")


def test_a_log_has_a_line_for_each() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        show(progress)
    assert stream.getvalue().splitlines()[:3] == ["run folder runs/a", "cycle 0 | 1/1 agents | 1s", "[agent 0] a line"]


def test_a_log_has_a_line_whenever_the_reason_of_a_stage_changes() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        for reason in ("", "", "agent 1 at work", "agent 1 at work", "agent 1 still at work"):
            progress.update(RunStatus(seconds=1.0, state="stopping", reason=reason))
    heads = [line.partition(" | ")[0] for line in stream.getvalue().splitlines()]
    assert heads == ["stopping", "stopping (agent 1 at work)", "stopping (agent 1 still at work)"]


def test_a_pipe_without_a_reader() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    with ProgressLine(stream) as progress:
        show(progress)
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_terminal_that_vanishes_in_the_middle() -> None:
    master, slave = pty.openpty()
    stream = os.fdopen(slave, "w")
    with ProgressLine(stream) as progress:
        show(progress)
        os.close(master)
        show(progress)
    with pytest.raises(OSError, match="Input/output"):
        stream.close()


def test_a_stream_that_was_closed() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        stream.close()
        show(progress)


def test_a_letter_that_the_stream_lacks() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with ProgressLine(stream) as progress:
        progress.output(0, "\u03c4")


@pytest.mark.parametrize(
    ("images_per_s", "updates_per_s", "evaluations", "says"),
    [
        (2982.4, 93.2, 1, ["2,982 images/s"]),
        (2982.4, 93.2, 0, ["2,982 images/s", "93 updates/s"]),
        (None, 1200.4, 1, ["1,200 updates/s"]),
        (None, 0.25, 0, ["0.25 updates/s"]),
        (None, None, 0, []),
    ],
)
def test_the_rate_is_of_what_was_counted_and_of_steps_while_nothing_is_evaluated(
    images_per_s: float | None, updates_per_s: float | None, evaluations: int, says: list[str]
) -> None:
    rates = {"images_per_s": images_per_s, "updates_per_s": updates_per_s, "evaluations": evaluations}
    assert status_line(RunStatus(seconds=1.0, agents_alive=1, agents_wanted=1, **rates)).split(" | ")[1:-2] == says


def test_what_agents_ask_for_by_themselves_is_counted_as_exchanges() -> None:
    assert status_line(RunStatus(seconds=1.0, cycle=7, counts="exchange")).startswith("exchange 7 | ")


def test_a_log_of_a_run_without_evaluations_has_a_line_every_ten_seconds() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        for n in range(100):
            progress.update(
                RunStatus(
                    seconds=n / 2, cycle=n, logged=("loss", 2.0 - n / 100), updates_per_s=31.0, agents_alive=2, agents_wanted=2
                )
            )
        progress.update(RunStatus(seconds=49.5, cycle=99, evaluations=1, agents_alive=2, agents_wanted=2))
        progress.update(RunStatus(seconds=90.0, cycle=180, evaluations=1, agents_alive=2, agents_wanted=2))
    assert stream.getvalue().splitlines() == [
        "cycle 0 | loss 2 | 31 updates/s | 2/2 agents | 0ms",
        "cycle 20 | loss 1.8 | 31 updates/s | 2/2 agents | 10s",
        "cycle 40 | loss 1.6 | 31 updates/s | 2/2 agents | 20s",
        "cycle 60 | loss 1.4 | 31 updates/s | 2/2 agents | 30s",
        "cycle 80 | loss 1.2 | 31 updates/s | 2/2 agents | 40s",
        "cycle 99 | 2/2 agents | 49.5s",
    ]


def test_numbers_of_an_evaluation_stand_beside_their_targets() -> None:
    evaluated = [("accuracy", 0.95123), ("acc", 2.0)]
    status = RunStatus(seconds=1.0, evaluated=evaluated, targets=["accuracy >= 0.97"], logged=("loss", 1 / 3))
    assert status_line(status).split(" | ")[1:4] == ["accuracy 0.9512 (target >= 0.97)", "acc 2", "loss 0.3333"]
    status = replace(status, logged=("acc", 3.0))
    assert status_line(status).split(" | ")[2:4] == ["acc 2", "agents' acc 3"]


def test_a_target_of_a_name_that_begins_with_another_is_its_own() -> None:
    evaluated = [("acc", 0.95), ("acc top5", 0.99)]
    status = RunStatus(seconds=1.0, evaluated=evaluated, targets=["acc top5 >= 0.9"])
    assert status_line(status).split(" | ")[1:3] == ["acc 0.95", "acc top5 0.99 (target >= 0.9)"]
