"""Methods whose agents ask by themselves, on real executors: the joint model is what its formula makes of what they sent.

The formulas are written out once more here, in float64; nothing of `mpca.algorithm` or `mpca.methods` is used.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from mpca.methods import METHODS
from mpca.wire.agent_ref import AgentId
from tests.spark.engine import Told
from tests.spark.jobs import quadratic, skewed
from tests.spark.paper import read_tape
from tests.spark.test_engine_training import digits, digits_error

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARAMETERS, BUFFERS, AGENTS = 300, 7, 3
EASGD = ("method.name=easgd", "method.tau=4")
OTHERS = ("async-ps", "softsync", "gradient-sharing")


def check_easgd(told: Told) -> None:
    start = told.ended.returns[0]["start"]
    x, parameters = start.astype(np.float64), len(start) - BUFFERS
    share = np.where(np.arange(len(x)) < parameters, 0.9, 1.0) / AGENTS
    for one in told.exchanges:
        assert one.share == pytest.approx(0.9 / AGENTS)
        x += share * (told.run.sent[AgentId(one.agent, one.incarnation), one.number] - x)
    state = told.ended.model_state
    got = np.concatenate([state["first"], state["second"], state["walked"]])
    np.testing.assert_allclose(got, x, rtol=1e-4, atol=1e-5)
    assert np.abs(got[:parameters] - start[:parameters]).max() > 0.05, "it must have moved"


def test_easgd_moves_the_joint_model_to_each_agent_in_turn(engine: Any) -> None:
    told = engine(quadratic, sets=(*EASGD, "objectives.max_cycles=45"))
    assert told.ended.exit_code == 0, told.ended.reason
    assert set(told.ended.returns) == set(range(AGENTS))
    assert [one.cycle for one in told.exchanges] == list(range(45)), "an exchange is a cycle"
    assert {one.agent for one in told.exchanges} == set(range(AGENTS))
    assert {one.tau for one in told.exchanges} == {4}
    assert told.cycles == []
    tapes = read_tape(told.run.folder, PARAMETERS + BUFFERS).values()
    states = {zlib.crc32(state.tobytes()) for tape in tapes for state in tape[:, 0]}
    sent = {zlib.crc32(vector.tobytes()) for vector in told.run.sent.values()}
    assert sent == {one.crc for one in told.run.exchanges[: len(sent)]}
    assert sent <= states, "what agents had, to the bit"
    check_easgd(told)


@pytest.mark.slow
@pytest.mark.long
def test_a_model_that_travels_in_several_pieces_comes_to_the_driver_and_goes_back(engine: Any) -> None:
    """Blocks of 1 MiB, of which the last is smaller."""
    told = engine(quadratic, 600_000, tape=False, sets=(*EASGD, "objectives.max_cycles=30"))
    assert told.ended.exit_code == 0, told.ended.reason
    sent = {zlib.crc32(vector.tobytes()) for vector in told.run.sent.values()}
    assert sent == {one.crc for one in told.run.exchanges[: len(sent)]}
    check_easgd(told)


@pytest.mark.slow
@pytest.mark.long
def test_easgd_learns_digits_of_which_each_agent_sees_two_or_three(engine: Any) -> None:
    """And a kill in mid-exchange does not hold it up."""

    def story(run):
        yield lambda: run.asks(3, incarnation=0, times=20)
        run.kill_agent(3)
        yield lambda: run.asks(3, incarnation=1, times=5)

    sets = ("cluster.agents=4", "cluster.agents_per_executor=2", "objectives.max_cycles=400")
    told = engine(skewed, *digits("train"), 0.05, 0.004, story=story, sets=(*EASGD, *sets))
    assert told.ended.exit_code == 0, told.ended.reason
    assert digits_error(told.ended.model_state) < 0.3


def test_every_method_whose_agents_ask_is_tried() -> None:
    assert {"easgd", *OTHERS} == {name for name, method in METHODS.items() if method().asks}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.slow
@pytest.mark.long
def test_the_others_learn_the_same(engine: Any, name: str) -> None:
    sets = (f"method.name={name}", "cluster.agents=4", "cluster.agents_per_executor=2", "objectives.max_cycles=1000")
    told = engine(skewed, *digits("train"), 0.05, 0.004, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    assert {one.incarnation for one in told.exchanges} == {0}
    assert digits_error(told.ended.model_state) < 0.3


def test_an_agent_is_killed_in_its_exchange(engine: Any) -> None:
    """Between its Exchange and its Install: what it sent counts, and its replacement starts at the joint model."""

    def story(run):
        yield lambda: run.asks(1, incarnation=0, times=4)
        run.kill_agent(1)
        yield lambda: run.asks(1, incarnation=1, times=4)
        run.end()

    told = engine(quadratic, story=story, sets=EASGD)
    assert told.ended.exit_code == 0, told.ended.reason
    (lost,) = told.agents("lost")
    assert (lost.index, lost.incarnation, lost.reason.split(":")[0]) == (1, 0, "exit code 137")
    (replaced,) = told.agents("replaced")
    assert (replaced.index, replaced.incarnation) == (1, 1)
    numbers = [one.number for one in told.exchanges if (one.agent, one.incarnation) == (1, 0)]
    assert numbers in ([1, 2, 3], [1, 2, 3, 4]), "whether the driver heard of the death first"
    assert {one.incarnation for one in told.exchanges if one.agent != 1} == {0}
    check_easgd(told)


@pytest.mark.slow
@pytest.mark.long
def test_an_executor_is_killed_in_an_exchange(engine: Any) -> None:
    def story(run):
        yield lambda: run.asks(2, incarnation=0, times=4)
        run.kill_executor(2)
        yield lambda: run.asks(2, incarnation=1, times=4)
        run.end()

    told = engine(quadratic, story=story, sets=EASGD)
    assert told.ended.exit_code == 0, told.ended.reason
    assert {(one.index, one.incarnation) for one in told.agents("replaced")} == {(2, 1)}
    assert {one.incarnation for one in told.exchanges if one.agent != 2} == {0}
    check_easgd(told)


def test_an_agent_whose_parameters_are_not_finite_gets_the_joint_model(engine: Any) -> None:
    told = engine(quadratic, poison=(1, 10), sets=(*EASGD, "objectives.max_cycles=60"))
    assert told.ended.exit_code == 0, told.ended.reason
    (bad,) = [one for one in told.exchanges if one.reason]
    assert (bad.agent, bad.number, bad.reason) == (1, 3, "not finite")
    after = [one for one in told.exchanges if one.agent == 1 and one.number > 3]
    assert after, "it goes on"
    assert {one.incarnation for one in told.exchanges} == {0}
