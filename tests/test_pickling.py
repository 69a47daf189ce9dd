"""Functions that are packed by value."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable

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
    try:
        function()
    except ZeroDivisionError as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name != traceback.__name__][1:]
    assert {(one.filename, one.lineno) for one in frames} == {("/home/ann/train.py", 4)}
    assert frames[0].name == "inner"


def test_what_cannot_be_packed_raises_as_cloudpickle_does() -> None:
    import threading

    try:
        pickling.dumps(threading.Lock())
    except TypeError as error:
        assert "cannot pickle" in str(error)
    else:
        raise AssertionError("a lock was packed")
