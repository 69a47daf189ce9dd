"""`make soak`: the order of faults, and what counts as growth. The soak itself needs docker, and is run by hand."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.soak.faults import KINDS, drawn
from tests.docker.soak.run import Met, Report
from tests.docker.soak.slopes import ALLOWED, LEAST_SAMPLES, WARM_UP_S, Sample, criterion, slopes, table

ROOT = Path(__file__).resolve().parent.parent


def line(process: str, per_hour: float, *, minutes: int = 40, first: float = 100.0, noise: float = 0.0) -> list[Sample]:
    chance = random.Random(process)
    return [
        Sample(60.0 * at, "agent", process, "memory_mib", first + per_hour * at / 60 + chance.gauss(0, noise))
        for at in range(minutes)
    ]


def test_all_kinds_come_before_one_comes_again_and_a_seed_repeats_them() -> None:
    one, other, again = (list(itertools.islice(drawn(seed), 3 * len(KINDS))) for seed in (1, 2, 1))
    assert one == again != other
    for start in range(0, len(one), len(KINDS)):
        assert {kind.name for kind, _ in one[start : start + len(KINDS)]} == {kind.name for kind in KINDS}
    for kind, lasts_s in one:
        assert kind.lasts_s[0] <= lasts_s <= kind.lasts_s[1]
    assert len({kind.name for kind in KINDS}) == len(KINDS) == 15


@pytest.mark.parametrize(
    ("per_hour", "noise", "grows"), [(0.0, 5.0, False), (10.0, 0.5, False), (100.0, 1.0, True), (-100.0, 1.0, False)]
)
def test_only_what_grows_beyond_chance_and_what_is_allowed_counts(per_hour: float, noise: float, grows: bool) -> None:
    (found,) = slopes(line("1", per_hour, noise=noise))
    assert found.grows == grows
    assert found.an_hour == pytest.approx(per_hour, abs=12 * noise + 1e-9)


def test_noise_with_a_large_slope_does_not_count() -> None:
    (found,) = slopes(line("1", 60.0, noise=60.0))
    assert found.an_hour is not None
    assert found.t is not None
    assert found.t < 4
    assert not found.grows


def test_processes_that_are_killed_have_lines_of_their_own() -> None:
    """The second one has twice the memory, and neither grows."""
    later = [Sample(2400 + one.at, one.kind, "2", one.figure, one.value + 100) for one in line("1", 0.0)]
    (found,) = slopes([*line("1", 0.0), *later])
    assert (found.processes, found.an_hour, found.grows) == (2, 0.0, False)
    (found,) = slopes(
        [*line("1", 50.0), *[Sample(2400 + one.at, "agent", "2", one.figure, one.value) for one in line("1", 50.0)]]
    )
    assert found.an_hour == pytest.approx(50.0)
    assert found.t is None or found.t > 1e6, "all points lie on their lines"
    assert found.grows


def test_the_first_minutes_of_a_process_are_left_out() -> None:
    jumped = [Sample(one.at, one.kind, one.process, one.figure, 0.0) if one.at < WARM_UP_S else one for one in line("1", 0.0)]
    (found,) = slopes(jumped)
    assert (found.an_hour, found.samples) == (0.0, 40 - WARM_UP_S / 60)


def test_a_short_soak_judges_nothing() -> None:
    (found,) = slopes(line("1", 1000.0, minutes=30))
    assert (found.an_hour, found.grows) == (pytest.approx(1000.0), False)
    (found,) = slopes(line("1", 1000.0, minutes=31))
    assert found.grows


def test_too_few_samples_say_nothing() -> None:
    (found,) = slopes(line("1", 1000.0, minutes=LEAST_SAMPLES - 1 + round(WARM_UP_S / 60)))
    assert (found.samples, found.an_hour, found.grows) == (LEAST_SAMPLES - 1, None, False)
    assert "too few" in table([found])[1]


def test_a_report_is_bad_when_the_run_failed_when_agents_stay_away_and_when_something_grows() -> None:
    assert not Report(1, 1.0).bad
    assert Report(1, 1.0, failed="x").bad
    assert Report(1, 1.0, faults=[Met("kill agent", "worker1", 120.0, failed="a cycle of all agents: not within 480 s")]).bad
    growing = Report(1, 1.0, samples=line("1", 200.0))
    assert growing.bad
    assert any(one.endswith("  GROWS") for one in growing.lines())
    assert growing.to_json()["slopes"][0]["grows"]
    assert all(f"{figure} {most:g}" in criterion() for figure, most in ALLOWED.items())


@pytest.mark.parametrize("words", [[], ["much"], ["0.05"], ["2", "x"], ["-1"], ["nan"]])
def test_bad_words_start_nothing(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.docker.soak", *words],
        cwd=ROOT,
        env={"PYTHONPATH": "docker", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "hours are a number" in done.stderr or "must be from 0.1 to 1000" in done.stderr
    assert done.stdout == ""
