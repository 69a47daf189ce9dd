"""The agent context of this process; there is none when the user's code runs alone.

`main` sets it before it calls the user's function; `attach`, `log`, ... read it. Not for decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpca.agent.attached import AttachedModels
from mpca.agent.files import ExecutorFiles, FilePipe
from mpca.agent.link import Link
from mpca.agent.loop import AgentLoop
from mpca.agent.metrics import Metrics
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
    """The facts and parts of this agent process."""

    start: Start
    method: Method
    loop: AgentLoop
    metrics: Metrics  # what `log` was given
    models: AttachedModels = field(default_factory=AttachedModels)
    rounds: Rounds = field(default_factory=Rounds)
    watch: ModelWatch | None = None  # watches all models, once the exchange has begun
    to_come: str = ""  # the optimiser whose `attach` the exchange waits for
    gpu: object = None  # the lock of its GPU, held until the process ends
    optimizers: Optimizers = field(default_factory=Optimizers)
    others: dict[str, Any] = field(default_factory=dict)  # what is saved beside optimisers, by name
    files: FilePipe | None = None  # to the executor, once a file on HDFS was opened

    @classmethod
    def make(cls, start: Start, link: Link) -> AgentContext:
        """Make machine and loop of the agent that `start` describes."""
        method = from_dict(start.method)
        metrics = Metrics()
        machine = AgentMachine(start.agent, start.incarnation, start.shards, method.agent_side)
        loop = AgentLoop(link, machine, SystemClock(), metrics)
        return cls(start, method, loop, metrics)

    @property
    def attached(self) -> bool:
        """Whether all models and optimisers were attached, so that the exchange has begun."""
        return self.watch is not None

    def check_begun(self) -> None:
        """Check that no `attach` is missing, when an optimiser steps and when the train function returns.

        Raises:
            ConfigError: the exchange still waits for the `attach` of an optimiser.
        """
        if not self.attached and self.to_come and not self.loop.stopping:
            raise ConfigError(
                f"an optimizer was made before mpca.attach and is not attached: {self.to_come}; what it trains would differ "
                "between agents: give it to mpca.attach, too; or make it after mpca.attach, if that is intended; or "
                "delete it, if it is no longer needed"
            )

    def open_hdfs(self, location: Location) -> ExecutorFiles:
        """A folder of HDFS, read through the executor."""
        if self.files is None:
            self.files = FilePipe(self.loop.say)
        return ExecutorFiles(self.files, location)


_current: AgentContext | None = None


def current() -> AgentContext | None:
    """The context of this agent process; None outside of one."""
    return _current


def enter(context: AgentContext | None) -> None:
    """Set the context of this process. `main` calls it once."""
    global _current
    _current = context
    opening.use(None if context is None else context.open_hdfs)
