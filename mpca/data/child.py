"""Child processes that do work at which a process may crash.

A child is a fresh interpreter that holds one end of a socket pair. It ends when the other end closes, so it never outlives
its parent. This is not `multiprocessing`: a fork is unsafe in a process with threads and torch, a spawn runs the user's
script again, and a pool breaks as a whole when one child dies.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from mpca.environment import child_environment
from mpca.errors import MpcaError
from mpca.timeouts import CHILD_END_S, DECODE_CPU_S

__all__ = ["Child", "Died", "Done", "Said", "parent", "serve", "work"]


class Child:
    """``python -m MODULE FD ARGUMENTS...``. Its output goes to our stderr."""

    def __init__(self, module: str, *arguments: object, pass_fds: Iterable[int] = ()) -> None:
        ours, theirs = socket.socketpair()
        with theirs, _without_interrupts():
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # a stray print must not end up in the JSON on our stdout
                pass_fds=(theirs.fileno(), *pass_fds),
                # There is one child per core, so threads of numpy's libraries would only compete.
                env=child_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
            )
        self.connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End the process at once; its connection then reads as ended."""
        self._process.kill()

    def reap(self) -> str:
        """Close the connection, wait until the process ends, and say how it ended."""
        self.connection.close()
        try:
            code = self._process.wait(CHILD_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code == -signal.SIGPROF:
            return f"more than {DECODE_CPU_S} s of processor time"
        return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A child inherits the mask. So Ctrl-C does not end it with a traceback before it can say that the parent handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def parent() -> tuple[Connection, list[str]]:
    """In the child: the connection to the parent, and the other arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    return Connection(int(sys.argv[1])), sys.argv[2:]


# ---- many pieces of work, on several children --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """A child sent a value in the middle of a task."""

    task: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Done:
    """A task is done; this is its result."""

    task: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Died:
    """The child died in this task. The caller may add the task again."""

    task: Any
    reason: str


def serve(function: Callable[[Any, Callable[[Any], None]], Any]) -> None:
    """In the child: do tasks until the parent ends.

    Args:
        function: takes a task, and a function that sends a value to the parent; returns the task's result.
    """
    connection, _ = parent()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task = connection.recv()
            try:
                answer = ("done", function(task, lambda value: connection.send(("said", value))))
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception:
                answer = ("failed", traceback.format_exc())
            connection.send(answer)


def work(module: str, tasks: deque[Any], processes: int) -> Generator[Said | Done | Died, None, None]:
    """Do tasks in child processes that run `serve`.

    Args:
        module: the child's module.
        tasks: are taken from the left; the caller may add some while it iterates.
        processes: number of children.

    Raises:
        MpcaError: a task raised in its child; the text ends with the traceback.
    """
    busy: dict[Connection, tuple[Child, Any]] = {}
    idle: list[Child] = []
    try:
        while tasks or busy:
            while tasks and (idle or len(busy) < processes):
                child = idle.pop() if idle else Child(module)
                task = tasks.popleft()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the child's death is read below
                    child.connection.send(task)
                busy[child.connection] = child, task
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                child, task = busy[ready]
                try:
                    kind, value = ready.recv()
                except (EOFError, ConnectionResetError):
                    del busy[ready]
                    yield Died(task, child.reap())
                    continue
                if kind == "said":
                    yield Said(task, value)
                    continue
                del busy[ready]
                idle.append(child)
                if kind == "failed":
                    raise MpcaError(f"{value.strip().splitlines()[-1]}\n{value}")
                yield Done(task, value)
    finally:
        for child in (*idle, *(child for child, _ in busy.values())):
            child.kill()
            child.reap()
