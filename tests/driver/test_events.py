"""What the driver makes of what a cluster tells it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mpca.driver.events import AgentDied

KILLED = "exit code 137: killed, by the kernel if memory was short (dmesg there says so), else by somebody"


def died(tail: str, exit_code: int = 137) -> AgentDied:
    return AgentDied("e1", 1, 0, 4711, exit_code, tail)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("", KILLED),
        (" \n\n", KILLED),
        ("step 1\nstep 2\n\n", f"{KILLED}; last output: step 2"),
        ("Fatal Python error: Aborted\n", f"{KILLED}; Fatal Python error: Aborted"),
        (
            "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):",
            f"{KILLED}; Fatal Python error: Aborted",
        ),
    ],
)
def test_a_death_is_told_in_one_line(tail: str, reason: str) -> None:
    assert died(tail).reason == reason


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_process_that_ends_itself_without_an_exception_is_told_so(code: int) -> None:
    how = f"exit code {code}: the process ended itself, without an exception (os._exit?)"
    assert died("", code).reason == how
    assert died("step 1\nstep 2\n", code).reason == f"{how}; last output: step 2"
    raised = "Traceback (most recent call last):\n  ...\nImportError: no torch\n"
    assert died(raised, code).reason == f"{how if code != 1 else 'exit code 1'}; last output: ImportError: no torch"


@pytest.mark.parametrize(
    ("pid", "code", "tail"),
    [
        (0, 127, "Cannot run program /nowhere/python"),
        (4711, -1, "java.lang.IllegalStateException: our own"),
        (4711, 1, '  File "/a/torch/__init__.py", line 1, in <module>\nImportError: libc10.so'),  # cut off above
    ],
)
def test_a_process_that_did_not_end_itself_is_not_told_so(pid: int, code: int, tail: str) -> None:
    assert AgentDied("e1", 1, 0, pid, code, tail).reason == f"exit code {code}; last output: {tail.splitlines()[-1]}"


@pytest.mark.parametrize(
    ("crash", "number", "error"),
    [("ctypes.string_at(0)", 11, "Segmentation fault"), ("os.abort()", 6, "Aborted")],
)
def test_of_a_crash_in_c_code_the_error_is_told_and_where_it_was(crash: str, number: int, error: str) -> None:
    """From a process that really crashes, with a thread and modules that make its dump long."""
    code = (
        "import ctypes, faulthandler, numpy, os, threading, time\n"
        "faulthandler.enable()\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        f"def step():\n    {crash}\n"
        "print('before', flush=True)\nstep()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ended.returncode == -number
    assert ended.stdout.splitlines()[-1].startswith("Extension modules: "), "the last line says nothing"
    reason = died(ended.stdout, 128 + number).reason
    assert reason.startswith(f"exit code {128 + number}; Fatal Python error: {error}, File ")
    assert reason.endswith("in string_at" if number == 11 else "in step")
