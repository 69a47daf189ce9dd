"""Runs whose exchange is encoded, under faults: joint model and rests conserve every sum (I2), base, I4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpca.algorithm.codecs import Codec
from mpca.algorithm.rests import Rests
from mpca.driver.bases import Bases
from mpca.errors import ConfigError
from mpca.sim import coded
from mpca.sim.check import Violation
from mpca.sim.cluster import SimCluster
from mpca.sim.coded import Coding, StackedCodec
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault
from mpca.sim.run import Outcome, Scenario, simulate, standard_scenario
from mpca.sim.world import World
from tests.sim.support import random_scenario

pytestmark = pytest.mark.long

CODECS = [one.value for one in Codec]
METHODS: dict[str, dict[str, Any]] = {
    "pulled": {"name": "mpca", "gamma_ramp": 0, "beta_ramp": 5},
    "corrected": {"name": "mpca-nesterov", "shards": 4},
    "replaced": {"name": "sync", "tau": 5},
    "eager": {"name": "diloco", "period": 6, "fragments": 3, "overlap": True, "eager": True},
}
PLAIN = Scenario(agents=4, cycles=15, parameters=700, costs=Costs(element_bytes=6000.0))

every = pytest.mark.parametrize("codec", CODECS)
by_each = pytest.mark.parametrize("method", METHODS)


def run(scenario: Scenario, seed: int = 3, **rest: Any) -> tuple[Outcome, Coding]:
    """A run, and what was encoded in it."""
    seen: list[SimCluster] = []

    def around(cluster: SimCluster, world: World) -> SimCluster:
        seen.append(cluster)
        return cluster

    outcome = simulate(scenario, seed, around, **rest)
    assert seen[0].coding is not None
    return outcome, seen[0].coding


def distance(one: Outcome, other: Outcome) -> float:
    mine, theirs = np.concatenate(one.joint), np.concatenate(other.joint)
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (20, 40))])
@every
def test_schedules_of_all_kinds(codec: str, first: int) -> None:
    scenarios = [(seed, random_scenario(seed)) for seed in range(first, first + 20)]
    ended = [simulate(replace(one, codec=codec), seed) for seed, one in scenarios if one.method["name"] != "sync-ps"]
    assert sum(len(one.commits) for one in ended) > 20 * len(ended)


@pytest.mark.parametrize("codec", ["bf16", "int4"])
def test_standard_schedules(codec: str) -> None:
    for seed in range(12):
        simulate(replace(standard_scenario(seed), codec=codec, trainer="linear"), seed)


@by_each
@every
def test_the_joint_model_is_near_the_one_without_a_codec(codec: str, method: str) -> None:
    """With whole numbers that wrap the trainer is chaotic, so a linear one: what differs is rounding alone."""
    scenario = replace(PLAIN, method=METHODS[method], trainer="linear")
    outcome, coding = run(replace(scenario, codec=codec))
    assert distance(outcome, simulate(scenario, 3)) < {"bf16": 1 / 256, "int8": 1 / 127, "int4": 1 / 7}[codec]
    assert coding.in_full == 0  # x_0 is where all begin: nobody needs it


@by_each
@every
def test_tasks_that_run_again_change_nothing(codec: str, method: str) -> None:
    scenario = replace(PLAIN, method=METHODS[method], codec=codec)
    cycle = next(one.cycle for one in run(scenario)[0].commits if one.cycle > 5)
    faults = tuple(Fault("retry_task", 1, cycle - back, "freezing", after_s=0.0005 * n) for back in (0, 1) for n in range(16))
    again, _ = run(replace(scenario, faults=faults))
    plain, _ = run(scenario)
    assert len(again.faults) >= 16
    assert again.ledger == plain.ledger
    assert all(one.tobytes() == other.tobytes() for one, other in zip(again.joint, plain.joint, strict=True))


@by_each
@every
@pytest.mark.parametrize("kind", ["kill_agent", "kill_executor"])
@pytest.mark.parametrize("point", ["frozen", "reducing"])
def test_a_kill_between_freeze_and_sum(codec: str, method: str, kind: str, point: str) -> None:
    fault = Fault(kind, 1, 6, point)
    outcome, coding = run(replace(PLAIN, cycles=40, method=METHODS[method], codec=codec, faults=(fault,)))
    assert outcome.faults == [fault]
    assert all(set(one.contributors) == {0, 1, 2, 3} for one in outcome.commits[-5:])
    assert coding.in_full > 0 or kind == "kill_agent"
    assert coding.rounding, "what it joined at was encoded"


@every
def test_an_executor_that_missed_two_versions_gets_the_base_in_full_and_is_in_no_sum_before(codec: str) -> None:
    fault = Fault("stop_agent", 2, 6, "started", for_s=14.0)
    scenario = replace(PLAIN, cycles=120, deadline_s=2.0, method=METHODS["pulled"], codec=codec, faults=(fault,))
    outcome, coding = run(scenario)
    assert outcome.faults == [fault]
    assert coding.in_full > 0
    assert any(2 not in one.contributors for one in outcome.commits)
    assert 2 in outcome.commits[-1].contributors


@by_each
@every
def test_one_that_joins_later_gets_the_bases_in_full(codec: str, method: str) -> None:
    join = Fault("join", 0, 5, "started")
    outcome, coding = run(replace(PLAIN, cycles=40, executors=3, method=METHODS[method], codec=codec, faults=(join,)))
    assert coding.in_full > 0
    assert 3 not in outcome.commits[0].contributors
    assert 3 in outcome.commits[-1].contributors


@every
@pytest.mark.parametrize("shards", [3, 5])
def test_a_run_goes_on_from_a_backup_with_any_number_of_shards(codec: str, shards: int) -> None:
    scenario = replace(PLAIN, cycles=30, codec=codec, method={"name": "mpca", "shards": 3}, save_every_s=1.0)
    whole, _ = run(scenario)
    saved = next(one for one in whole.saved if one.state.cycle > 5)
    # agents of another cut cannot go on where they were: they take the joint model
    begin = saved if shards == 3 else replace(saved, state=replace(saved.state, agents={}))
    method = {"name": "mpca", "shards": shards}
    again, coding = run(replace(scenario, method=method, cycles=saved.state.cycle + 20), begin=begin)
    assert [len(one.contributors) for one in again.commits[-5:]] == [4] * 5
    assert coding.in_full == 0  # all were sent the joint model before they began: it is the first base


@every
def test_an_automatic_cut_has_bases_of_its_own(codec: str) -> None:
    method = {"name": "mpca-nesterov", "shards": "auto"}
    outcome, _ = run(replace(PLAIN, method=method, codec=codec, parameters=5000))
    assert len(outcome.commits) == 15


def test_methods_whose_agents_ask_have_no_codec() -> None:
    with pytest.raises(ConfigError, match="codec = 'int8': agents of async-ps ask"):
        simulate(replace(PLAIN, codec="int8", method={"name": "async-ps"}), 3)


def test_stacked_runs_are_rounded_as_if_each_were_alone() -> None:
    rng = np.random.default_rng(4)
    runs = [(rng.standard_normal(300) * scale).astype(np.float32) for scale in (1, 1e-3, 1e3)]
    stacked = np.stack(runs, axis=1).reshape(-1)
    for codec in Codec:
        coder = StackedCodec(codec, 3)
        decoded = coder.decode(coder.encode(stacked, 3 * 280), 900, 3 * 280).reshape(300, 3)
        for number, alone in enumerate(runs):
            assert decoded[:, number].tobytes() == codec.decode(codec.encode(alone, 280), 300, 280).tobytes()


# ---- each check has teeth ----------------------------------------------------------------------------------------------

INT4 = replace(PLAIN, codec="int4", cycles=30, trainer="linear")  # whole numbers are too easily rounded


def red(invariant: str, *scenarios: Scenario) -> None:
    for scenario in scenarios:
        with pytest.raises(Violation) as caught:
            simulate(scenario, 3)
        assert caught.value.invariant == invariant, caught.value


def test_a_rest_that_is_kept_and_never_added_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Rests.encode

    def forgets(self: Rests, what: Any, cycle: int, values: Any, p: int, after: int | None = None, ranges: Any = None) -> bytes:
        before = self.rest(what, after, values.size, ranges)
        return encode(self, what, cycle, values - before, p, after, ranges)

    monkeypatch.setattr(Rests, "encode", forgets)
    red("I2", replace(INT4, method=METHODS["pulled"]), replace(INT4, method=METHODS["replaced"]))


def test_a_rest_of_another_cycle_than_the_driver_took_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Rests.encode

    def newest(self: Rests, what: Any, cycle: int, values: Any, p: int, after: int | None = None, ranges: Any = None) -> bytes:
        return encode(self, what, cycle, values, p, max(self._left.get(what, {}), default=after), ranges)

    monkeypatch.setattr(Rests, "encode", newest)
    faults = tuple(Fault("retry_task", 1, 6, "freezing", after_s=0.0005 * n) for n in range(16))
    red("I4", replace(INT4, method=METHODS["replaced"], faults=faults))


def test_a_base_that_is_not_that_of_the_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    added = coded._added

    def shifted(decoded: Any, base: Any, parameters: int) -> Any:
        return added(decoded, base * np.float32(1.01), parameters)

    monkeypatch.setattr(coded, "_added", shifted)
    red("I2", replace(INT4, method=METHODS["pulled"]))


def test_who_joins_at_the_base_in_place_of_the_joint_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = coded.Coding._encode

    def forgets_the_difference(self: coded.Coding, term: int, one: Any, broadcasts: Any) -> None:
        encode(self, term, one, broadcasts)
        if one.mode == "replace" and one.broadcast in self._coded:
            broadcasts[one.broadcast] = self._driver.get(self._coded[one.broadcast].old)

    monkeypatch.setattr(coded.Coding, "_encode", forgets_the_difference)
    red("I10", replace(INT4, method=METHODS["pulled"], faults=(Fault("kill_agent", 1, 6, "frozen"),)))


def test_an_executor_that_is_asked_without_the_base_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bases, "without", lambda self, base, executors: [])
    red("base", replace(INT4, method=METHODS["pulled"], faults=(Fault("kill_executor", 1, 6, "frozen"),)))
