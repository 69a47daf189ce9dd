"""`mpca.attach` in this process, as an agent whose executor has said Begin: what is said, what counts, what is refused."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import mpca
from mpca.agent.context import AgentContext, enter
from mpca.agent.link import Link
from mpca.errors import ConfigError
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Begin, Hello, Message, Start

pytestmark = pytest.mark.long


class Executor:
    """The other ends of the agent's pipes."""

    def __init__(self) -> None:
        (self._read, theirs_write), (theirs_read, self._write) = os.pipe(), os.pipe()
        self._ends = (self._read, self._write, theirs_read, theirs_write)
        self.link = Link(theirs_read, theirs_write)
        self._reader = FrameReader()
        os.set_blocking(self._read, False)

    def say(self, message: Message) -> None:
        os.write(self._write, encode(message))

    def told(self) -> list[Message]:
        try:
            return list(self._reader.feed(os.read(self._read, 1 << 16)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


@pytest.fixture
def executor() -> Iterator[Executor]:
    gc.collect()
    left = [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]
    assert left == [], "another test has left an optimiser, which attach would wait for"
    other = Executor()
    yield other
    other.close()


@pytest.fixture
def agent(unbegun: AgentContext, executor: Executor) -> AgentContext:
    """... whose Begin lies in the pipe."""
    executor.say(Begin())
    return unbegun


@pytest.fixture
def unbegun(executor: Executor) -> Iterator[AgentContext]:
    """This process is agent 0 of one."""
    executor.say(Start(0, 0, 1, "test", 1, 1, False, {"name": "mpca", "shards": 1}, "train", b""))
    (start,) = executor.link.receive(None)
    assert isinstance(start, Start)
    context = AgentContext.make(start, executor.link)
    enter(context)
    yield context
    enter(None)
    if context.loop._segment is not None:  # the kernel frees it with an agent's process
        context.loop._segment.close()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.5)


def hello(executor: Executor) -> Hello:
    (found,) = (one for one in executor.told() if isinstance(one, Hello))
    return found


def updates(context: AgentContext) -> int:
    return context.loop._machine.updates


def test_a_model_alone_is_said_under_its_own_names_at_its_attach(agent: AgentContext, executor: Executor) -> None:
    model = nn.Linear(3, 2)
    mpca.attach(model, sgd(model))
    said = hello(executor)
    assert said.layout == [["weight", [2, 3], "parameter", 0], ["bias", [2], "parameter", 6]]
    assert (said.local, said.tied, said.bounds, said.parameters) == ({}, {}, [0, 8], 8)


Attach = Callable[[nn.Module, nn.Module, torch.optim.SGD, torch.optim.SGD], None]


def again(g, d, og, od) -> None:
    mpca.attach(g, og)
    mpca.attach(d, od)


def again_by_name(g, d, og, od) -> None:
    mpca.attach({"g": g}, og)
    mpca.attach({"d": d}, od)


@pytest.mark.parametrize(
    ("attach", "names"),
    [
        (again, ("0", "1")),
        (again_by_name, ("g", "d")),
        (lambda g, d, og, od: mpca.attach([g, d], [og, od]), ("0", "1")),
        (lambda g, d, og, od: mpca.attach({"g": g, "d": d}, {"d": od, "g": og}), ("g", "d")),
    ],
)
def test_two_models_are_one_exchange(agent: AgentContext, executor: Executor, attach: Attach, names: tuple[str, str]) -> None:
    g, d = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1, affine=False)), nn.Linear(1, 1, bias=False)
    attach(g, d, sgd(g), sgd(d))
    first, second = names
    said = hello(executor)
    assert [(row[0], row[2], row[3]) for row in said.layout] == [
        (f"{first}.0.weight", "parameter", 0),
        (f"{first}.0.bias", "parameter", 2),
        (f"{second}.weight", "parameter", 3),
        (f"{first}.1.running_mean", "buffer", 4),
        (f"{first}.1.running_var", "buffer", 5),
    ]
    assert list(said.local) == [f"{first}.1.num_batches_tracked"]


def test_the_first_of_two_calls_says_nothing_yet(agent: AgentContext, executor: Executor) -> None:
    g, d = nn.Linear(2, 1), nn.Linear(1, 1)
    og, od = sgd(g), sgd(d)
    mpca.attach(g, og)
    assert (executor.told(), agent.watch) == ([], None)
    mpca.attach(d, od)
    assert hello(executor).parameters == 3 + 2


def test_wrappers_are_no_part_of_a_name(agent: AgentContext, executor: Executor) -> None:
    trunk = nn.Linear(2, 2, bias=False)
    g = nn.DataParallel(nn.Sequential(trunk, nn.BatchNorm1d(2)))
    d = nn.Sequential(nn.DataParallel(trunk), nn.Linear(2, 1))
    mpca.attach({"g": g, "d": d}, [sgd(g), sgd(d)])
    said = hello(executor)
    assert [row[0] for row in said.layout if row[2] == "parameter"] == [
        "g.0.weight", "g.1.weight", "g.1.bias", "d.1.weight", "d.1.bias",
    ]  # fmt: skip
    assert (list(said.local), said.tied) == (["g.1.num_batches_tracked"], {"d.0.weight": "g.0.weight"})


def test_an_update_is_a_round_of_all_optimisers(agent: AgentContext) -> None:
    g, d = nn.Linear(2, 1), nn.Linear(1, 1)
    og, od = sgd(g), sgd(d)
    again(g, d, og, od)
    counted = []
    for optimizer in (od, od, od, og, od, og):
        optimizer.step()
        counted.append(updates(agent))
    assert counted == [0, 0, 0, 1, 1, 2]


def test_another_optimiser_of_the_same_model_may_come_later(agent: AgentContext) -> None:
    model = nn.Linear(2, 1)
    first = sgd(model)
    mpca.attach(model, first)
    first.step()
    second = sgd(model)
    mpca.attach(model, second)
    mpca.attach(model, second)
    for optimizer in (first, second, first, second):
        optimizer.step()
    assert updates(agent) == 3
    first.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    first.step()
    with pytest.raises(ConfigError, match="the optimizer was given a parameter after attach"):
        second.step()


def test_a_model_that_was_made_after_the_exchange_began_is_refused(agent: AgentContext) -> None:
    g = nn.Linear(2, 1)
    mpca.attach(g, sgd(g))
    d = nn.Linear(1, 1)
    with pytest.raises(ConfigError, match=r"after the exchange had begun: model=Linear, parameters=2, .* before the first"):
        mpca.attach(d, sgd(d))


def test_an_optimiser_that_was_forgotten_ends_the_first_step_and_the_functions_return(unbegun, executor: Executor) -> None:
    g, d = nn.Linear(2, 1), nn.Linear(1, 3)
    og, od = sgd(g), sgd(d)
    mpca.attach(g, og)
    says = r"before mpca.attach and is not attached: optimizer=SGD, parameters=2, first_shape=\[3, 1\].*give it to mpca.attach"
    with pytest.raises(ConfigError, match=says):
        og.step()
    with pytest.raises(ConfigError, match=says):
        unbegun.check_begun()
    executor.say(Begin())
    mpca.attach(d, od)
    og.step()
    unbegun.check_begun()


def test_what_is_made_after_attach_is_the_agents_own(agent: AgentContext) -> None:
    model, own = nn.Linear(2, 1), nn.Linear(1, 1)
    optimizer = sgd(model)
    mpca.attach(model, optimizer)
    other = sgd(own)
    for one in (optimizer, other, optimizer):
        one.step()
    agent.check_begun()
    assert updates(agent) == 2


def test_what_is_no_optimiser_is_refused(agent: AgentContext) -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(
        ConfigError, match=r"not an optimizer: type=Linear, .* takes a torch.optim.Optimizer, or a list of them"
    ):
        mpca.attach(model, [sgd(model), model])
