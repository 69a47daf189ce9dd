"""Runs without faults on real executors: what the ledger says, and that the joint model is the paper's."""

from __future__ import annotations

import zlib
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest

from mpca.records import RunRecord
from tests.spark.engine import Told, run_engine
from tests.spark.jobs import quadratic, regression, skewed
from tests.spark.paper import Recomputed, read_tape, recompute, shard_slices

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARAMETERS, BUFFERS = 300, 7
ALL = PARAMETERS + BUFFERS
CYCLES = 45


def final(told: Told) -> np.ndarray:
    """The joint model as the flat vector."""
    state = told.ended.model_state
    return np.concatenate([state["first"], state["second"], state["walked"]])


def recomputed(told: Told) -> Recomputed:
    return recompute(told.ended.returns[0]["start"], PARAMETERS, told.cycles, read_tape(told.run.folder, ALL))


def broadcast_states(told: Told) -> dict[tuple[int, int], np.ndarray]:
    """(shard, version) -> what agents were given as x*."""
    return {
        (one.shard, one.version): told.run.published[one.broadcast]
        for order in told.run.orders
        for one in order.downloads
        if one.mode == "install"
    }


@pytest.fixture(scope="module")
def calm(spark, work_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Three agents in three executors, three phases, no fault; every agent makes an x_0 of its own."""
    run_dir = tmp_path_factory.mktemp("calm") / "run"
    return run_engine(spark, work_dir, run_dir, quadratic, own_start=True, sets=(f"objectives.max_cycles={CYCLES}",))


def test_the_run_ends_at_its_objective(calm) -> None:
    assert (calm.ended.exit_code, calm.ended.summary["status"]) == (0, "max_cycles")
    assert set(calm.ended.returns) == {0, 1, 2}
    assert calm.ended.summary["steps"] == [calm.ended.returns[agent]["steps"] for agent in range(3)]
    assert calm.ended.summary["samples"] is None, "the function has no loader, and says nothing of samples"


def test_the_ledger_is_consistent(calm) -> None:
    cycles = calm.cycles
    assert [one.cycle for one in cycles] == list(range(len(cycles)))
    assert len(cycles) == CYCLES
    assert all(one.shard == one.cycle % 3 for one in cycles)
    assert all(set(one.contributors) == {0, 1, 2} and one.left_out == {} and one.submissions == 1 for one in cycles)
    assert all(given["incarnation"] == 0 for one in cycles for given in one.contributors.values())
    # alpha, beta, gamma are those of the state that the exchange made
    for one in cycles:
        version = one.cycle // 3 + 1
        taus = [given["tau"] for given in one.contributors.values() if given["tau"]]
        assert one.alpha == pytest.approx(min(0.5, 0.5 * len(taus) / sum(taus)))
        assert one.beta == pytest.approx(0.9 ** (min(version - 1, 20) / 20))
        assert one.gamma == pytest.approx(0.7 * min(1, (version - 1) / 20))


def test_three_phases_work_on_three_shards_at_once(calm) -> None:
    whole = calm.cycles[2 : CYCLES - 3]
    for one in whole:
        assert {name: stage["shard"] for name, stage in one.stages.items()} == {
            "reduce": one.cycle % 3,
            "prepare": (one.cycle - 1) % 3,
            "broadcast": (one.cycle - 2) % 3,
        }
        assert all(stage["start"] <= stage["end"] for stage in one.stages.values())
    for before, after in pairwise(whole):
        ended = max(stage["end"] for stage in before.stages.values())
        assert ended <= after.stages["reduce"]["start"] + 0.005  # clocks of processes on one machine, rounded


def test_bytes_are_those_of_one_shard(calm) -> None:
    sizes = [4 * (one.stop - one.start) for one in shard_slices(ALL)]
    for one in calm.cycles[2 : CYCLES - 3]:
        reduced, sent = sizes[one.shard], sizes[(one.cycle - 2) % 3]
        assert one.bytes["driver_in"] == reduced
        assert one.bytes["out"] == reduced
        assert one.bytes["driver_out"] == sent, "each piece leaves the driver once, whatever K is"
        # each of three ranges is fetched from two others; every executor comes to hold all that is sent
        assert one.bytes["in"] == 2 * reduced + 3 * sent


def test_tau_counts_every_update_once(calm) -> None:
    """Taus of a shard add up to the number of the update after which its bytes were taken."""
    for name, tape in read_tape(calm.run.folder, ALL).items():
        agent = int(name.removeprefix("agent").split("-")[0])
        for shard, piece in enumerate(shard_slices(ALL)):
            given = [one.contributors[agent] for one in calm.cycles if one.shard == shard]
            for one, updates in zip(given, accumulate(one["tau"] for one in given), strict=True):
                assert zlib.crc32(tape[updates - 1, 0, piece].tobytes()) == one["crc"]


def test_agents_start_from_the_same_parameters(calm) -> None:
    """They made different ones; all got agent 0's, buffers included."""
    starts = [calm.ended.returns[agent]["start"] for agent in range(3)]
    assert starts[0][: PARAMETERS - PARAMETERS // 3].max() < 1
    for start in starts[1:]:
        np.testing.assert_array_equal(start, starts[0])


def test_joint_states_are_those_of_equations_4_to_9(calm) -> None:
    expected = recomputed(calm)
    np.testing.assert_allclose(final(calm), expected.x, rtol=1e-5, atol=1e-6)
    states = broadcast_states(calm)
    assert len(states) >= CYCLES - 3
    for key, vector in states.items():
        np.testing.assert_allclose(vector, expected.projected[key], rtol=1e-5, atol=1e-6)
    assert any(np.abs(expected.v[:PARAMETERS]) > 1e-3), "a trajectory that stays at zero would prove nothing"


def test_agents_are_pulled_by_equation_7_towards_what_was_broadcast(calm) -> None:
    """Every displacement of every agent is alpha times its distance to a broadcast state, and versions never go back."""
    states = broadcast_states(calm)
    alphas = {(one.shard, one.version): one.alpha for order in calm.run.orders for one in order.downloads}
    for tape in read_tape(calm.run.folder, ALL).values():
        for shard, piece in enumerate(shard_slices(ALL)):
            piece = slice(piece.start, min(piece.stop, PARAMETERS))  # buffers are not pulled
            version, since = 0, -1  # updates since version 1 was installed
            for updated, pulled in tape[:, :, piece].astype(np.float64):
                since += version > 0
                while not np.allclose(pulled, _pulled(updated, states, alphas, (shard, version), since), rtol=1e-5, atol=1e-6):
                    version += 1
                    since = 0 if version == 1 else since
                    assert (shard, version) in states, "displaced towards no state that there is"
            assert version >= CYCLES // 3 - 3


def _pulled(updated: np.ndarray, states: dict, alphas: dict, key: tuple[int, int], since: int) -> np.ndarray:
    if key not in states:
        return updated
    alpha = max(alphas[key], 0.5 * 0.7**since)
    return updated - alpha * (updated - states[key][: len(updated)])


def test_two_executors_with_two_agents_each_send_one_sum_each(engine) -> None:
    sets = ("cluster.agents=4", "cluster.agents_per_executor=2", "objectives.max_cycles=12")
    told = engine(quadratic, sets=sets, executors=2)
    assert told.ended.exit_code == 0, told.ended.reason
    assert sorted(one.executor_id for one in told.agents("started")) == sorted(2 * list({*told.run.places.values()}))
    assert len(set(told.run.places.values())) == 2
    sizes = [4 * (one.stop - one.start) for one in shard_slices(ALL)]
    for order, done in told.run.reductions:
        assert len(order.reduce.parts) == 2
        # each of two ranges is fetched once, from the other executor: four agents' bytes would be three times that
        assert sum(answer.bytes_in for answer in done.answers) == sizes[order.reduce.shard]
        assert sum(answer.bytes_out for answer in done.answers) == sizes[order.reduce.shard]
        assert done.driver_in == sizes[order.reduce.shard]
    assert all(set(one.contributors) == {0, 1, 2, 3} for one in told.cycles)
    np.testing.assert_allclose(final(told), recomputed(told).x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("reducer", "broadcast"), [("tree", "torrent")])
def test_the_other_transport_computes_the_same(engine, reducer: str, broadcast: str) -> None:
    sets = (f"cluster.reducer={reducer}", f"cluster.broadcast={broadcast}", "objectives.max_cycles=12")
    told = engine(quadratic, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    np.testing.assert_allclose(final(told), recomputed(told).x, rtol=1e-5, atol=1e-6)


def test_sync_with_one_update_is_one_machine_with_a_larger_batch(engine) -> None:
    """DL4J's identity: plain SGD, tau = 1, equal batches."""
    random = np.random.default_rng(5)
    rows = random.normal(size=(480, 6)).astype(np.float32)
    answers = (rows @ np.arange(6) + 0.5 + 0.1 * random.normal(size=480)).astype(np.float32)
    batch, lr, agents = 8, 0.05, 3
    sets = ("method.name=sync", "method.tau=1", "objectives.max_cycles=30")
    told = engine(regression, rows, answers, batch, lr, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    assert all(set(one.contributors) == {0, 1, 2} for one in told.cycles)
    assert {given["tau"] for one in told.cycles for given in one.contributors.values()} == {1}
    weight, bias = np.zeros(6), 0.0
    for step in range(len(told.cycles)):
        first = step * agents * batch % len(rows)
        x, y = rows[first : first + agents * batch].astype(np.float64), answers[first : first + agents * batch]
        wrong = 2 * (x @ weight + bias - y) / len(y)
        weight, bias = weight - lr * (x.T @ wrong), bias - lr * wrong.sum()
    assert np.abs(weight - np.arange(6)).max() < 2.5, "it must have moved"
    np.testing.assert_allclose(told.ended.model_state["weight"][0], weight, atol=1e-5)
    np.testing.assert_allclose(told.ended.model_state["bias"][0], bias, atol=1e-5)


def test_the_exchange_does_the_work(engine) -> None:
    """Agents that see two or three classes each: what one alone learns is useless, the joint model is not."""
    sets = ("cluster.agents=4", "cluster.agents_per_executor=2", "objectives.max_cycles=90")
    work = (*digits("train"), 0.05, 0.004)
    off = engine(skewed, *work, sets=(*sets, "method.alpha=0.0", "method.alpha_start=0.0"))
    assert off.ended.exit_code == 0, off.ended.reason
    own = [digits_error(state) for state in off.ended.returns.values()]
    assert len(own) == 4
    assert min(own) > 0.6
    on = engine(skewed, *work, sets=sets)
    assert on.ended.exit_code == 0, on.ended.reason
    assert digits_error(on.ended.model_state) < 0.3


def digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    from mpca import data

    images, labels = data.load("digits", split).tensors
    return images.flatten(1).numpy(), labels.numpy()


def digits_error(state: dict[str, np.ndarray]) -> float:
    images, labels = digits("test")
    answers = (images @ state["weight"].T + state["bias"]).argmax(axis=1)
    return float((answers != labels).mean())


def test_a_resumed_run_goes_on_where_it_was(engine, tmp_path: Path) -> None:
    """With another number of agents: cycles, time, versions and trajectory go on as if nothing had been."""
    run_dir = tmp_path / "run"
    first = engine(quadratic, run_dir=run_dir, sets=("objectives.max_cycles=14", "backup.interval=1s"))
    assert first.ended.exit_code == 0, first.ended.reason
    middle = len(first.cycles)
    again = engine(quadratic, run_dir=run_dir, resume="auto", sets=("cluster.agents=2", f"objectives.max_cycles={middle + 12}"))
    assert again.ended.exit_code == 0, again.ended.reason
    assert [one.cycle for one in again.cycles] == list(range(len(again.cycles)))
    assert middle == 14
    assert len(again.cycles) == middle + 12
    assert [one.t for one in again.cycles] == sorted(one.t for one in again.cycles)
    runs = [one for one in again.records if isinstance(one, RunRecord)]
    assert [one.attempt for one in runs] == [1, 2]
    assert runs[1].resumed_from == again.ended.summary["resumed_from"]
    assert Path(runs[1].resumed_from).is_relative_to(run_dir / "backups")
    assert again.ended.summary["cycles"] == len(again.cycles)
    for one in again.cycles:
        assert set(one.contributors) == ({0, 1, 2} if one.cycle < middle else {0, 1})
    # agents start from the joint model that was saved, and everything since is the paper's, trajectory included
    np.testing.assert_array_equal(again.ended.returns[1]["start"], final(first))
    expected = recompute(first.ended.returns[0]["start"], PARAMETERS, again.cycles, read_tape(again.run.folder, ALL))
    np.testing.assert_allclose(final(again), expected.x, rtol=1e-5, atol=1e-6)
