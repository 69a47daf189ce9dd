"""What the agent's and the evaluator's process do about descriptors, parents and process groups. Imports nothing slow."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from typing import NoReturn

__all__ = ["die_with", "die_with_parent", "end_group", "lead_own_group", "move_control_pipe"]

_PR_SET_PDEATHSIG = 1


def move_control_pipe() -> tuple[int, int]:
    """Return new descriptors of stdin and stdout; afterwards stdin is empty and what is printed goes to stderr."""
    read_fd, write_fd = os.dup(0), os.dup(1)  # dup, in Python, makes descriptors that an executed child does not get
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # typed as any text stream
    return read_fd, write_fd


def die_with(number: int = signal.SIGKILL) -> None:
    """Ask the kernel for this signal at the death of the parent (thread). Survives exec."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)


def die_with_parent(read_fd: int) -> None:
    """Ask for SIGKILL at the death of the parent (thread); leave if it is dead already.

    The signal is there because a stopped process cannot read an end of file. A parent that died before it was asked for
    has closed its end of the pipe; its pid would say less: in a container the executor may well be process 1.
    """
    die_with(signal.SIGKILL)
    poll = select.poll()
    poll.register(read_fd, select.POLLIN)
    if any(seen & select.POLLHUP and not seen & select.POLLIN for _, seen in poll.poll(0)):
        os._exit(1)


def lead_own_group() -> None:
    """Lead a process group inside the container's session, so that data workers can be killed together with us."""
    with contextlib.suppress(PermissionError):  # a session leader leads its group already
        os.setpgid(0, 0)
    for one in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C, and a terminal that is gone, are the driver's to act on
        signal.signal(one, signal.SIG_IGN)


def end_group() -> NoReturn:
    """Kill this process and, if it leads a group of its own, everything in that group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
