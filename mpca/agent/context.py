"""Who this process is: the one agent context of an agent process, or none when the user's code runs alone.

`main` sets it before the user's function is called; `attach` and its neighbours look here. Not for decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mpca.agent.files import ExecutorFiles, FilePipe
from mpca.agent.link import Link
from mpca.agent.loop import AgentLoop
from mpca.agent.state import AgentMachine
from mpca.clock import SystemClock
from mpca.methods import Method, from_dict
from mpca.storage import Location, hdfs_here
from mpca.wire.messages import Start

__all__ = ["AgentContext", "current", "enter"]


@dataclass
class AgentContext:
    """What an agent process knows of itself."""

    start: Start
    method: Method
    loop: AgentLoop
    metrics: dict[str, Any]  # newest values of `log`, as they were given
    attached: bool = field(default=False)
    gpu: object = None  # the lock of its GPU, held as long as the process lives
    files: FilePipe | None = None  # to the executor, once something on HDFS is opened

    @classmethod
    def make(cls, start: Start, link: Link) -> AgentContext:
        """Put machine and loop together for the agent that `start` describes."""
        method = from_dict(start.method)
        metrics: dict[str, Any] = {}
        machine = AgentMachine(start.agent, start.incarnation, start.shards, method)
        loop = AgentLoop(link, machine, SystemClock(), lambda: {name: float(value) for name, value in metrics.items()})
        return cls(start, method, loop, metrics)

    def open_hdfs(self, location: Location) -> ExecutorFiles:
        """Files of HDFS, through the executor."""
        if self.files is None:
            self.files = FilePipe(self.loop.say)
        return ExecutorFiles(self.files, location)


_current: AgentContext | None = None


def current() -> AgentContext | None:
    """The context of this agent process; None outside of one."""
    return _current


def enter(context: AgentContext | None) -> None:
    """Become that agent. Called once, by `main`."""
    global _current
    _current = context
    hdfs_here.use(None if context is None else context.open_hdfs)
