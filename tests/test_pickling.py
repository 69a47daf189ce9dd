"""Functions that are packed by value."""

from __future__ import annotations

import pickle
import threading
import traceback
from collections.abc import Callable

import pytest

from mpca import pickling

SOURCE = """
def outer(depth):
    def inner():
        return [1 // one for one in range(depth)]
    return inner
"""


def made() -> Callable[[], list[int]]:
    space: dict[str, Callable[[int], Callable[[], list[int]]]] = {"__name__": "__main__"}  # type: ignore[dict-item]
    exec(compile(SOURCE, "/home/ann/train.py", "exec"), space)
    return space["outer"](3)


def test_a_traceback_names_the_file_of_a_function_that_came_by_value() -> None:
    function = pickle.loads(pickling.dumps(made()))
    with pytest.raises(ZeroDivisionError) as raised:
        function()
    frames = traceback.extract_tb(raised.tb)[1:]  # behind this test's own
    assert {(one.filename, one.lineno) for one in frames} == {("/home/ann/train.py", 4)}
    assert frames[0].name == "inner"


def test_what_cannot_be_packed_raises_as_cloudpickle_does() -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        pickling.dumps(threading.Lock())
