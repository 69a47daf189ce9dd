"""What an agent's last word carries: the value that the train function returned, or what it raised."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from mpca.agent.main import _user_traceback
from mpca.environment import child_environment


def raised(message: str) -> BaseException:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_a_traceback_is_the_users_and_ends_with_the_error() -> None:
    lines = _user_traceback(raised("no such column")).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in raised" in lines[1]
    assert lines[-1] == "ValueError: no such column"


@pytest.mark.parametrize("length", [60_000, 65_000])
def test_a_long_traceback_stays_whole(length: int) -> None:
    text = _user_traceback(raised("x" * length))
    assert text.count("x" * length) == 1
    assert "left out" not in text


def test_one_that_would_fill_a_message_is_cut_in_the_middle_and_says_by_how_much() -> None:
    error = raised("begin " + "x" * 300_000 + " end")
    text, error_line = _user_traceback(error), f"ValueError: {error}"
    whole = "".join(["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), f"{error_line}\n"])
    before, cut, after = text.partition("\n  ... ")
    number, _, rest = after.partition(" characters left out ...\n")
    assert cut
    assert len(before) == len(rest) == 32 * 1024
    assert int(number) == len(whole) - 64 * 1024
    assert whole.startswith(before)
    assert whole.endswith(rest)


@pytest.mark.parametrize("others", [{}, {"LOCAL_RANK": "1"}], ids=["executor", "launcher"])
def test_a_program_that_a_launcher_started_again_says_so(others: dict[str, str]) -> None:
    """As Lightning does with strategy="ddp" and two devices."""
    environment = child_environment(**others)
    done = subprocess.run(
        [sys.executable, "-m", "mpca.agent.main"], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment
    )
    assert done.returncode == -9
    assert done.stdout == ""
    if others:
        assert done.stderr.startswith("mpca: a trainer inside of an agent has started its process 1 of several; ")
        assert done.stderr.count("\n") == 1
    else:
        assert done.stderr == ""
