"""A process is told apart from all others: by number, start, pid namespace and start of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from mpca.storage import Process


def test_this_process_lives_and_survives_its_text() -> None:
    here = Process.here()
    assert here.lives() is True
    assert Process.from_json(json.loads(json.dumps(here.to_json()))) == here


def test_one_that_has_ended_does_not_live() -> None:
    program = "import json; from mpca.storage import Process; print(json.dumps(Process.here().to_json()))"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert Process.from_json(json.loads(said)).lives() is False


def test_a_number_that_is_used_again_is_another_process() -> None:
    here = Process.here()
    assert replace(here, start=here.start - 1).lives() is False


@pytest.mark.parametrize("change", [{"boot": "another"}, {"namespace": "pid:[1]"}])
def test_elsewhere_is_not_seen(change: dict[str, str]) -> None:
    assert replace(Process.here(), **change).lives() is None
