"""Three trainers of the port `agent.trainer.Trainer`, without torch: they stand in for a model and its optimiser.

`advance` takes many updates at once, since the simulator looks at an agent only when something is asked of the agent.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np

from mpca.algorithm.penalty import pull, tilt
from mpca.driver.runner import Runner
from mpca.methods import How
from mpca.sim.costs import Costs

__all__ = ["TRAINERS", "Flat", "IntegerTrainer", "Lesson", "LinearTrainer", "QuadraticTrainer", "SimTrainer"]


class SimTrainer(Protocol):
    """A flat model and its optimiser. `bounds` are shard edges in elements; the first `parameters` are parameters."""

    bounds: list[int]
    parameters: int
    runs: int
    """That the vector has, element-major."""
    loss: float
    """Before the last update; 0: nobody knows it."""

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        """Make updates.

        Args:
            updates: how many.
            pulls: (shard, alpha) of the pulls before each of them (eq. 7).
        """
        ...

    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """Make these pulls (shard, alpha) once, without an update."""
        ...

    def snapshot(self, shard: int, out: np.ndarray) -> None:
        """Copy a shard into `out`, float32."""
        ...

    def install(self, shard: int, data: np.ndarray, version: int, mode: str) -> None:
        """Take an arrival in.

        Args:
            shard: which one.
            data: float32, the joint state.
            version: of it.
            mode: "install": as the method says it; "replace": as the agent's own parameters.
        """
        ...

    def reset_optimizer(self) -> None:
        """Forget the optimiser's state."""
        ...


class Lesson(Protocol):
    """What the agents of a run learn, where that is more than a trainer's own numbers (`science.lesson`)."""

    @property
    def runs(self) -> int:
        """That a vector has, element-major."""
        ...

    def plan(self, shards: int) -> tuple[list[int], int]:
        """Shard edges in elements of the flat vector, and how many of the elements are parameters."""
        ...

    def trainer(self, bounds: list[int], how: How, agent: int, incarnation: int) -> SimTrainer:
        """The trainer of an agent's process, at x_0."""
        ...

    def costs(self, costs: Costs) -> Costs:
        """What things cost, by this lesson's size of an element."""
        ...

    def look(self, runner: Runner) -> None:
        """Called after each of the driver's turns."""
        ...


class Flat:
    """A flat float32 vector: parameters, then buffers that count updates."""

    runs = 1
    loss = 0.0

    def __init__(self, bounds: list[int], parameters: int, how: How) -> None:
        self.bounds, self.parameters = bounds, parameters
        self.x = np.zeros(bounds[-1], np.float32)
        self._how = how
        self._targets: dict[int, np.ndarray] = {}
        #: Delay-corrected: the state that each shard's next arrival answers. Before the first snapshot that is the agent's
        #: first state. After an arrival it is that arrival's state, until the next snapshot. As in `agent.torch_trainer`.
        self._answered: dict[int, np.ndarray] = {}
        # the parameters of each shard
        self._spans = [slice(a, max(a, min(b, parameters))) for a, b in pairwise(bounds)]
        self.begin_at(self.x)

    def begin_at(self, x0: np.ndarray) -> None:
        """The model's own initial parameters."""
        self.x[:] = x0
        self._answered = {shard: self.x[a:b].copy() for shard, (a, b) in enumerate(pairwise(self.bounds))}

    def snapshot(self, shard: int, out: np.ndarray) -> None:
        out[:] = self.x[self.bounds[shard] : self.bounds[shard + 1]]
        if self._how is How.CORRECT:
            self._answered[shard] = out.copy()

    def install(self, shard: int, data: np.ndarray, version: int, mode: str) -> None:
        span = self._spans[shard]
        count = span.stop - span.start
        match How.REPLACE if mode == "replace" else self._how:
            case How.PULL | How.MIX | How.TILT | How.EAGER:
                self._targets[shard] = data[:count].copy()
            case How.REPLACE:
                self.x[self.bounds[shard] : self.bounds[shard + 1]] = self._taken(data)
                self._targets.pop(shard, None)
                self._answered[shard] = data.copy()
            case How.CORRECT:
                self.x[span] += self._taken(data[:count] - self._answered[shard][:count])
                self._answered[shard] = data.copy()

    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """As `SimTrainer.pull`."""
        for shard, alpha in pulls:
            part = self.x[self._spans[shard]]
            part -= self._taken((part - self._targets[shard]) * np.float32(alpha))

    def reset_optimizer(self) -> None:
        """Plain SGD, or none: no state."""

    def _displace(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """Eq. 7, if that is the method's form."""
        for shard, alpha in pulls:
            if shard in self._targets and self._how is not How.TILT:
                pull(self.x[self._spans[shard]], self._targets[shard], alpha)

    def _tilted(self, gradient: np.ndarray, pulls: tuple[tuple[int, float], ...]) -> np.ndarray:
        """The gradient, with eq. 6 if that is the method's form."""
        if self._how is not How.TILT:
            return gradient
        tilted = gradient.copy()
        for shard, alpha in pulls:
            if shard in self._targets:
                span = self._spans[shard]
                tilt(tilted[span], self.x[span], self._targets[shard], alpha)
        return tilted

    @staticmethod
    def _taken(values: np.ndarray) -> np.ndarray:
        return values


class IntegerTrainer(Flat):
    """Whole numbers only, so that a weighted sum of contributions is an equality of integers, without a tolerance.

    A pull or a tilt moves every parameter by the nearest whole number to what n pulls in a row would move it. Values wrap
    around, so that they stay small enough for exact sums however long a run pauses.
    """

    wrap = np.float32(512)

    def __init__(self, bounds: list[int], parameters: int, how: How, agent: int, incarnation: int) -> None:
        super().__init__(bounds, parameters, how)
        self.agent = agent
        # no two agents, nor two incarnations of one, do the same
        self._gradient = np.array([(agent * 3 + incarnation * 5 + j * 7) % 7 - 3 for j in range(bounds[-1])], np.float32)
        self._gradient[parameters:] = 1

    @staticmethod
    def _taken(values: np.ndarray) -> np.ndarray:
        rounded: np.ndarray = np.rint(values)
        return rounded

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        """As `SimTrainer.advance`, in one step: n pulls in a row, then n gradients."""
        x = self.x
        for shard, alpha in pulls:
            target = self._targets.get(shard)
            if target is not None:
                part = x[self._spans[shard]]
                part -= np.rint((part - target) * np.float32(1 - (1 - alpha) ** updates))
        x += self._gradient * np.float32(updates % 512)
        np.fmod(x, self.wrap, out=x)


class LinearTrainer(Flat):
    """x -= lr g with a constant gradient: torch's plain SGD with the loss <g, x>, to the bit since lr is a power of 2."""

    lr = np.float32(0.25)

    def __init__(self, bounds: list[int], parameters: int, how: How, agent: int, incarnation: int) -> None:
        super().__init__(bounds, parameters, how)
        self.gradient = self.gradient_of(bounds[-1], agent)
        self.gradient[parameters:] = 0

    @staticmethod
    def gradient_of(elements: int, agent: int) -> np.ndarray:
        """The constant gradient of an agent, float32[elements]."""
        return np.array([(agent * 5 + j * 3) % 9 - 4 for j in range(elements)], np.float32)

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        """As `SimTrainer.advance`, update by update."""
        for _ in range(updates):
            self._displace(pulls)
            self.x -= self.lr * self._tilted(self.gradient, pulls)


class QuadraticTrainer(Flat):
    """Every agent has an optimum of its own; the mean of them is the joint optimum, at `agent` = (K-1)/2."""

    lr = 0.05

    def __init__(self, bounds: list[int], parameters: int, how: How, agent: int, incarnation: int) -> None:
        super().__init__(bounds, parameters, how)
        self._optimum = np.array([agent + j % 3 for j in range(parameters)], np.float32)

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        """As `SimTrainer.advance`, update by update."""
        mine = self.x[: self.parameters]
        for _ in range(updates):
            self._displace(pulls)
            mine -= np.float32(self.lr) * self._tilted(mine - self._optimum, pulls)


TRAINERS = {"integer": IntegerTrainer, "linear": LinearTrainer, "quadratic": QuadraticTrainer}
