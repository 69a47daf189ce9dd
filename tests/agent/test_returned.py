"""What a train function returns comes to the driver as data; all else is refused in the agent, by its place and type."""

from __future__ import annotations

import collections
import datetime
import enum
import itertools
import pickle
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import hypothesis.strategies as st
import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given

from mpca.agent.returned import MAX_BYTES, pack, unpack
from mpca.api.launch import _returned
from mpca.errors import RemoteProtocolError
from mpca.wire.codec import MAX_NESTING, FrameReader, encode
from mpca.wire.messages import Finished


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(SCALARS, inner),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(VALUES)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert repr(unpack(pack(value))) == repr(value), "types too: 1 is neither 1.0 nor True, a tuple is no list"


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4)[::2, 1:],
        np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
        np.array([[True, False]]),
        np.array(3 + 2j),
        np.zeros((0, 5), np.float16),
        np.arange(3, dtype=">u4"),
    ],
    ids=["strided", "fortran", "bool", "no-dimension", "empty", "big-endian"],
)
def test_arrays_keep_their_values_type_and_shape_and_can_be_written(array: np.ndarray) -> None:
    (back,) = unpack(pack([array]))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    back[...] = 0
    assert not back.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_numpy_scalars_come_back_as_such(dtype: type) -> None:
    back = unpack(pack({"loss": dtype(1)}))["loss"]
    assert type(back) is dtype
    assert back == 1


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t()[1:],
        torch.tensor(2.5, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(2, 3)),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
        torch.empty(0, 7, dtype=torch.int16),
        torch.tensor([1.5]).to(torch.float8_e4m3fn),
    ],
    ids=["strided", "graph", "parameter", "bfloat16", "bool", "conjugate", "empty", "float8"],
)
def test_tensors_come_back_without_their_graph(tensor: torch.Tensor) -> None:
    back = unpack(pack(tensor))
    assert (type(back), back.dtype, back.shape, back.requires_grad) == (torch.Tensor, tensor.dtype, tensor.shape, False)
    assert back.tolist() == tensor.tolist()
    assert torch.equal(back.clone().zero_(), torch.zeros_like(tensor))


def test_a_state_dict_becomes_a_dict() -> None:
    model = torch.nn.BatchNorm1d(3)
    back = unpack(pack(model.state_dict()))
    assert type(back) is dict
    torch.nn.BatchNorm1d(3).load_state_dict(back)
    assert unpack(pack(model.weight.shape)) == (3,)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ((one for one in ()), "returned is of type generator;"),
        ({"history": [1, {"at": datetime.date(2020, 1, 2)}]}, r"returned\['history'\]\[1\]\['at'\] is of type datetime.date;"),
        ({"a": (0, {1, 2})}, r"returned\['a'\]\[1\] is of type set;"),
        (Point(1, 2), r"returned is of type tests\.agent\.test_returned\.Point;"),
        (Colour.RED, r"returned is of type tests\.agent\.test_returned\.Colour;"),
        ([Path("/x")], r"returned\[0\] is of type pathlib\.\S*PosixPath;"),
        ({(1, 2): 3}, "a key of returned is of type tuple;"),
        ({"x" * 500: object()}, r"returned\['x{59}\.\.\.\] is of type object;"),
        ([2**64], r"returned\[0\] is a whole number of more than 64 bits;"),
        (["\ud800"], r"returned\[0\] is a text with half of a surrogate pair;"),
        (np.array([object()]), "returned is ndarray of dtype object;"),
        (np.datetime64(0, "s"), r"returned is datetime64 of dtype datetime64\[s\];"),
        (np.ma.masked_array([1], [True]), "returned is of type numpy.*MaskedArray;"),
        (torch.eye(2).to_sparse(), r"returned is a tensor that is not of plain numbers in memory \(torch.sparse_coo"),
        (torch.empty(3, device="meta"), r"returned is a tensor that is not .* meta\)"),
        (torch.nn.Linear(1, 1), "returned is of type torch.nn.modules.linear.Linear;"),
        (nested(MAX_NESTING + 1), rf"returned(\[0\]){{{MAX_NESTING}}} is nested more than {MAX_NESTING} deep;"),
        (test_a_state_dict_becomes_a_dict, "returned is of type function;"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_data_is_refused_by_its_place_and_type(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=f"^what the train function returned cannot be sent to the driver: {says}"):
        pack(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError, match="nested more than"):
        pack(value)
    assert unpack(pack(nested(MAX_NESTING))) == nested(MAX_NESTING)


def test_the_largest_value_fits_a_message_and_one_byte_more_is_refused() -> None:
    most = MAX_BYTES - 5  # msgpack's head of so many bytes
    (said,) = FrameReader().feed(encode(Finished(pack(b"x" * most))))
    assert isinstance(said, Finished)
    assert len(unpack(said.returns)) == most
    with pytest.raises(ValueError, match=f"too large: bytes={MAX_BYTES + 1}, limit={MAX_BYTES}; write it to a file"):
        pack(b"x" * (most + 1))


def test_a_tensor_over_the_limit_is_refused_before_it_is_copied() -> None:
    huge = torch.zeros(1).expand(1 << 50)  # more than any memory, were it made whole; the key's letters count too
    with pytest.raises(ValueError, match=f"too large: bytes={(4 << 50) + len('weight')}, limit={MAX_BYTES};"):
        pack({"weight": huge})
    with pytest.raises(ValueError, match="too large"):
        pack({"weight": np.broadcast_to(np.float64(0), (1 << 50,))})


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, ("it ran",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pickle.dumps(Evil()),
        cloudpickle.dumps({"loss": 1}),
        msgpack.packb({"loss": 1}),
        msgpack.packb([]),
        msgpack.packb([9, 1]),
        msgpack.packb(["0", 1]),
        msgpack.packb([2, "key"]),
        msgpack.packb([2, [0], 1]),
        msgpack.packb([3, "|O", [1], bytes(8)]),
        msgpack.packb([3, "<f4", [3], bytes(8)]),
        msgpack.packb([3, "<f4", [-1], bytes(8)]),
        msgpack.packb([3, "<f4,<f4", [1], bytes(8)]),
        msgpack.packb([4, "<f4", bytes(8)]),
        msgpack.packb([5, "load", [1], b"x"]),
        msgpack.packb([5, "float32", [1 << 62], bytes(4)]),
        msgpack.packb(msgpack.ExtType(1, b"x")),
        msgpack.packb(msgpack.Timestamp(1)),
        msgpack.packb(nested(MAX_NESTING + 9)),
        b"\x91" * 100_000,
        pack([1, "x"]) + b"\x00",
        pack(np.zeros(3))[:-1],
    ],
    ids=itertools.count(),
)
def test_bytes_that_no_agent_packs_are_refused_and_run_nothing(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=rf"^not what an agent packs: bytes={len(data)}, "):
        unpack(data)
    returns, damaged = _returned({0: pack(1), 3: data, 4: data})
    assert returns == {0: 1}, "the others are kept"
    assert damaged.startswith(
        f"what the train function of agent 3 returned cannot be read: not what an agent packs: bytes={len(data)}"
    )


@given(st.binary(max_size=200) | SCALARS.map(msgpack.packb))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    try:
        value = unpack(data)
    except RemoteProtocolError:
        return
    assert repr(unpack(pack(value))) == repr(value)
