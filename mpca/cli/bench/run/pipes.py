"""An agent without Spark, Java or network: the real process, and this one as its executor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import cloudpickle

from mpca.agent.executor_end import AgentEnd
from mpca.environment import child_environment
from mpca.methods import Method
from mpca.wire.messages import Finished, Start, Stop

__all__ = ["LoneAgent"]


class LoneAgent(AgentEnd):
    """One agent, and the only one of its run. A context manager that ends it; what it prints goes to stderr.

    Args:
        method: of the run.
        device: "cpu" or "cuda".
        env: added to this process's environment.
        function: what it calls, with `args`.
    """

    def __init__(self, method: Method, device: str, env: dict[str, str], function: Callable[..., Any], *args: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mpca.agent.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=child_environment(**env),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        super().__init__(
            self._process.stdin.fileno(),
            self._process.stdout.fileno(),
            lambda: "its own words stand above",
            patience_s=300.0,  # a first step may compile its kernels
        )
        payload = cloudpickle.dumps((function, args, {}))
        self.send(Start(0, 0, 1, "bench", 1, method.shards, False, method.for_agents(), "train", payload, device))

    def __enter__(self) -> LoneAgent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self.close()

    def stop(self) -> Finished:
        """Let the train function end; what it returned."""
        self.send(Stop("measured"))
        return self.expect(Finished)
