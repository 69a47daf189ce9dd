"""Every number of a three-phase story, recomputed in fractions from what time decided in it.

A three-phase scenario's file determines which shard each cycle exchanges and who contributes, and with that the version of
every joint state, hence beta and gamma. It does not determine tau, nor between which updates an arrival is installed: these
depend on time, so the file has no tau and no CRC. Here they are taken from a simulated run of the story: of each agent the
number of updates between its snapshots and installs, and of these the shard, version and mode. All values are then computed
from the equations (`tests.support.exact`) and compared with that run's ledger and with the bytes that were installed: tau,
alpha with its beginning, the pull, the mean, the joint model, its trajectory and projection.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from mpca.methods import How
from mpca.sim.trainers import TRAINERS, LinearTrainer
from tests.sim.support import play
from tests.support.exact import Driver, Member, crc
from tests.support.script import Script

FILES = sorted((Path(__file__).parents[1] / "golden" / "scenarios").glob("*_three_phases.json"))

Story = dict[tuple[int, int], list[tuple[Any, ...]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Story:
    """(agent, incarnation) -> what was asked of its trainer, in order."""
    story: Story = {}

    class Told(LinearTrainer):
        def __init__(self, bounds: list[int], parameters: int, how: How, agent: int, incarnation: int) -> None:
            super().__init__(bounds, parameters, how, agent, incarnation)
            self.told = story.setdefault((agent, incarnation), [])

        def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
            super().advance(updates, pulls)
            self.told.append(("train", updates))

        def snapshot(self, shard: int, out: np.ndarray) -> None:
            super().snapshot(shard, out)
            self.told.append(("snapshot", shard))

        def install(self, shard: int, data: np.ndarray, version: int, mode: str) -> None:
            super().install(shard, data, version, mode)
            self.told.append(("install", shard, version, mode, crc32(data.tobytes())))

    monkeypatch.setitem(TRAINERS, "told", Told)
    return story


def until_snapshot(member: Member, told: list[tuple[Any, ...]], shard: int) -> tuple[int, list[Fraction]]:
    """Do what the agent did, up to its next contribution of the shard: tau and bytes.

    Passed over are the reading and comparing of x_0, and answers that came too late for their cycle.
    """
    while told:
        kind, *said = told.pop(0)
        if kind == "train":
            member.train(*said)
        elif kind == "install":
            *what, data = said
            assert crc(member.install(*what)) == data
        else:
            tau, taken = member.snapshot(*said)
            if said == [shard] and member.updates:
                return tau, taken
    raise AssertionError("no such snapshot")


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_number_of_three_phases_is_that_of_the_equations_to_the_bit(path: Path, told: Story) -> None:
    script = Script.read(path)
    outcome = play(script, seed=0, trainer="told")
    driver = Driver([j * script.parameters // 3 for j in range(4)])
    members: dict[tuple[int, int], Member] = {}
    for line in outcome.commits:
        parts = []
        for agent, one in sorted(line.contributors.items()):
            name = agent, one["incarnation"]
            member = members.setdefault(name, Member(driver, agent))
            tau, taken = until_snapshot(member, told[name], line.shard)
            assert (tau, crc(taken)) == (one["tau"], one["crc"]), (line.cycle, name)
            parts.append((tau, taken))
        numbers = driver.exchange(line.shard, parts)
        assert {name: getattr(line, name) for name in numbers} == pytest.approx(numbers, rel=1e-12)
    for shard, x in enumerate(outcome.joint):
        assert crc32(x.tobytes()) == crc(driver.states[shard][-1])


def test_five_files() -> None:
    assert len(FILES) == 5
