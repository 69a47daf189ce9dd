from __future__ import annotations

import dataclasses
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpca.errors import LocalProtocolError, RemoteProtocolError
from mpca.wire.codec import MAX_FRAME_BYTES, MAX_NESTING, FrameBuffer, FrameReader, decode, encode
from mpca.wire.messages import (
    CODES,
    Begin,
    Cut,
    Exchange,
    Failed,
    Fetch,
    Fetched,
    Files,
    Finished,
    Hello,
    Install,
    Installed,
    Progress,
    ReadersChanged,
    SaveState,
    Snapshot,
    SnapshotRequest,
    Start,
    StateSaved,
    StateTaken,
    Stop,
)

START = Start(
    3, 1, 8, "run-1", 7, 3, False, {"name": "mpca", "phases": 3}, "train", b"\x00pickle", "cuda:0", 2, {"a": {"b": 1}}
)
HELLO = Hello(
    3, 1, 4711, "3.11.7", "2.15.0", "0.1.0", "ab" * 32, [["w", [2, 3], "parameter", 0], ["m", [], "buffer", 6]],
    {"n": ["int64", [], 8]}, {"alias": "w"}, [0, 4, 7, 11], 6, 5, 16384, [0, 4096, 8192, 12288],
)  # fmt: skip
MESSAGES = [
    START, Begin(), SnapshotRequest(-3, 2), Install(1, 41, "install", 0.025), Stop("target reached"), HELLO,
    Snapshot(41, 1, 12, 1.5, 2.25),
    Installed(1, 41, "replace", 1.0, 1.125), Progress(5, 160, 2.5, 0.25, {"loss": 0.5}), Finished(b"\x80"),
    Failed("ValueError: no", "Traceback ..."), ReadersChanged(2, {"agents": 1, "since": [[0, 3]]}), Files(7, 8, 9, 10, 4096),
    Fetch(1, "hdfs://h/a", 0, 4096), Fetched(1, 100, "", ""), Exchange(1, 2, 12, 41, 1.5, 2.25), Cut(6),
    SaveState(4), StateSaved(4, 17, 1 << 33, "ab" * 32, ""), StateTaken(4),
]  # fmt: skip


def body(code: int, fields: object) -> bytes:
    return msgpack.packb([code, fields])


def fields_of(message: object) -> dict[str, object]:
    return {one.name: getattr(message, one.name) for one in dataclasses.fields(message)}  # type: ignore[arg-type]


def test_there_is_an_example_of_every_message() -> None:
    assert {type(message) for message in MESSAGES} == set(CODES.values())


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_survives_the_way(message) -> None:
    frame = encode(message)
    assert struct.unpack(">I", frame[:4]) == (len(frame) - 4,)
    assert decode(frame[4:]) == message


@given(st.lists(st.integers(1, 400), max_size=30))
def test_frames_survive_any_cut(cuts: list[int]) -> None:
    stream, reader, got = b"".join(map(encode, MESSAGES)), FrameReader(), []
    position = 0
    for length in [*cuts, len(stream)]:
        got += reader.feed(stream[position : position + length])
        position += length
    assert got == MESSAGES
    assert not reader.partial


def test_torn_frame_is_partial() -> None:
    reader = FrameReader()
    assert reader.feed(encode(Begin())[:-1]) == []
    assert reader.partial


def test_fields_with_defaults_may_be_left_out() -> None:
    fields = fields_of(START)
    for name in ("device", "threads", "conf"):
        del fields[name]
    assert decode(body(1, fields)) == dataclasses.replace(START, device="cpu", threads=1, conf={})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xc1", "not msgpack"),
        (b"", "not msgpack"),
        (body(2, {}) + b"\x00", "not msgpack"),
        (msgpack.packb({"code": 2}), r"not \[code, fields\]"),
        (msgpack.packb([2]), r"not \[code, fields\]"),
        (msgpack.packb([True, {}]), r"not \[code, fields\]"),
        (body(99, {}), "unknown message code: code=99"),
        (body(3, {"cycle": 1}), "SnapshotRequest lacks a field: field=shard"),
        (body(3, {"cycle": 1, "shard": 0, "colour": 1}), "SnapshotRequest has an unknown field: field=colour"),
        (body(3, {"cycle": "1", "shard": 0}), "SnapshotRequest has a wrong field: field=cycle, wants=int"),
        (body(3, {"cycle": True, "shard": 0}), "field=cycle"),
        (body(5, {"reason": b"bytes"}), "Stop has a wrong field: field=reason"),
        (body(20, {**fields_of(MESSAGES[8]), "metrics": {"loss": "high"}}), "field=metrics"),
        (body(20, {**fields_of(MESSAGES[8]), "bad": [["record", 1]]}), "field=bad"),
        (body(17, {**fields_of(HELLO), "bounds": [0, 1.5]}), "field=bounds"),
        (body(17, {**fields_of(HELLO), "tied": {"alias": 1}}), "field=tied"),
        (body(17, {**fields_of(HELLO), "layout": ["w"]}), "field=layout"),
    ],
)
def test_illegal_bytes_are_refused_with_the_field(data: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode(data)


def test_nesting_is_limited() -> None:
    value: object = 1
    for _ in range(MAX_NESTING):
        value = {"deeper": value}
    decode(body(1, {**fields_of(START), "conf": value}))
    with pytest.raises(RemoteProtocolError, match="field=conf"):
        decode(body(1, {**fields_of(START), "conf": {"deeper": value}}))


def test_endless_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(RemoteProtocolError):
        decode(b"\x91" * 100_000 + b"\x00")


def test_oversized_frame_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(RemoteProtocolError, match=f"frame too large: bytes={MAX_FRAME_BYTES + 1}"):
        FrameBuffer().feed(struct.pack(">I", MAX_FRAME_BYTES + 1))


def test_message_over_the_limit_is_our_own_bug() -> None:
    with pytest.raises(LocalProtocolError, match="Finished too large"):
        encode(Finished(bytes(MAX_FRAME_BYTES)))


def test_what_is_no_msgpack_value_is_our_own_bug() -> None:
    with pytest.raises(LocalProtocolError, match="Start cannot be packed"):
        encode(dataclasses.replace(START, conf={"path": object()}))
