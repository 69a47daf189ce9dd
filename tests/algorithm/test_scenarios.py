"""The ledgers of the scenarios in step came from the simulator; eq. 9 and plain SGD in fractions arrive at the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import exact

FILES = sorted((Path(__file__).parents[1] / "golden" / "scenarios").glob("*_in_step.json"))


def read(path: Path) -> dict[str, Any]:
    story: dict[str, Any] = json.loads(path.read_text())
    return story


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_contribution_in_step_is_that_of_the_equations_to_the_bit(path: Path) -> None:
    """From who contributes, which incarnation, and who was joining, all else follows: every tau and every CRC."""
    story = read(path)
    assert story["exact"]
    assert exact.in_step(story) == [line["contributors"] for line in story["ledger"]]


@pytest.mark.parametrize("name", ["agent_killed_after_hand_over_in_step", "joiner_in_step"])
def test_updates_that_a_mean_replaced_would_be_seen_as_weight(name: str) -> None:
    story = read(FILES[0].with_name(f"{name}.json"))
    right = [line["contributors"] for line in story["ledger"]]
    wrong = exact.in_step(story, thrown_away_count=True)
    first = next(n for n, line in enumerate(right) if any(one["incarnation"] for one in line.values()))
    assert wrong[:first] == right[:first]
    assert sorted(one["tau"] for one in wrong[first].values()) == [3, 3, 6]
    assert all(wrong[first + 1][agent]["crc"] != one["crc"] for agent, one in right[first + 1].items())


def test_five_files() -> None:
    assert len(FILES) == 5


def test_the_fractions_know_nothing_of_mpca() -> None:
    code = (
        "import sys; from tests.support import exact; print({name.split('.')[0] for name in sys.modules} & {'mpca', 'numpy'})"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2], capture_output=True
    )
    assert said.stdout == b"set()\n"
