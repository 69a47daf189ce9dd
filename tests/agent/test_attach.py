"""A torch model that is attached in this process, with an executor's end of the pipe in the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import mpca
from mpca.agent.context import AgentContext, current, enter
from mpca.data.plan import Readers
from mpca.errors import ConfigError
from mpca.wire.messages import Begin, Hello, Install, Message, Progress, Snapshot, SnapshotRequest, Start, Stop
from mpca.wire.slots import MODES, SlotHeader
from tests.data.pictures import ingested
from tests.support.pipe import START, PipeEnds

pytestmark = pytest.mark.long

Becoming = Callable[[Start], PipeEnds]


@pytest.fixture
def become() -> Iterator[Becoming]:
    """Makes this process the agent of a Start message."""
    with PipeEnds() as ends:

        def made(start: Start) -> PipeEnds:
            ends.say(start)
            ends.link.receive(None)
            enter(AgentContext.make(start, ends.link))
            return ends

        yield made
        enter(None)


@pytest.fixture
def hello() -> Iterator[list[Hello]]:
    """Of those that are put here, what their agents hold is closed."""
    said: list[Hello] = []
    yield said
    for one in said:
        os.close(one.segment_fd)


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 1, bias=False)
    model.weight.data[:] = torch.tensor([1.0, 2.0])
    return model, torch.optim.SGD(model.parameters(), lr=1.0)


class Own:
    """A user's class, of which mpca cannot know what it does. It has what `attach` needs, and no more."""

    def __init__(self, parameters: object, lr: float) -> None:
        self.hooks: list[object] = []

    def register_step_post_hook(self, hook: object) -> None:
        self.hooks.append(hook)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The weights fall by 1, 1."""
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def but_progress(messages: list[Message]) -> list[Message]:
    return [one for one in messages if not isinstance(one, Progress)]


def test_an_attached_model_is_read_after_a_step(become: Becoming, hello: list[Hello]) -> None:
    ends = become(replace(START, agent=1, incarnation=2))
    model, optimizer = trained()
    ends.say(Begin())
    mpca.attach(model, optimizer)
    hello += [one for one in ends.heard() if isinstance(one, Hello)]
    (said,) = hello
    assert (said.agent, said.incarnation, said.pid) == (1, 2, os.getpid())
    assert (said.layout, said.bounds, said.parameters) == ([["weight", [1, 2], "parameter", 0]], [0, 2], 2)
    ends.say(SnapshotRequest(0, 0))
    step(model, optimizer)
    (one,) = but_progress(ends.heard())
    assert isinstance(one, Snapshot)
    assert (one.cycle, one.shard, one.updates) == (0, 0, 1)
    with open(f"/proc/self/fd/{said.segment_fd}", "rb") as segment:
        segment.seek(said.slots[0])
        assert torch.tensor([0.0, 1.0]).numpy().tobytes() in segment.read()


def gradients_in_step(model: nn.Module, optimizer: torch.optim.Optimizer, by_name: bool = False) -> None:
    """As LBFGS wants it, and as Lightning does with every optimiser."""

    def closure() -> float:
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        return 0.0

    optimizer.step(closure=closure) if by_name else optimizer.step(closure)


@pytest.mark.parametrize("step", [step, gradients_in_step, partial(gradients_in_step, by_name=True)])
def test_eq_6_is_in_the_gradient_that_the_optimiser_gets(
    become: Becoming, hello: list[Hello], step: Callable[..., None]
) -> None:
    """x <- x - (1 + alpha (x - x*)), with x* = (5, 1) and alpha = 0.5 from the second update on."""
    method = {"name": "mpca", "shards": 1, "regulariser": True, "alpha": 0.5, "alpha_start": 0.0}
    ends = become(replace(START, method=method))
    model, optimizer = trained()
    ends.say(Begin())
    mpca.attach(model, optimizer)
    hello += [one for one in ends.heard() if isinstance(one, Hello)]
    with open(f"/proc/self/fd/{hello[0].segment_fd}", "r+b") as segment:
        segment.seek(hello[0].slots[1])
        segment.write(SlotHeader(0, 2, 1, 0, 8, MODES["install"]).pack())
        segment.write(torch.tensor([5.0, 1.0]).numpy().tobytes())
    ends.say(Install(0, 1, "install", 0.5))
    step(model, optimizer)
    assert model.weight.tolist() == [[0.0, 1.0]]
    step(model, optimizer)
    assert model.weight.tolist() == [[0.0 - (1 - 2.5), 1.0 - 1]]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (torch.optim.Adam, "optimizer=Adam"),
        (lambda of, lr: torch.optim.SGD(of, lr, momentum=0.9), "optimizer=SGD, momentum=0.9"),
        (lambda of, lr: torch.optim.SGD([{"params": of}], lr), ""),
        (Own, ""),
    ],
)
def test_a_method_that_takes_updates_for_gradients_refuses_optimisers_that_are_not_plain_sgd(
    become: Becoming, hello: list[Hello], make: Callable, what: str
) -> None:
    ends = become(replace(START, method={"name": "sync-ps"}, shards=1))
    model, _ = trained()
    ends.say(Begin())
    if what:
        with pytest.raises(ConfigError, match=f"^method sync-ps takes.*{what}.*torch.optim.SGD without momentum"):
            mpca.attach(model, make(model.parameters(), 0.1))
        return
    mpca.attach(model, make(model.parameters(), 0.1))
    hello += [one for one in ends.heard() if isinstance(one, Hello)]


AVERAGES = {"name": "dl4j-averaging", "updater": "average"}


def test_an_optimisers_state_is_said_behind_the_model_by_a_method_that_averages_it(
    become: Becoming, hello: list[Hello]
) -> None:
    ends = become(replace(START, method=AVERAGES))
    model, _ = trained()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    ends.say(Begin())
    mpca.attach(model, optimizer)
    hello += [one for one in ends.heard() if isinstance(one, Hello)]
    state = ["weight/momentum_buffer", [1, 2], "updater", 2]
    assert (hello[0].layout, hello[0].bounds) == ([["weight", [1, 2], "parameter", 0], state], [0, 4])
    assert (hello[0].parameters, hello[0].shards) == (2, 1)
    with pytest.raises(
        ConfigError, match=r"^method dl4j-averaging averages.*attached after the first exchange: optimizer=Adam"
    ):
        mpca.attach(model, torch.optim.Adam(model.parameters()))


def test_a_method_that_averages_optimisers_refuses_those_that_it_does_not_know(become: Becoming) -> None:
    become(replace(START, method=AVERAGES))
    model, _ = trained()
    with pytest.raises(ConfigError, match=r"^method dl4j-averaging averages.*optimizer=.*test_attach\.Own;"):
        mpca.attach(model, Own(model.parameters(), 0.1))


def test_eq_6_needs_an_optimiser_with_a_hook_before_its_step(become: Becoming) -> None:
    become(replace(START, method={"name": "mpca", "shards": 1, "regulariser": True, "alpha": 0.5}))
    model, _ = trained()
    with pytest.raises(ConfigError, match=r"^not an optimizer: type=Own, it has no register_step_pre_hook; "):
        mpca.attach(model, Own(model.parameters(), 0.1))  # type: ignore[arg-type]


def test_the_mean_of_what_is_logged_and_what_is_counted_go_with_progress(become: Becoming, hello: list[Hello]) -> None:
    ends = become(START)
    model, optimizer = trained()
    ends.say(Begin())
    mpca.attach(model, optimizer)
    hello += [one for one in ends.heard() if isinstance(one, Hello)]
    mpca.log(loss=torch.tensor(0.75, requires_grad=True), rate=2)
    mpca.log(loss=torch.tensor(0.25))
    mpca.samples(8)
    step(model, optimizer)
    (said,) = ends.heard()
    assert isinstance(said, Progress)
    assert (said.steps, said.samples, said.metrics) == (1, 8, {"loss": 0.5, "rate": 2.0})


def test_who_it_is_is_said_by_the_run(become: Becoming) -> None:
    ends = become(replace(START, agent=2, agents=5, device="cpu"))
    assert (mpca.rank(), mpca.world_size(), mpca.device()) == (2, 5, torch.device("cpu"))
    assert not mpca.stopping()
    ends.say(Stop("enough"))
    assert mpca.stopping()


def test_agents_share_a_data_set_by_the_seed_of_their_run(become: Becoming) -> None:
    def share(agent: int, seed: int) -> list[int]:
        enter(AgentContext.make(replace(START, agent=agent, agents=3, seed=seed), ends.link))
        return [int(one) for batch in mpca.shard(list(range(30)), batch_size=4, epochs=1) for one in batch]

    ends = become(START)
    shares = [share(agent, seed=7) for agent in range(3)]
    assert sorted(one for part in shares for one in part) == list(range(30))
    assert share(0, seed=7) == shares[0]
    assert share(0, seed=8) != shares[0]


class Counted(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(30))


def test_of_a_data_set_without_indices_each_agent_has_every_nth_sample(become: Becoming) -> None:
    become(replace(START, agent=1, agents=3))
    share = mpca.shard(Counted(), batch_size=4, epochs=1)
    assert [int(one) for batch in share for one in batch] == list(range(1, 30, 3))


def test_a_gpu_decodes_the_data_set_of_an_agent_that_has_one_and_no_other(become: Becoming, tmp_path: Path) -> None:
    conf = {"data": {"name": "imagenet", "path": str(ingested(tmp_path)), "decoder": "cuda"}}
    become(replace(START, agent=0, agents=1, conf=conf))
    with pytest.raises(ConfigError, match=r"data\.decoder = 'cuda': agents have no GPU: cluster\.device = 'cpu'"):
        mpca.dataset("train")


def test_a_joiner_reads_its_stream_from_the_epoch_that_it_was_told_and_everybody_alone_reads_to_test(
    become: Becoming, tmp_path: Path
) -> None:
    """It hears of the readers before it begins, and so before its train function asks for data."""
    conf = {"data": {"name": "imagenet", "path": str(ingested(tmp_path, classes=2, each=4, withheld=1))}}
    become(replace(START, agent=1, incarnation=1, conf=conf))
    context = current()
    assert context is not None
    context.loop.reading.told(Readers.of(2).lose(1, 0, 0).join(1, 4).to_dict())
    assert mpca.dataset("validation").position == (0, 0)
    assert [len(labels) for _, labels in mpca.dataset("validation", 4, epochs=3)] == [3], "one of two in each epoch"
    assert context.loop.reading.position == []
    assert mpca.dataset("train").position == (4, 0)
    assert context.loop.reading.position == [4, 0, 4]
