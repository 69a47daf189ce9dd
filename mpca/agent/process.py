"""Descriptors, parents and process groups of the agent's and the evaluator's process. Imports nothing slow."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from typing import NoReturn

__all__ = ["die_at_end_of_file", "die_with", "die_with_parent", "end_group", "lead_own_group", "move_control_pipe"]

_PR_SET_PDEATHSIG = 1


def move_control_pipe() -> tuple[int, int]:
    """Return new descriptors of stdin and stdout. Afterwards stdin is empty, and prints go to stderr."""
    read_fd, write_fd = os.dup(0), os.dup(1)  # a process that we execute does not inherit Python's duplicates
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # typed as any text stream
    return read_fd, write_fd


def die_with(number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when its parent (thread) dies. Survives exec."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)


def die_with_parent(read_fd: int) -> None:
    """Ask for SIGKILL when the parent (thread) dies; exit if it is dead already.

    The signal is needed since a stopped process cannot read an end of file. A parent that died before the call has closed its
    end of the pipe. The parent's id is no proof of its death: in a container the executor may be process 1.
    """
    die_with(signal.SIGKILL)
    poll = select.poll()
    poll.register(read_fd, select.POLLIN)
    if any(seen & select.POLLHUP and not seen & select.POLLIN for _, seen in poll.poll(0)):
        os._exit(1)


def die_at_end_of_file(read_fd: int) -> None:
    """Kill the group when the other end of a pipe is closed, even while this process waits for something else."""

    def wait() -> None:
        poll = select.poll()
        poll.register(read_fd, 0)  # reports only a hang-up, not data
        poll.poll()
        end_group()

    threading.Thread(target=wait, name="mpca-end-of-file", daemon=True).start()


def lead_own_group() -> None:
    """Make a process group inside the container's session, so that data workers can be killed together with this process."""
    with contextlib.suppress(PermissionError):  # a session leader leads its group already
        os.setpgid(0, 0)
    for one in (signal.SIGINT, signal.SIGHUP):  # the driver handles Ctrl-C, and a terminal that is gone
        signal.signal(one, signal.SIG_IGN)


def end_group() -> NoReturn:
    """Kill this process and, if it leads a group of its own, everything in that group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
