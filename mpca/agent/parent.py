"""The preloaded parent: ``python -m mpca.agent.parent``, one in an executor. It imports what agents import, and forks them.

Importing torch takes an agent several CPU seconds, and a fork of a process that has done so takes milliseconds; what is
imported is shared between them. The executor's JVM asks over stdin and is answered over stdout, in frames of msgpack arrays:

    open N          make three pipes for agent N: FIFOs in our folder, held open here, so that no open waits for another
      opened N PATH       the JVM opens PATH.in, PATH.out and PATH.err
    fork N          start the agent on these pipes, which then have no names any more
      forked N PID
      refused N WHY       to both: a full disk, too many processes, ...; its pipes are gone, and all other agents live on
    end N           SIGKILL to the agent and its process group
      ended N CODE        128 + n for signal n. The process is kept, so that its number is no other's, until ...
    reap N          ... the JVM has no more use for it; pipes of an agent that was not forked go as well
    here N          whether this process answers
      here N

This process imports and does nothing else: no user's function or file, nothing of CUDA, no arithmetic. A process with a second
thread must not be forked, and one that has used OpenMP's threads makes its children hang; so threads are counted before each
fork. Agents get SIGKILL when this process ends, which ends when the JVM does (or its thread that starts processes), or when
nothing was asked for a minute and no agent is left.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import struct
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, NoReturn

import msgpack

from mpca.agent.process import die_with, die_with_parent, lead_own_group, move_control_pipe
from mpca.environment import environment
from mpca.timeouts import PARENT_IDLE_S

__all__ = ["IMPORTED", "Parent", "main"]

#: What an agent imports before it calls its function. Each of them only defines things.
IMPORTED = (
    "cloudpickle",
    "mpca",
    "mpca.agent.attach",
    "mpca.agent.context",
    "mpca.agent.main",
    "mpca.agent.torch_trainer",
    "mpca.data",
    "mpca.methods",
    "numpy",
    "torch.nn",
    "torch.optim",
    "torch.utils.data",
)
_ENDS = (("in", os.O_RDONLY, 0), ("out", os.O_WRONLY, 1), ("err", os.O_WRONLY, 2))  # name, the agent's way, its descriptor


def _import_all() -> None:
    """Import what agents import. numpy's BLAS would start its threads while it is imported: it gets one."""
    kept = environment("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    importlib.import_module("torch")
    from mpca.agent.lazy_dynamo import put_off_dynamo

    put_off_dynamo()
    for name in IMPORTED:
        importlib.import_module(name)
    del os.environ["OPENBLAS_NUM_THREADS"]
    if kept:
        os.environ["OPENBLAS_NUM_THREADS"] = kept
    gc.collect()
    gc.freeze()  # else the first collection of each agent would write to, and so copy, every page of what is shared


@dataclass
class _Pipes:
    """Of an agent that is not forked yet."""

    stem: str
    held: list[int]  # descriptors that are open both ways

    def close(self) -> None:
        for fd in self.held:
            os.close(fd)

    def drop(self) -> None:
        """Close them, and remove their names."""
        self.close()
        for name, _, _ in _ENDS:
            with contextlib.suppress(OSError):  # not all were made, or not by us
                os.unlink(f"{self.stem}.{name}")


class Parent:
    """See the module's text.

    Args:
        read_fd: where questions come from.
        write_fd: where answers go.
        folder: of the FIFOs; only this user may enter it.
        idle_s: seconds without question and agent after which it ends.
    """

    def __init__(self, read_fd: int, write_fd: int, folder: str, idle_s: float) -> None:
        self._read_fd, self._write_fd, self._folder, self._idle_s = read_fd, write_fd, folder, idle_s
        self._pid = os.getpid()
        self._opened: dict[int, _Pipes] = {}
        self._children: dict[int, int] = {}  # pid of each agent that is not reaped
        self._told: set[int] = set()  # agents whose end was told
        self._released: set[int] = set()  # agents of no more use that have not ended
        self._buffer = b""
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the number in the pipe is what wakes the loop

    def serve(self) -> bool:
        """Answer until the JVM closes the pipe, or nothing is asked for long.

        Returns:
            True in a forked agent, whose descriptors 0 to 2 are its pipes; False when this process is to end.
        """
        self._say("ready", self._pid, self._folder)
        poll = select.poll()
        poll.register(self._read_fd, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            seen = {fd for fd, _ in poll.poll(self._idle_s * 1e3)}
            if not seen and not self._children and not self._opened:
                return False
            if self._wake_read in seen:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._tell_ends()
            if self._read_fd in seen:
                data = os.read(self._read_fd, 65536)
                if not data:
                    return False
                self._buffer += data
                for word, number in self._questions():
                    if self._answer(word, number):
                        return True

    def _questions(self) -> list[tuple[str, int]]:
        asked = []
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">I", self._buffer)
            if len(self._buffer) < 4 + length:
                break
            word, number = msgpack.unpackb(self._buffer[4 : 4 + length])
            asked.append((word, number))
            self._buffer = self._buffer[4 + length :]
        return asked

    def _answer(self, word: str, number: int) -> bool:
        if word == "open":
            self._open(number)
        elif word == "fork":
            return self._fork(number)
        elif word == "end":
            self._kill(number)
        elif word == "reap":
            self._reap(number)
        elif word == "here":
            self._say("here", number)
        else:
            raise ValueError(f"the executor asks what this process does not know: {word}")
        return False

    def _open(self, number: int) -> None:
        pipes = _Pipes(f"{self._folder}/{number}", [])
        try:
            for name, _, _ in _ENDS:
                os.mkfifo(f"{pipes.stem}.{name}", 0o600)
                pipes.held.append(os.open(f"{pipes.stem}.{name}", os.O_RDWR))
        except OSError as error:
            pipes.drop()
            self._say("refused", number, f"its pipes cannot be made: {error}")
            return
        self._opened[number] = pipes
        self._say("opened", number, pipes.stem)

    def _fork(self, number: int) -> bool:
        """True in the agent."""
        pipes, ends, pid, why = self._opened.pop(number), [], -1, ""
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            why = f"the preloaded parent has {threads} threads, and must have one"
        else:
            try:
                for name, way, _ in _ENDS:
                    ends.append(os.open(f"{pipes.stem}.{name}", way))
                pid = os.fork()
            except OSError as error:
                why = f"it cannot be forked: {error}"
        if pid == 0:
            self._become_agent(ends, pipes)
            return True
        for fd in ends:
            os.close(fd)
        pipes.drop()
        if why:
            self._say("refused", number, why)
            return False
        with contextlib.suppress(OSError):  # it does so itself, but a kill of the group may come before
            os.setpgid(pid, pid)
        self._children[number] = pid
        self._say("forked", number, pid)
        return False

    def _become_agent(self, ends: list[int], pipes: _Pipes) -> None:
        """In the child: let go of everything that is the parent's, and take the pipes as standard streams."""
        die_with()  # no fork inherits it
        if os.getppid() != self._pid:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (self._read_fd, self._write_fd, self._wake_read, self._wake_write):
            os.close(fd)
        for other in (pipes, *self._opened.values()):  # who holds a pipe of another agent hides its end
            other.close()
        for fd, (_, _, standard) in zip(ends, _ENDS, strict=True):
            os.dup2(fd, standard)
            os.close(fd)

    def _kill(self, number: int) -> None:
        pid = self._children.get(number)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is gone, or not its own yet
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _tell_ends(self) -> None:
        for number in [number for number in self._children if number not in self._told]:
            ended = os.waitid(os.P_PID, self._children[number], os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self._told.add(number)
                killed = ended.si_code != os.CLD_EXITED
                self._say("ended", number, 128 + ended.si_status if killed else ended.si_status)
                if number in self._released:
                    self._reap(number)

    def _reap(self, number: int) -> None:
        """Let its number go. An agent that is still alive is killed first; the kernel may hold one that is in its hands."""
        if number in self._opened:
            self._opened.pop(number).drop()
        self._kill(number)
        if number in self._told:
            os.waitpid(self._children.pop(number), 0)
            self._told.discard(number)
            self._released.discard(number)
        elif number in self._children:
            self._released.add(number)

    def _say(self, *words: Any) -> None:
        body = msgpack.packb(words)
        os.write(self._write_fd, struct.pack(">I", len(body)) + body)  # shorter than a pipe takes at once


def _become_fresh() -> NoReturn:
    """Run the agent as a process that was started for it would: to the interpreter's own end."""
    from mpca.agent import main as agent

    sys.argv[:] = [agent.__file__]
    sys.exit(agent.main())


def main(idle_s: float = PARENT_IDLE_S) -> int:
    """Run the parent; returns the exit code."""
    read_fd, write_fd = move_control_pipe()
    die_with_parent(read_fd)
    lead_own_group()
    _import_all()
    folder = tempfile.mkdtemp(prefix="mpca-agents-", dir=os.getcwd())
    pid = os.getpid()
    try:
        forked = Parent(read_fd, write_fd, folder, idle_s).serve()
    finally:
        if os.getpid() == pid:
            shutil.rmtree(folder, ignore_errors=True)
    if forked:
        _become_fresh()
    return 0


if __name__ == "__main__":
    sys.exit(main())
