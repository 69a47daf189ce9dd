"""Python's half of the golden bytes (`tests/golden/make_wire.py`); JUnit reads the same files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from mpca.errors import RemoteProtocolError
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import CODES
from mpca.wire.slots import SlotHeader

FOLDER = Path(__file__).parents[1] / "golden" / "wire"


def golden(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def value(plain: Any) -> Any:
    """From the JSON form: bytes are ``{"hex": ...}``."""
    if isinstance(plain, dict):
        return bytes.fromhex(plain["hex"]) if plain.keys() == {"hex"} else {key: value(one) for key, one in plain.items()}
    return [value(one) for one in plain] if isinstance(plain, list) else plain


@pytest.mark.parametrize("row", golden("messages.json"), ids=lambda row: row["name"])
def test_message_has_its_bytes(row) -> None:
    frame = bytes.fromhex(row["frame"])
    reader = FrameReader()
    (message,) = reader.feed(frame)
    assert not reader.partial
    assert type(message).__name__ == row["name"]
    assert CODES[row["code"]] is type(message)
    assert dataclasses.asdict(message) == value(row["fields"])
    assert encode(message) == frame


def test_every_message_has_golden_bytes() -> None:
    assert {row["code"] for row in golden("messages.json")} == set(CODES)


@pytest.mark.parametrize("row", golden("bad_frames.json"), ids=lambda row: row["name"])
def test_bad_frame_is_refused_or_stays_partial(row) -> None:
    reader = FrameReader()
    try:
        assert reader.feed(bytes.fromhex(row["bytes"])) == [], row["why"]
    except RemoteProtocolError:
        return
    assert reader.partial, f"accepted: {row['why']}"


@pytest.mark.parametrize("row", golden("slots.json")["good"], ids=lambda row: row["bytes"][8:24])
def test_slot_header_has_its_bytes(row) -> None:
    header = SlotHeader(**row["fields"])
    assert header.pack().hex() == row["bytes"]
    assert SlotHeader.unpack(bytes.fromhex(row["bytes"])) == header


@pytest.mark.parametrize("row", golden("slots.json")["bad"], ids=lambda row: row["why"])
def test_foreign_slot_is_refused(row) -> None:
    with pytest.raises(ValueError, match="not a slot of layout 1"):
        SlotHeader.unpack(bytes.fromhex(row["bytes"]))
