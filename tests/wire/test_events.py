"""Python's half of the golden events (`tests/golden/make_wire.py`): what the driver reads in the bytes that the JVM makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgpack
import pytest

from mpca.driver.events import (
    KILLED_BY,
    Acknowledged,
    AgentBack,
    AgentDied,
    AgentFailedEvent,
    AgentFinished,
    AgentHello,
    AgentProgress,
    AgentSaved,
    AgentsFound,
    ClusterEvent,
    ExchangeArrived,
    ExecutorDamages,
    ExecutorLost,
    ExecutorReady,
    HoldEnded,
    OrderDone,
    OrderFailed,
    Output,
)
from mpca.errors import RemoteProtocolError
from mpca.spark.jvm.events import unpack
from mpca.wire.messages import RETURNED, Hello
from mpca.wire.orders import Answer, Frozen, Late, LateCode, Rediscovered

WIRE = Path(__file__).parents[1] / "golden" / "wire"
GOLDEN = json.loads((WIRE / "events.json").read_text(encoding="utf-8"))
(HELLO,) = (
    Hello(**one["fields"]) for one in json.loads((WIRE / "messages.json").read_text(encoding="utf-8")) if one["name"] == "Hello"
)
LATE = {
    4: Late(LateCode.NO_SUCH_INCARNATION, "no such incarnation"),
    5: Late(LateCode.DEADLINE, "no answer before the deadline"),
    6: Late(LateCode.DIED, "ended before it handed over"),
    7: Late(LateCode.FORGOTTEN, "its cycle was forgotten"),
    8: Late(LateCode.OLDER_DRIVER, "an older attempt of the driver"),
    9: Late(LateCode.NO_BASE, "its executor waits for the base of the codec"),
}
FROZEN = Frozen(3, 0, 120, 3735928559, True, 0.375, 86400.25, 86400.5)
BIG = (1 << 33) + 1
BAD = [["train-000000.tar:n01/é.JPEG at 512", "wrong checksum"]]
#: In the order of the file.
EVENTS: list[ClusterEvent] = [
    ExecutorReady("2", "node-2", 4),
    ExecutorLost("2", f"Command exited with code 137: {KILLED_BY}"),
    AgentHello("2", "node-2", HELLO),
    AgentDied("2", 3, 1, 4194303, 139, "é\nSegmentation fault"),
    AgentFailedEvent("2", "node-2", 3, 1, "ValueError: x", "Traceback (most recent call last):\n  é"),
    AgentFinished("2", 3, 1, b"\x80\x05N."),
    AgentProgress(3, 1, 65536, 1 << 32, 12.5, 0.0078125, {"loss": 0.25}, [4, 70000, 5], RETURNED, BAD, 70000, BIG, 70000),
    AgentBack("2", 3, 1),
    Output(3, 1, ["Fehler ≤ 2,5 %", ""]),
    Acknowledged(70000, "2", 3, 1, 86400.25, 86400.5, BIG, 104),
    OrderDone(70001, [Answer("2", "node-2", [FROZEN], LATE, 120.0, 86400.0, 86401.5, 54, 4294967350)], 86400.25, 86401.5, BIG),
    OrderFailed(70001, "2", "a wrong checksum", ["0", "2"], damages=True),
    OrderFailed(70002, None, "cancelled", [], damages=False),
    ExecutorDamages("2", "a piece of a broadcast"),
    ExchangeArrived("2", 3, 1, 70000, 2, 130, BIG, 104, 3735928559, True, 86400.25, 86400.5, 86401.5),
    AgentSaved("2", 3, 1, 70000, BIG, "9f" * 32, 12.5, ""),
    AgentSaved("2", 3, 1, 70001, 0, "", 0.0, "TypeError: cannot pickle é"),
    HoldEnded(3, 1, "executor 2 is gone"),
    AgentsFound("2", [Rediscovered(3, 1, 4194303)]),
]


@pytest.mark.parametrize(("row", "event"), list(zip(GOLDEN, EVENTS, strict=True)), ids=[row["name"] for row in GOLDEN])
def test_event_is_read_from_its_bytes(row, event: ClusterEvent) -> None:
    assert row["name"] == type(event).__name__
    assert unpack(bytes.fromhex(row["bytes"])) == event


def test_every_event_of_a_cluster_has_golden_bytes() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(ClusterEvent))


@pytest.mark.parametrize("fields", [{"kind": "Rumour"}, {"kind": "AgentBack", "agent": 3}])
def test_an_event_of_another_version_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError, match="unknown event from the JVM: kind="):
        unpack(msgpack.packb(fields))
