"""Who this process is: the one agent context of an agent process, or none when the user's code runs alone.

`main` sets it before the user's function is called; `attach` and its neighbours look here. Not for decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpca.agent.attached import AttachedModels
from mpca.agent.files import ExecutorFiles, FilePipe
from mpca.agent.link import Link
from mpca.agent.loop import AgentLoop
from mpca.agent.optimizers import Optimizers
from mpca.agent.rounds import Rounds
from mpca.agent.state import AgentMachine
from mpca.clock import SystemClock
from mpca.errors import ConfigError
from mpca.methods import Method, from_dict
from mpca.storage import Location, opening
from mpca.wire.messages import Start

if TYPE_CHECKING:
    from mpca.agent.watch import ModelWatch

__all__ = ["AgentContext", "current", "enter"]


@dataclass
class AgentContext:
    """What an agent process knows of itself."""

    start: Start
    method: Method
    loop: AgentLoop
    metrics: dict[str, Any]  # newest values of `log`, as they were given
    models: AttachedModels = field(default_factory=AttachedModels)
    rounds: Rounds = field(default_factory=Rounds)
    watch: ModelWatch | None = None  # of all models, once the exchange has begun
    to_come: str = ""  # the optimiser whose `attach` the exchange waits for
    gpu: object = None  # the lock of its GPU, held as long as the process lives
    optimizers: Optimizers = field(default_factory=Optimizers)
    files: FilePipe | None = None  # to the executor, once something on HDFS is opened

    @classmethod
    def make(cls, start: Start, link: Link) -> AgentContext:
        """Put machine and loop together for the agent that `start` describes."""
        method = from_dict(start.method)
        metrics: dict[str, Any] = {}
        machine = AgentMachine(start.agent, start.incarnation, start.shards, method)
        loop = AgentLoop(link, machine, SystemClock(), lambda: {name: float(value) for name, value in metrics.items()})
        return cls(start, method, loop, metrics)

    @property
    def attached(self) -> bool:
        """Whether the exchange has begun: all models and optimisers were attached."""
        return self.watch is not None

    def check_begun(self) -> None:
        """Asked when an optimiser steps and when the train function returns.

        Raises:
            ConfigError: the exchange still waits for the `attach` of an optimiser.
        """
        if not self.attached and self.to_come and not self.loop.stopping:
            raise ConfigError(
                f"an optimizer was made before mpca.attach and is not attached: {self.to_come}; what it trains would become "
                "another one in every agent: give it to mpca.attach, too; or make it after mpca.attach, if that is meant; or "
                "delete it, if it has done its work"
            )

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
    opening.use(None if context is None else context.open_hdfs)
