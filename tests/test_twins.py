"""`make twins`: what updates a joint model is made of, and when twins are alike. The runs themselves are started by hand."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.twins.ledger import Ledger
from tests.spark.twins.run import KINDS, Pair, Twin, drawn, lines, outside

ROOT = Path(__file__).resolve().parent.parent


def run(**fields: object) -> str:
    return json.dumps({"kind": "run", "t": 0.0, "shards": 2, **fields})


def cycle(number: int, **tau: int) -> str:
    parts = {agent[1:]: {"incarnation": 0, "tau": one, "crc": 0} for agent, one in tau.items()}
    return json.dumps({"kind": "cycle", "t": 0.0, "cycle": number, "contributors": parts})


def started(index: int, event: str = "started", pid: int = 1) -> str:
    return json.dumps({"kind": "agent", "t": 0.0, "event": event, "index": index, "pid": pid})


def test_updates_are_the_mean_over_shards() -> None:
    ledger = Ledger(2)
    ledger.take([run(), started(0), started(1), cycle(0, a0=5, a1=3), cycle(1, a0=6, a1=4)])
    assert (ledger.updates, ledger.cycles, ledger.full) == (9, 2, 2)
    ledger.take([json.dumps({"kind": "begin", "t": 0.0, "agents": 2, "shards": 3})])
    assert ledger.updates == 6


def test_what_a_resume_goes_back_behind_is_not_in_the_model() -> None:
    ledger = Ledger(1)
    ledger.take([run(), started(0), *(cycle(number, a0=2) for number in range(10))])
    assert (ledger.updates, ledger.attempts) == (10, 1)
    ledger.take([run()])
    assert (ledger.attempts, ledger.full, ledger.agents) == (2, 10, {})
    ledger.take([cycle(4, a0=2)])
    assert (ledger.updates, ledger.cycles, ledger.full) == (5, 5, 11)


def test_a_cycle_without_one_is_not_full() -> None:
    ledger = Ledger(2)
    ledger.take([run(), started(0), started(1), cycle(0, a0=1)])
    assert ledger.full == 0
    ledger.take([started(1, "lost"), started(1, "replaced", 7), cycle(1, a0=1, a1=1)])
    assert ledger.full == 1
    assert ledger.agents[1]["pid"] == 7


def twin(seed: int, loss: float, error: float = 0.05) -> Twin:
    return Twin(seed, {}, 1, 100, 1000, 60.0, error, loss)


def test_twins_are_alike_if_their_means_are_no_further_apart_than_runs_of_a_kind() -> None:
    alike = [Pair(twin(seed, 0.1 * seed), twin(seed, 0.1 * seed + 0.19)) for seed in (1, 2, 3)]
    assert outside(alike) == []
    apart = [Pair(twin(seed, 0.1 * seed), twin(seed, 0.1 * seed + 0.21)) for seed in (1, 2, 3)]
    (found,) = outside(apart)
    assert found.startswith("loss: means are 0.21 apart, and runs of one kind at most 0.2")
    assert found == lines(apart)[-1]
    assert outside(apart[:1]) == []
    better = [Pair(twin(seed, 0.1, error=0.1), twin(seed, 0.1, error=0.05)) for seed in (1, 2, 3)]
    assert len(outside(better)) == 1, "a run that has counted too few updates looks better"


def test_all_kinds_of_faults_come_before_one_comes_again() -> None:
    chosen = list(itertools.islice(drawn(random.Random(1)), 2 * len(KINDS)))
    assert set(chosen[: len(KINDS)]) == set(chosen[len(KINDS) :]) == set(KINDS)
    assert len(KINDS) == 6


@pytest.mark.parametrize("words", [[], ["much"], ["0.5"], ["20", "x"], ["-1"], ["nan"]])
def test_bad_words_start_nothing(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.twins", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "minutes are a number" in done.stderr or "must be from 1 to 10000" in done.stderr
    assert done.stdout == ""
