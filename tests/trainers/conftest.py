"""An agent in this process, whose trainer is the real one, with an executor's end of the pipe in the test."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from mpca.agent.context import AgentContext, current, enter
from mpca.wire.messages import Begin, Hello, Message, Start, Stop
from tests.support.pipe import START, PipeEnds


class Agent:
    """What the agent has told, and what it counted."""

    def __init__(self, ends: PipeEnds, start: Start) -> None:
        self._ends = ends
        ends.say(start)
        ends.link.receive(None)
        enter(AgentContext.make(start, ends.link))
        self.context.loop._next_metrics = float("inf")  # what it logs stays here for the test, and is not sent
        self.heard: list[Message] = []
        ends.say(Begin())

    @property
    def context(self) -> AgentContext:
        """Not kept here, since optimisers live in it."""
        found = current()
        assert found is not None
        return found

    def leave(self) -> None:
        if self.context.attached:
            os.close(self.hello.segment_fd)
        enter(None)
        gc.collect()  # trainers are cycles, and the next attach would wait for an optimiser that lives in one

    @property
    def hello(self) -> Hello:
        if not self.heard:
            self.heard = self._ends.heard()
        (one,) = (one for one in self.heard if isinstance(one, Hello))
        return one

    @property
    def updates(self) -> int:
        return self.context.loop._machine.updates

    @property
    def samples(self) -> int:
        return self.context.loop.samples

    @property
    def logged(self) -> dict[str, float]:
        """Means since they were asked for last."""
        return self.context.metrics.take()

    def stop(self) -> None:
        self._ends.say(Stop("reached"))


@pytest.fixture(scope="package")
def imported() -> Iterator[None]:
    """What was imported is left out of collections: it is large, and they are many."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def agent(imported: None) -> Iterator[Callable[..., Agent]]:
    """Makes this process an agent of two, or as the fields of a Start message say; its Begin lies in the pipe."""
    made: list[Agent] = []
    with ExitStack() as stack:

        def become(**start: Any) -> Agent:
            if made:
                made.pop().leave()
            gc.collect()
            made.append(Agent(stack.enter_context(PipeEnds()), replace(START, **start)))
            return made[-1]

        yield become
        for one in made:
            one.leave()
