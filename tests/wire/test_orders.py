"""Orders and answers have the bytes that the Java side reads and writes: `tests/golden/wire/orders.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack

from mpca.wire.orders import DEADLINE, DIED, FORGOTTEN, NO_SUCH_INCARNATION, Answer, Frozen, LateCode


def golden(name: str) -> Any:
    text = (Path(__file__).parents[1] / "golden" / "wire" / "orders.json").read_text(encoding="utf-8")
    return next(one for one in json.loads(text) if one["name"] == name)


def test_the_golden_answer_is_read() -> None:
    answer = Answer.unpack(bytes.fromhex(golden("answer")["bytes"]))
    assert (answer.executor, answer.host, answer.weight) == ("2", "node-2", 120.0)
    assert answer.frozen == [Frozen(3, 0, 120, 3735928559, True, 0.375, 86400.25, 86400.5)]
    assert [late.code for late in answer.late.values()] == list(LateCode)
    assert list(answer.late.values())[:4] == [NO_SUCH_INCARNATION, DEADLINE, DIED, FORGOTTEN]


def test_the_golden_orders_are_maps_of_their_fields() -> None:
    for name in ("empty", "full"):
        one = golden(name)
        assert msgpack.unpackb(bytes.fromhex(one["bytes"]), raw=False) == one["fields"]
