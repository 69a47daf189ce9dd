"""Five scripted stories, each in step (tau and bytes follow from the script) and in three phases (who contributes does).

The same files are run on real executors by `tests/spark`. The ledgers in them were looked through by hand, and are computed
another way by `tests/algorithm/test_scenarios.py` and `test_replayed.py` beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sim.support import play
from tests.support.script import Script, integer_ledger

FILES = sorted((Path(__file__).parents[1] / "golden" / "scenarios").glob("*.json"))


def ledger(script: Script, seed: int) -> list[dict[str, Any]]:
    return integer_ledger(play(script, seed, "linear").commits, script.cycles, script.exact)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_ledger_is_that_of_the_script_whatever_the_seed(path: Path) -> None:
    script = Script.read(path)
    for seed in range(5):
        assert ledger(script, seed) == script.ledger, f"seed {seed}"


def test_ten_files() -> None:
    assert len(FILES) == 10


if __name__ == "__main__":  # writes the ledgers anew, to be looked through
    for file in FILES:
        values = json.loads(file.read_text())
        values["ledger"] = ledger(Script.read(file), 0)
        lines = []
        for key, value in values.items():
            rows = key in ("acts", "ledger") and value
            text = "[\n" + ",\n".join(f"    {json.dumps(row)}" for row in value) + "\n  ]" if rows else json.dumps(value)
            lines.append(f"  {json.dumps(key)}: {text}")
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
