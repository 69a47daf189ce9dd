"""Orders and answers have the bytes that the Java side reads and writes: `tests/golden/wire/orders.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack

from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import (
    DEADLINE,
    DIED,
    EQUAL,
    FORGOTTEN,
    NO_SUCH_INCARNATION,
    Answer,
    BaseInFull,
    Carried,
    Coded,
    Cut,
    Download,
    Freeze,
    Frozen,
    LateCode,
    Order,
    Part,
    ReadersOrder,
    Reduce,
    Save,
    StopAgent,
)


def golden(name: str) -> Any:
    text = (Path(__file__).parents[1] / "golden" / "wire" / "orders.json").read_text(encoding="utf-8")
    return next(one for one in json.loads(text) if one["name"] == name)


def test_the_golden_answer_is_read() -> None:
    answer = Answer.unpack(bytes.fromhex(golden("answer")["bytes"]))
    assert (answer.executor, answer.host, answer.weight) == ("2", "node-2", 120.0)
    assert answer.frozen == [Frozen(3, 0, 120, 3735928559, True, 0.375, 86400.25, 86400.5)]
    assert [late.code for late in answer.late.values()] == list(LateCode)
    assert list(answer.late.values())[:4] == [NO_SUCH_INCARNATION, DEADLINE, DIED, FORGOTTEN]


def test_the_golden_orders_are_written() -> None:
    first, second = AgentRef("0", 0, 1), AgentRef("2", 3, 0)
    readers = {"agents": 4, "since": [[0, 4], [3, 7]], "losses": [[3, 5, 70000, 6]], "before": []}
    base = Coded("int8", 12, 3735928559, 25, 104)
    full = Order(
        order=70001,
        run="digits",
        term=2,
        cycle=41,
        deadline=86430.5,
        executors=["0", "2"],
        description="cycle 41: reduce shard 2",
        begin=[first, second],
        stop=[StopAgent(*second, "objective reached")],
        forget_cycle=39,
        forget_broadcasts=[12, 1 << 35],
        downloads=[Download(13, 0, 13, "install", 104, [first, second], 0.025, base, 3405691582)],
        reduce=Reduce(41, 2, 108, [Part("0", 131.0), Part("2", 120.0)], Coded("int8", 11, 7, 27, 108), 38),
        freeze=Freeze(42, 0, [first, second], coded=base, rests="carried"),
        readers=ReadersOrder(3, readers, [first]),
        cut=Cut(6, [first, second]),
        save=Save(70000, [first, second], ["hdfs://cluster/runs/é/0.state", "hdfs://cluster/runs/é/3.state"]),
        carried=[Carried("0", 39), Carried("2", 36)],
        bases=[BaseInFull(1, 12, 3735928559, 104)],
    )
    assert full.pack().hex() == golden("full")["bytes"]
    assert Order(1, "digits", 0, -1, 86430.5, ["0", "2"]).pack().hex() == golden("empty")["bytes"]


def test_the_golden_orders_are_maps_of_their_fields() -> None:
    for name in ("empty", "full"):
        one = golden(name)
        assert msgpack.unpackb(bytes.fromhex(one["bytes"]), raw=False) == one["fields"]


def test_a_snapshot_counts_by_its_updates_or_as_any_other_that_has_some() -> None:
    assert [Freeze(0, 0, []).weight(tau) for tau in (0, 1, 120)] == [0.0, 1.0, 120.0]
    assert [Freeze(0, 0, [], EQUAL).weight(tau) for tau in (0, 1, 120)] == [0.0, 1.0, 1.0]
