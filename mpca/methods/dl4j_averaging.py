"""Parameter averaging of Deeplearning4j (`ParameterAveragingTrainingMaster`): stop, average, replace, continue.

After every f updates, with x_i the parameters of agent i::

    x~ = the mean of x_i;  x_i = x~        all agents wait for it

It is method sync in Deeplearning4j's words, and in what becomes of the optimiser's state (its *updater*): with `average` the
same mean and replacement hold for u_i, which are momentum, or Adam's two moments and its number of steps. All wait until a lost
agent is known as lost; the mean of that round lacks it, and its replacement starts at the joint model.

Bytes a round and agent, up and down alike: M; with `average` 2 M (SGD with momentum) or 3 M (Adam, AdamW; 4 M with amsgrad),
and a number more for each of Adam's tensors.

Source: `saveUpdater` of `ParameterAveragingTrainingMaster` (true by default: save and average; false: begin anew), and
`averageUpdaters` of `ParallelWrapper`.

Departures: an agent may also keep its own state, which is the default here, since it sends no more than sync. The mean is
weighted by updates (eq. 9 of the MPCA paper), which are equal. Adam's number of steps is averaged with its moments, by tensor;
Deeplearning4j counts iterations outside of the updater. A backup holds the mean of the states beside the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method

__all__ = ["DL4JAveraging"]

_UPDATERS = ("keep", "reset", "average")


@dataclass(frozen=True)
class DL4JAveraging(Method):
    """Synchronous averaging with a choice of what becomes of the optimisers' state.

    Example:
        >>> DL4JAveraging(updater="reset").agent_side.resets_optimizer
        True
        >>> DL4JAveraging(updater="average").agent_side.exchanges_optimizer
        True
    """

    name: ClassVar[str] = "dl4j-averaging"

    averaging_frequency: int = 5
    """Optimiser updates between two exchanges, 1 or more; they must take less than `cluster.cycle_deadline`."""
    updater: str = "keep"
    """What an agent does with its optimiser's state when it is replaced: "keep", "reset" to that at `attach`, or "average": the
    state is exchanged too (torch's SGD, Adam and AdamW)."""

    def __post_init__(self) -> None:
        if self.averaging_frequency < 1:
            raise refused("method.averaging_frequency", self.averaging_frequency, "must be 1 or more")
        if self.updater not in _UPDATERS:
            raise refused("method.updater", self.updater, f"must be one of {', '.join(_UPDATERS)}")

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        return JointShard(mean, state.v, state.k + 1)

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(
            How.REPLACE,
            When.ON_ARRIVAL,
            hold_after=self.averaging_frequency,
            resets_optimizer=self.updater == "reset",
            exchanges_optimizer=self.updater == "average",
        )
