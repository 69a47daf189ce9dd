"""The simulator's relay follows the scripts that hold the Java one: `tests/golden/relay`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mpca.sim.relay import Instruction, Relay

SCRIPTS = sorted((Path(__file__).parents[1] / "golden" / "relay").glob("*.json"))


def apply(relay: Relay, event: dict[str, Any]) -> list[Instruction]:
    fields = dict(event)
    kind = fields.pop("kind")
    for name in ("now", "heard"):
        if f"{name}_ms" in fields:
            fields[name] = fields.pop(f"{name}_ms") / 1000
    if kind == "arrived":
        return [one for piece in fields["pieces"] for one in relay.arrived(piece, fields["now"])]
    return getattr(relay, kind)(**fields) or []


def as_json(instruction: Instruction) -> dict[str, Any]:
    name = re.sub("(?<!^)(?=[A-Z])", "_", type(instruction).__name__).lower()
    return {"do": name, **instruction._asdict()}


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_relay_follows_the_script(path: Path) -> None:
    script = json.loads(path.read_text())
    relay = Relay(script["owners"], script["me"], script["pieces"], script["present"])
    for number, step in enumerate(script["steps"]):
        done = [as_json(one) for one in apply(relay, step["event"])]
        assert done == step["expect"], f"step {number}: {step['event']}"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 15
