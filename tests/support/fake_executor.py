"""An agent of a test, with the executor's end of its pipe, and whatever a test does to its process."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from mpca.agent.executor_end import AgentEnd
from mpca.wire.messages import Start
from tests.support.agent_parent import AgentParent, ForkedAgent

__all__ = ["FakeExecutor", "wait_until"]

DEADLINE_S = 60.0
R = TypeVar("R")


def wait_until(condition: Callable[[], R], what: str, deadline_s: float = DEADLINE_S, every_s: float = 0.01) -> R:
    """Wait for a condition, not for a duration; what it gives, once it gives something."""
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(every_s)
    return found


class FakeExecutor(AgentEnd):
    """One agent process and the pipe to it. A context manager that leaves nothing behind."""

    #: Forks the agents; None: each is a process of its own start.
    parent: AgentParent | None = None

    def __init__(
        self,
        function: Callable[..., Any],
        *args: Any,
        program: str = "mpca.agent.main",
        env: dict[str, str] | None = None,
        **start: Any,
    ) -> None:
        """Start an agent on `function(*args)`.

        Args:
            program: module that is the agent.
            env: its whole environment; None: ours.
            start: replaces fields of the Start message.
        """
        cloudpickle.register_pickle_by_value(inspect.getmodule(function))
        payload = cloudpickle.dumps((function, args, {}))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self.process: subprocess.Popen[bytes] | ForkedAgent
        if self.parent is not None and program == "mpca.agent.main" and env is None:
            self.process = self.parent.start(self._errors)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", program],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, env=env,
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        super().__init__(self.process.stdin.fileno(), self.process.stdout.fileno(), self._last_words, DEADLINE_S)
        fields = {
            "agent": 0, "incarnation": 0, "agents": 1, "run": "test", "seed": 1, "shards": 1, "layer_aligned": False,
            "method": {"name": "mpca", "shards": 1}, "task": "train",
            "payload": payload,
        }  # fmt: skip
        self.send(Start(**{**fields, **start}))

    def train_some(self, shard: int = 0) -> int:
        """Begin, and ask until updates were made (the first request may be served before the first step); the next cycle."""
        self.begin()
        for cycle in range(1000):
            if self.snapshot(cycle, shard)[0].updates:
                return cycle + 1
        raise AssertionError(f"the agent makes no updates\n{self.stderr}")

    # ---- the process ----

    @property
    def stderr(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode()

    def _last_words(self) -> str:
        return f"exit={self.process.poll()}\n{self.stderr}"

    def end(self) -> int:
        """Wait for the agent to end; its exit code."""
        return self.process.wait(DEADLINE_S)

    def hang_up(self) -> None:
        """Close the agent's stdin, as a dying JVM does."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def alive(self) -> bool:
        return self.process.poll() is None

    def __enter__(self) -> FakeExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._errors.close()
        self.close()
        group = self.process.pid
        left = [one.name for one in Path("/proc").iterdir() if one.name.isdigit() and _group_of(one) == group]
        if left:
            os.killpg(group, signal.SIGKILL)
        assert not left, f"the agent left processes of its group behind: {left}"


def _group_of(process: Path) -> int:
    """Process group, or -1 if it is gone or a zombie (whose parent has yet to look)."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[2])
