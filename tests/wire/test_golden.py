"""Python's half of the golden bytes; JUnit reads the same files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpca.wire.codec import decode, encode
from mpca.wire.slots import SlotHeader
from tests.wire.test_codec import MESSAGES

FOLDER = Path(__file__).parents[1] / "golden" / "wire"
FRAMES = json.loads((FOLDER / "messages.json").read_text())
SLOTS = json.loads((FOLDER / "slots.json").read_text())


@pytest.mark.parametrize(("row", "message"), zip(FRAMES, MESSAGES, strict=True), ids=[row["message"] for row in FRAMES])
def test_message_has_its_bytes(row, message) -> None:
    frame = bytes.fromhex(row["frame"])
    assert type(message).__name__ == row["message"]
    assert decode(frame[4:]) == message
    assert encode(message) == frame


@pytest.mark.parametrize("row", SLOTS, ids=[row["slot"] for row in SLOTS])
def test_slot_header_has_its_bytes(row) -> None:
    header = SlotHeader(*(int(row[name]) for name in ("shard", "seq", "version", "updates", "length", "mode")))
    assert header.pack().hex() == row["header"]
    assert SlotHeader.unpack(bytes.fromhex(row["header"])) == header


@pytest.mark.parametrize("at", [0, 4])
def test_foreign_magic_or_layout_is_refused(at: int) -> None:
    data = bytearray.fromhex(SLOTS[0]["header"])
    data[at] ^= 1
    with pytest.raises(ValueError, match="not a slot of layout 1"):
        SlotHeader.unpack(bytes(data))
