"""Frames: messages to bytes and back, with limits. Not for the order of messages: `session.py`.

A frame is a four-byte big-endian length and a body of that many bytes. The body of a control message is a msgpack array
``[code, {field: value}]``. Every field travels under its own name. A field with a default may be missing; an unknown field is
an error. Values are checked against the annotations of the message's dataclass, so that a wrong type is an error here, which
names the field, and not a surprise three calls later.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import msgpack

from mpca.errors import LocalProtocolError, RemoteProtocolError
from mpca.wire.messages import CODES, Message

__all__ = ["MAX_FRAME_BYTES", "MAX_NESTING", "FrameBuffer", "FrameReader", "decode", "encode", "frame"]

#: Parameters never travel in a frame. The largest frames are a shipped train function and its result.
MAX_FRAME_BYTES = 64 << 20
#: Deepest nesting of lists and maps in one field.
MAX_NESTING = 16

_LENGTH = struct.Struct(">I")
_CODE_OF = {cls: code for code, cls in CODES.items()}


def _nesting_fits(value: Any, left: int = MAX_NESTING) -> bool:
    """Whether a value of JSON-like lists and maps (with text keys) is at most `left` deep."""
    if isinstance(value, dict):
        return left > 0 and all(isinstance(key, str) and _nesting_fits(item, left - 1) for key, item in value.items())
    if isinstance(value, list):
        return left > 0 and all(_nesting_fits(item, left - 1) for item in value)
    return True


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_float(value: Any) -> bool:
    return type(value) is float or type(value) is int


#: Annotation -> check of a value. An annotation that is missing here fails at import, not at run time.
_CHECKS: dict[Any, Callable[[Any], bool]] = {
    int: _is_int,
    float: _is_float,
    bool: lambda value: type(value) is bool,
    str: lambda value: type(value) is str,
    bytes: lambda value: type(value) is bytes,
    list[int]: lambda value: type(value) is list and all(map(_is_int, value)),
    list[list[Any]]: lambda value: type(value) is list and all(type(row) is list for row in value) and _nesting_fits(value),
    list[list[str]]: lambda value: (
        type(value) is list and all(type(row) is list and all(type(item) is str for item in row) for row in value)
    ),
    dict[str, Any]: lambda value: type(value) is dict and _nesting_fits(value),
    dict[str, str]: lambda value: (
        type(value) is dict and all(type(key) is str and type(item) is str for key, item in value.items())
    ),
    dict[str, float]: lambda value: (
        type(value) is dict and all(type(key) is str and _is_float(item) for key, item in value.items())
    ),
}


def _fields_of(cls: type[Message]) -> dict[str, tuple[bool, str, Callable[[Any], bool]]]:
    """Field -> (required, annotation, check)."""
    hints = typing.get_type_hints(cls)
    return {
        one.name: (
            one.default is MISSING and one.default_factory is MISSING,
            str(one.type),
            _CHECKS[hints[one.name]],
        )
        for one in fields(cls)
    }


_FIELDS = {code: _fields_of(cls) for code, cls in CODES.items()}


def frame(body: bytes) -> bytes:
    """Put the length before a body.

    Raises:
        LocalProtocolError: the body is over the limit.
    """
    if len(body) > MAX_FRAME_BYTES:
        raise LocalProtocolError(f"frame too large: bytes={len(body)}, limit={MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def encode(message: Message) -> bytes:
    """The frame of one message.

    Raises:
        LocalProtocolError: the frame is over the limit, or msgpack cannot pack a value (our bug, or an unchecked user's value).
    """
    cls = type(message)
    code = _CODE_OF[cls]
    try:
        body: bytes = msgpack.packb([code, {name: getattr(message, name) for name in _FIELDS[code]}], use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{cls.__name__} cannot be packed: {error}") from error
    if len(body) > MAX_FRAME_BYTES:
        raise LocalProtocolError(f"{cls.__name__} too large: bytes={len(body)}, limit={MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """The message of one frame's body.

    Raises:
        RemoteProtocolError: the body is no message; names the message and the field.
    """
    try:
        value = msgpack.unpackb(body, raw=False, strict_map_key=True)
    except Exception as error:  # msgpack raises a dozen classes, some of them plain ValueError
        raise RemoteProtocolError(f"not msgpack: bytes={len(body)}, {type(error).__name__}: {error}") from error
    if type(value) is not list or len(value) != 2 or type(value[0]) is not int or type(value[1]) is not dict:
        raise RemoteProtocolError(f"not [code, fields]: {type(value).__name__}, bytes={len(body)}")
    code, given = value
    cls = CODES.get(code)
    if cls is None:
        raise RemoteProtocolError(f"unknown message code: code={code}, known={sorted(CODES)}")
    known = _FIELDS[code]
    for name, (required, annotation, fits) in known.items():
        if name not in given:
            if required:
                raise RemoteProtocolError(f"{cls.__name__} lacks a field: field={name}")
        elif not fits(given[name]):
            raise RemoteProtocolError(
                f"{cls.__name__} has a wrong field: field={name}, wants={annotation} nested at most {MAX_NESTING} deep, "
                f"got={type(given[name]).__name__}"
            )
    if len(given) > len(known) or not given.keys() <= known.keys():
        raise RemoteProtocolError(f"{cls.__name__} has an unknown field: field={sorted(given.keys() - known.keys())[0]}")
    return cls(**given)


class FrameBuffer:
    """Takes bytes as they come, and gives complete bodies."""

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit_bytes
        self._bytes = bytearray()

    @property
    def partial(self) -> bool:
        """Whether a frame is incomplete; at the end of a stream it was torn."""
        return bool(self._bytes)

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes, cut anywhere, and return the bodies that they complete.

        Raises:
            RemoteProtocolError: a frame announces more than the limit. It is raised before the frame's bytes come.
        """
        self._bytes += data
        bodies = []
        position, have = 0, len(self._bytes)
        while have - position >= 4:
            (length,) = _LENGTH.unpack_from(self._bytes, position)
            if length > self._limit:
                raise RemoteProtocolError(f"frame too large: bytes={length}, limit={self._limit}")
            if have - position - 4 < length:
                break
            bodies.append(bytes(self._bytes[position + 4 : position + 4 + length]))
            position += 4 + length
        del self._bytes[:position]
        return bodies


class FrameReader:
    """Takes bytes as they come, and gives messages."""

    def __init__(self) -> None:
        self._buffer = FrameBuffer()

    @property
    def partial(self) -> bool:
        return self._buffer.partial

    def feed(self, data: bytes) -> list[Message]:
        """See `FrameBuffer.feed` and `decode`."""
        return [decode(body) for body in self._buffer.feed(data)]
