"""What an agent's last word carries: the value that the train function returned, or what it raised."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

from mpca.agent.main import _user_traceback
from mpca.environment import child_environment
from tests.agent import jobs
from tests.support.fake_executor import FakeExecutor

pytestmark = pytest.mark.long


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


@pytest.mark.parametrize(("length", "said"), [(75, False), (76, True)])
def test_a_folder_in_which_data_workers_get_no_sockets_is_said(length: int, said: bool) -> None:
    """The longest name that Linux takes, and one byte more."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short) / ("x" * (length - len(short) - 1))
        folder.mkdir()
        (folder / "pymp-12345678").mkdir()
        too_long = False
        with socket.socket(socket.AF_UNIX) as one:
            try:
                one.bind(f"{folder}/pymp-12345678/listener-12345678")
            except OSError:
                too_long = True
        environment = child_environment(TMPDIR=str(folder))
        with FakeExecutor(jobs.count_down, 10, 0.02, env=environment) as executor:
            executor.meet()
            warned = f"mpca: TMPDIR = {folder} has {length} bytes" in executor.stderr
    assert warned is said
    assert too_long is said
