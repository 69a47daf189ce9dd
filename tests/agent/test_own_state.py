"""An agent's own state: saved into memory between two batches, and taken on by another process's agent, bit for bit."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mpca
from mpca.agent.context import AgentContext, enter
from mpca.agent.own_state import check_others, read_state
from mpca.errors import ConfigError
from mpca.wire.messages import Begin, Hello, Install, Message, Progress, SaveState, Start, StateSaved, StateTaken
from mpca.wire.slots import MODES, SlotHeader
from tests.support.pipe import START, PipeEnds

pytestmark = pytest.mark.long

DELAYED = {"name": "mpca", "shards": 2, "correction": True, "gamma": 0.5}
EAGER = {"name": "diloco", "fragments": 2, "overlap": True, "eager": True}


class Agent:
    """One agent after the other plays it, each with a script of its own."""

    def __init__(self, ends: PipeEnds, start: Start, make: type[torch.optim.Optimizer], **numbers: Any) -> None:
        self.ends, self.seen = ends, []
        ends.say(start)
        ends.link.receive(None)
        context = AgentContext.make(start, ends.link)
        enter(context)
        torch.manual_seed(7)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.optimizer = make(self.model.parameters(), lr=0.1, **numbers)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        ends.say(Begin())
        others = {"scheduler": self.scheduler, "mine": self}
        mpca.attach(self.model, self.optimizer, others)
        (self.hello,) = [one for one in self.heard() if isinstance(one, Hello)]

    def heard(self) -> list[Message]:
        return [one for one in self.ends.heard() if not isinstance(one, Progress)]

    def step(self) -> None:
        """Python, NumPy and torch all have their say in it."""
        self.optimizer.zero_grad()
        rows = torch.randn(8, 3) + random.random() + float(np.random.rand())
        self.model(rows).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()
        self.seen.append(round(float(rows.sum()), 4))

    def state_dict(self) -> dict[str, Any]:
        return {"seen": list(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = list(state["seen"])

    def arrives(self, shard: int, version: int, data: torch.Tensor) -> None:
        at = self.hello.slots[1 + shard]
        with open(f"/proc/self/fd/{self.hello.segment_fd}", "r+b") as segment:
            segment.seek(at)
            segment.write(SlotHeader(shard, 2 * version, version, 0, 4 * data.numel(), MODES["install"]).pack())
            segment.write(data.numpy().tobytes())
        self.ends.say(Install(shard, version, "install", 0.25))

    def saved(self, number: int) -> StateSaved:
        """Its state at the end of an iteration, as it says in the next one."""
        self.ends.say(SaveState(number))
        self.step()
        self.there = self.everything()
        self.step()
        (said,) = [one for one in self.heard() if isinstance(one, StateSaved)]
        return said

    def everything(self) -> list[Any]:
        tensors = [*self.model.state_dict().values()]
        for held in self.optimizer.state_dict()["state"].values():
            tensors += [one for one in held.values() if isinstance(one, torch.Tensor)]
        return [one.numpy().tobytes() for one in tensors] + [self.optimizer.param_groups[0]["lr"], list(self.seen)]

    def took(self, said: StateSaved) -> None:
        self.ends.say(StateTaken(said.number))
        self.step()

    def close(self) -> None:
        """An optimiser that lives is one whose `attach` is missing."""
        os.close(self.hello.segment_fd)
        del self.model, self.optimizer, self.scheduler
        enter(None)
        gc.collect()


@pytest.fixture
def ends() -> Iterator[PipeEnds]:
    with PipeEnds() as ends:
        yield ends
        enter(None)
        gc.collect()


def bytes_of(said: StateSaved) -> bytes:
    return Path(f"/proc/self/fd/{said.fd}").read_bytes()


@pytest.mark.parametrize("method", [START.method, DELAYED, EAGER])
@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.AdamW, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.RMSprop, {"momentum": 0.1}),
    ],
)
def test_another_process_goes_on_where_it_was(
    ends: PipeEnds, tmp_path: Path, method: dict[str, Any], make: Any, numbers: dict[str, Any]
) -> None:
    """Every tensor, the rate of the scheduler, and each random number after it."""
    start = replace(START, method=method, shards=method.get("shards", 2))
    before = Agent(ends, start, make, **numbers)
    for _ in range(3):
        before.step()
    elements = before.hello.bounds[1] - before.hello.bounds[0]
    before.arrives(0, 1, torch.linspace(-1, 1, elements))
    before.step()
    before.heard()
    said = before.saved(1)
    assert said.error == ""
    file, data = tmp_path / "agent-0.pt", bytes_of(said)
    file.write_bytes(data)
    assert (said.bytes, said.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    ends.say(StateTaken(1))
    for _ in range(2):
        before.step()
    assert not os.path.exists(f"/proc/self/fd/{said.fd}"), "its memory is free again"
    later = before.everything()
    before.close()

    with PipeEnds() as others:
        state = {"url": str(file), "bytes": said.bytes, "sha256": said.sha256}
        after = Agent(others, replace(start, state=state, incarnation=0, seed=5), make, **numbers)
        assert after.everything() == before.there
        after.step()
        first = [one.steps for one in others.heard() if isinstance(one, Progress)]
        assert first == [1], "its first update is told at once: an agent that waits after a few more says nothing later"
        for _ in range(2):
            after.step()
        assert after.everything() == later
        after.close()


def test_taus_and_targets_go_on_too(ends: PipeEnds, tmp_path: Path) -> None:
    start = replace(START, method={"name": "mpca", "shards": 1, "alpha": 0.25})
    before = Agent(ends, start, torch.optim.SGD)
    before.arrives(0, 4, torch.zeros(before.hello.bounds[1]))
    before.step()
    said = before.saved(1)
    own = read_state(bytes_of(said))["engine"]["machine"]
    assert (own["taus"], own["installed"], own["alphas"]) == ([2], [4], [0.25])
    file = tmp_path / "agent-0.pt"
    file.write_bytes(bytes_of(said))
    before.took(said)
    later = before.everything()
    before.close()
    with PipeEnds() as others:
        state = {"url": str(file), "bytes": said.bytes, "sha256": said.sha256}
        after = Agent(others, replace(start, state=state), torch.optim.SGD)
        assert after.everything() == before.there
        after.step()  # the pull towards the target that came in the first process
        after.step()
        assert after.everything() == later
        said = after.saved(1)
        again = read_state(bytes_of(said))["engine"]["machine"]
        assert (again["taus"], again["installed"]) == ([5], [4])
        after.took(said)
        after.close()


class Odd:
    """Its state is of a class of the script's."""

    def state_dict(self) -> dict[str, Any]:
        return {"x": self}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ([1], r"^state must be a dict of objects by name: state=list; as in mpca\.attach\("),
        ({1: nn.Linear(1, 1)}, r"^state must be a dict of objects by name"),
        ({"a": 3}, r"^state\['a'\] cannot be saved: type=int, it has no state_dict\(\)"),
        ({"a": Odd()}, r"^state\['a'\] cannot be saved: what state_dict\(\) of type=Odd returns is not of tensors"),
    ],
)
def test_what_cannot_be_saved_is_refused_at_once(given: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        check_others(given)


def test_what_is_named_after_the_exchange_has_begun_is_refused(ends: PipeEnds) -> None:
    """It would be saved, and never get back what was."""
    one = Agent(ends, START, torch.optim.SGD)
    with pytest.raises(ConfigError, match=r"^state was given after the exchange had begun: state=\['late'\]; "):
        mpca.attach(one.model, one.optimizer, {"late": torch.amp.GradScaler("cpu")})
    one.close()


def test_a_scaler_can_be_saved() -> None:
    assert set(check_others({"scaler": torch.amp.GradScaler("cpu")})) == {"scaler"}


class OddSGD(torch.optim.SGD):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "odd": Odd()}


def test_an_optimiser_whose_state_cannot_be_read_back_is_told_when_it_is_saved(ends: PipeEnds) -> None:
    one = Agent(ends, START, OddSGD)
    said = one.saved(1)
    one.close()
    assert said.fd == -1
    assert "Odd" in said.error or "weights_only" in said.error.lower() or "Weights only" in said.error


@pytest.fixture
def saved(ends: PipeEnds, tmp_path: Path) -> dict[str, Any]:
    one = Agent(ends, START, torch.optim.Adam)
    said = one.saved(1)
    file = tmp_path / "agent-0.pt"
    file.write_bytes(bytes_of(said))
    one.took(said)
    one.close()
    return {"url": str(file), "bytes": said.bytes, "sha256": said.sha256}


def refusal(state: dict[str, Any], make: Any) -> str:
    """What an agent says that cannot go on from this state."""
    with PipeEnds() as others:
        try:
            Agent(others, replace(START, state=state), make)
        except ConfigError as error:
            said = str(error)
        segments = [one for one in others.heard() if isinstance(one, Hello)]
    enter(None)
    os.close(segments[0].segment_fd)
    return said


def test_another_optimiser_than_the_one_that_was_saved_is_refused(saved: dict[str, Any]) -> None:
    assert re.match(
        "the script has other optimizers.*'SGD'.*'Adam'.*; to begin at the joint model, resume with",
        refusal(saved, torch.optim.SGD),
    )


@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_damaged_bytes_are_refused_by_their_place(saved: dict[str, Any], damage: str) -> None:
    path = Path(saved["url"])
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-5:]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert refusal(saved, torch.optim.Adam).startswith(f"this agent's state in the backup is damaged: path={path}, bytes=")
