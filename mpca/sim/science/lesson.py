"""What simulated agents learn from data, and how well the joint model knows it: errors of R runs in virtual time.

    outcome, points = learn(Scenario(trainer="mixture", task={"rates": [0.002, 0.004], "seeds": [1, 2]}), seed=0)

simulates the production driver and agents with four runs in one: rates x seeds, the rates outside. `seed` is that of the
schedule; the seeds of the runs draw x_0 and the order of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from mpca import data, models
from mpca.algorithm.sharding import ShardPlan
from mpca.checks import nearest, refused
from mpca.driver.runner import Runner
from mpca.methods import How, from_dict
from mpca.sim.costs import Costs
from mpca.sim.gossip import Gossiped, simulate_gossip
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.science.batches import Batches
from mpca.sim.science.trainer import StackedTrainer

__all__ = ["TASKS", "DataLesson", "Point", "Task", "learn", "task_of"]


@dataclass(frozen=True)
class Task:
    """A net, its data and its optimiser; every rate with every seed is a run."""

    data: str  # of data.DATA_SETS, without options
    model: str  # of models.MODELS
    optimizer: str = "adam"  # of models.OPTIMIZERS
    settings: Mapping[str, Any] = field(default_factory=dict)  # of torch's optimiser, beside the rate
    rates: tuple[float, ...] = (0.003,)
    seeds: tuple[int, ...] = (0,)  # of x_0 and of the order of the data
    batch: int = 16
    tested: int = 4000  # samples of the test split
    sample_seed: int = 0  # draws the data

    @property
    def elements(self) -> int:
        """Elements of one run's model: parameters, and numbers in buffers. For `Costs.element_bytes`."""
        from mpca.models.stacked import Stack

        return Stack(partial(models.create, self.model), [0], [0.1], self.optimizer).elements

    @property
    def runs(self) -> list[tuple[float, int]]:
        """(rate, seed) of each run, in the order of errors."""
        return [(rate, seed) for rate in self.rates for seed in self.seeds]


#: `Scenario.trainer` -> task; `Scenario.task` has what differs.
TASKS = {
    "mixture": Task("mixture", "mixture_mlp"),
    "warped-digits": Task("warped-digits", "warped_convnet"),
}


@dataclass(frozen=True)
class Point:
    """The joint model at one moment. Errors are shares of wrong answers on the test split, a run each; 1: it diverged."""

    t: float  # seconds of training, in virtual time
    cycle: int
    updates: float  # that an agent has made, on average, as far as the simulator has looked
    errors: tuple[float, ...]


def learn(scenario: Scenario, seed: int, every_s: float = 1.0) -> tuple[Outcome | Gossiped, list[Point]]:
    """Simulate a scenario whose trainer is one of `TASKS`. Equal arguments give an equal ledger and equal points.

    Args:
        scenario: what is simulated. `Costs.element_bytes` are those of one run's element.
        seed: of every chance in the schedule.
        every_s: seconds of training between two points.

    Raises:
        ConfigError: no such task, data set, model or optimiser; or agents ask by their losses, and there is more than one run.
        Violation: an invariant does not hold.
    """
    task, method = task_of(scenario), from_dict(scenario.method)
    if len(task.runs) > 1 and method.agent_side.asks_at_loss:
        raise refused("method", dict(scenario.method), "its exchanges depend on losses: one rate and one seed in a simulation")
    lesson = DataLesson(task, every_s, method.agent_side.exchanges_optimizer)
    if method.simulated:
        return simulate_gossip(scenario, seed, lesson, every_s, lesson.point), lesson.points
    outcome = simulate(scenario, seed, lesson=lesson)
    return outcome, lesson.points


def task_of(scenario: Scenario) -> Task:
    """The task of a scenario.

    Raises:
        ConfigError: no such task.
    """
    if scenario.trainer not in TASKS:
        raise refused("trainer", scenario.trainer, f"no such task; {nearest(scenario.trainer, TASKS)}")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in scenario.task.items()}
    return replace(TASKS[scenario.trainer], **given)


class DataLesson:
    """The `Lesson` of a task; one simulation uses it.

    Args:
        task: what is learnt.
        every_s: seconds of training between two points.
        exchanges_optimizer: whether the optimisers' state is a part of what is exchanged.
    """

    def __init__(self, task: Task, every_s: float, exchanges_optimizer: bool = False) -> None:
        from mpca.models.stacked import Stack, one_thread  # here, since the other simulations need no torch

        one_thread()
        self.task, self.points = task, list[Point]()
        rates, seeds = zip(*task.runs, strict=True)
        self._seeds = seeds
        create = partial(models.create, task.model)
        self._judge = Stack(create, seeds, rates, task.optimizer, task.settings, exchanges_optimizer)  # never trained
        self._train = _split(task.data, "train", task.sample_seed)
        self._test = [one[: task.tested] for one in _split(task.data, "test", task.sample_seed)]
        self._stacks: list[Stack] = []
        self._trainers: dict[int, list[StackedTrainer]] = {}  # by agent, over incarnations
        self._every_s, self._next_s = every_s, 0.0

    @property
    def runs(self) -> int:
        """As `Lesson.runs`."""
        return int(self._judge.runs)

    def plan(self, shards: int) -> tuple[list[int], int]:
        """As `Lesson.plan`: a shard is the same part of every run."""
        stack = self._judge
        bounds = ShardPlan.equal(stack.elements, stack.parameters, shards).bounds
        return [stack.runs * edge for edge in bounds], stack.runs * stack.parameters

    def costs(self, costs: Costs) -> Costs:
        """As `Lesson.costs`: the network carries one run's numbers, whatever the number of runs is."""
        return replace(costs, element_bytes=costs.element_bytes / self._judge.runs)

    def trainer(self, bounds: list[int], how: How, agent: int, incarnation: int) -> StackedTrainer:
        """As `Lesson.trainer`."""
        stack = self._judge.twin()
        batches = Batches(self._train, self.task.batch, self._seeds, agent, incarnation)
        made = StackedTrainer(bounds, self._judge.runs * stack.parameters, how, stack, batches)
        self._stacks.append(stack)
        self._trainers.setdefault(agent, []).append(made)
        return made

    def look(self, runner: Runner) -> None:
        """As `Lesson.look`: make a point when it is time."""
        joint, now = runner.joint, runner.trained_s
        if joint is None or now is None or not joint.complete or now < self._next_s:
            return
        self._next_s = (now // self._every_s + 1) * self._every_s
        self.point(now, runner.machine.cycle, lambda: np.concatenate([one.x for one in joint.states if one is not None]))

    def point(self, now: float, cycle: int, newest: Callable[[], np.ndarray]) -> None:
        """Make a point of a model at this time (seconds of training); `cycle` counts exchanges."""
        flat = newest()
        updates = [sum(one.updates for one in made) for made in self._trainers.values()]
        self.points.append(Point(now, cycle, sum(updates) / len(updates), self._errors(flat)))

    def _errors(self, flat: np.ndarray) -> tuple[float, ...]:
        found = self._judge.errors(flat, *self._test)
        for stack in self._stacks:
            found[stack.diverged] = 1.0
        return tuple(float(one) for one in found)


@lru_cache(maxsize=4)
def _split(name: str, split: str, seed: int) -> tuple[Any, Any]:
    """Samples and labels; a process that simulates many scenarios draws them once."""
    samples, labels = data.load(name, split, seed).tensors  # type: ignore[union-attr]
    return samples, labels
