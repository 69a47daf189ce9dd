"""A process of a bench on a node, which is told a line on stdin and answers with lines of JSON on stdout."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpca.errors import MpcaError

__all__ = ["NodeProcess"]

_TAIL_LINES = 40
#: One that listens ends when its stdin does; one that still starts a session hears a signal.
_LISTENING_S = 5
_END_S = 30


class NodeProcess:
    """``python -m MODULE SPEC`` behind a prefix, such as the words that take it to a node.

    Args:
        stack: ends it.
        prefix: words before the command.
        module: what runs.
        spec: a dataclass, which goes as JSON; `work_dir` is the folder for its log.
    """

    def __init__(self, stack: ExitStack, prefix: list[str], module: str, spec: Any) -> None:
        self._log = Path(spec.work_dir) / "driver-output.log"
        command = [*prefix, sys.executable, "-m", module, json.dumps(asdict(spec))]
        sink = stack.enter_context(self._log.open("wb"))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True, bufsize=1
        )
        stack.callback(self._end)

    def tell(self, what: Any) -> None:
        """Write a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")

    def hear(self) -> dict[str, Any]:
        """Read a line.

        Raises:
            MpcaError: the process has ended; with the last lines of its log.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise MpcaError(f"the bench's driver ended with exit code {self._process.wait()}:\n{tail}")
        said: dict[str, Any] = json.loads(line)
        return said

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        for seconds, number in ((_LISTENING_S, signal.SIGINT), (_END_S, signal.SIGKILL)):
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.send_signal(number)
        self._process.wait()
        self._process.stdout.close()
