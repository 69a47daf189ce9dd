"""Where the Python of a process is that takes no step: shown by the real `faulthandler`, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

HEAD = """
import ctypes, os, sys, time, threading
from mpca.agent.stall import StallWatch
from mpca.timeouts import SILENT_S
from mpca.clock import SystemClock
stall = StallWatch(SystemClock())
stall.after_s = 0.2
"""
STUCK = """
def deadlock():
    threading.Timer(20, os._exit, [0]).start()  # whatever happens, the script ends
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=WAIT)
"""


def said(script: str, wait_s: float = 1.0) -> str:
    """What it wrote to descriptor 2. Pauses stand for what keeps a step, and are longer or shorter than `after_s`."""
    text = HEAD + STUCK.replace("WAIT", str(wait_s)) + script + "\nos._exit(0)\n"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60).stderr


def test_a_deadlock_is_shown_with_the_stack() -> None:
    lines = said("stall.begin(); sys.stderr = None; deadlock()").splitlines()
    assert lines[0].startswith("Timeout (0:00:00")
    assert any(line.endswith("in deadlock") for line in lines)


def test_one_that_holds_the_interpreters_lock_is_shown_too() -> None:
    assert "in <module>" in said("stall.begin(); ctypes.PyDLL(None).usleep(900000)")


@pytest.mark.parametrize(
    "script",
    [
        "deadlock()",  # no agent: a bench that attaches
        "stall.begin(); stall.waits(); deadlock()",
        # 2.5 s in all, and never silent for long
        "stall.after_s = 2.0; stall.begin()\nfor _ in range(50): time.sleep(0.05); stall.alive()",
    ],
    ids=["not begun", "waits for others", "alive"],
)
def test_nothing_is_shown_of_one_that(script: str) -> None:
    assert said(script, 0.6) == ""


def test_what_was_slow_once_is_shown_again_only_when_it_takes_twice_as_long() -> None:
    script = """
stall.begin()
for pause in (0.4, 0.6, 2.0):
    time.sleep(pause)
    stall.alive()
assert stall.after_s > 3.9, stall.after_s
"""
    assert said(script).count("Timeout (") == 2


def test_a_child_that_was_forked_ends_and_the_parent_is_still_watched() -> None:
    script = """
stall.begin()
child = os.fork()
if child == 0:
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
deadlock()
"""
    assert said(script).count("Timeout (") == 1
