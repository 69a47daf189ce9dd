"""Whole runs whose exchange is encoded, on real executors: every sum is what the codec makes of what agents handed over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from mpca.cli.bench.run.waiting import wait
from tests.spark.coded import Coded
from tests.spark.engine import Told
from tests.spark.jobs import quadratic
from tests.spark.paper import read_tape
from tests.spark.support import alive
from tests.support.fake_executor import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARAMETERS, BUFFERS = 300, 7
ALL = PARAMETERS + BUFFERS
NO_BASE = "its executor waits for the base of the codec"


def recomputed(told: Told, codec: str, *, carries: bool = False) -> Coded:
    return Coded(told, read_tape(told.run.folder, ALL), codec, ALL, PARAMETERS, carries=carries)


@pytest.mark.parametrize("codec", ["bf16", "int8", "int4"])
def test_every_sum_is_that_of_the_codec_to_the_bit(engine, codec: str) -> None:
    told = engine(quadratic, own_start=True, sets=(f"cluster.codec={codec}", "objectives.max_cycles=30"))
    assert told.ended.exit_code == 0, told.ended.reason
    assert recomputed(told, codec).checked == len(told.cycles) == 30
    assert all(set(one.contributors) == {0, 1, 2} and one.submissions == 1 for one in told.cycles)


@pytest.mark.parametrize("method", ["mpca-nesterov", "sync"])
@pytest.mark.slow
@pytest.mark.long
def test_what_rounding_leaves_comes_back(engine, method: str) -> None:
    sets = (f"method.name={method}", "cluster.codec=int8", "objectives.max_cycles=30")
    sets += ("method.shards=3",) if method == "mpca-nesterov" else ()
    told = engine(quadratic, own_start=True, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    again = recomputed(told, "int8", carries=method == "sync")
    assert again.checked == len(told.cycles)
    assert max(np.abs(rest).max() for rest in again.rests.values()) > 1e-4, "rests of nothing would prove nothing"


@pytest.mark.slow
@pytest.mark.long
def test_a_delay_corrected_agent_gets_back_what_rounding_left_of_its_snapshot(engine) -> None:
    """Its parameters move by the decoded joint state, less its snapshot, and the rest: by nothing else that would do."""
    sets = ("method.name=mpca-nesterov", "method.shards=3", "cluster.codec=int8", "objectives.max_cycles=24")
    told = engine(quadratic, own_start=True, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    again = recomputed(told, "int8")
    tapes = {int(name.removeprefix("agent").split("-")[0]): tape for name, tape in read_tape(told.run.folder, ALL).items()}
    with_rest = without = 0
    for cycle in told.cycles:
        shard, version = cycle.shard, cycle.cycle // 3 + 1
        piece = again.slices[shard]
        piece = slice(piece.start, min(piece.stop, PARAMETERS))
        size = piece.stop - piece.start
        for agent, given in cycle.contributors.items():
            handed = again.handed(shard, given["crc"])[:size].astype(np.float64)
            rest = again.rests[cycle.cycle, agent][:size]
            moves = np.diff(tapes[agent].reshape(-1, ALL)[:, piece].astype(np.float64), axis=0)[::2]  # while it stepped
            for arrived in again.decoded.get((shard, version), []):
                moved = arrived[:size].astype(np.float64) - handed
                with_rest += any(np.allclose(one, moved + rest, rtol=0, atol=2e-6) for one in moves)
                without += any(np.allclose(one, moved, rtol=0, atol=2e-6) for one in moves)
    assert with_rest > 40
    assert without == 0


@pytest.mark.slow
@pytest.mark.long
def test_two_agents_of_an_executor_hand_over_one_encoded_mean(engine) -> None:
    sets = ("cluster.agents=4", "cluster.agents_per_executor=2", "cluster.codec=int8", "objectives.max_cycles=12")
    told = engine(quadratic, sets=sets, executors=2)
    assert told.ended.exit_code == 0, told.ended.reason
    slices = [ALL // 3, ALL // 3, ALL - 2 * (ALL // 3)]
    coded = [one for one in told.run.reductions if one[0].reduce.cycle >= 6]  # x_0 is alike, so the first ones have no base
    assert len(coded) >= 5
    for order, done in coded:
        assert len(order.reduce.parts) == 2
        assert done.driver_in < 2.2 * slices[order.reduce.shard], "two bytes an element"
        assert sum(answer.bytes_in for answer in done.answers) < 1.3 * slices[order.reduce.shard], "one byte an element"
    assert all(set(one.contributors) == {0, 1, 2, 3} for one in told.cycles)


@pytest.mark.slow
@pytest.mark.long
def test_an_executor_killed_between_freezing_and_summing_changes_no_byte_of_the_others(engine) -> None:
    """The sum is made by those who are left, of the parts that they had encoded; the new executor gets its bases in full."""

    def story(run):
        yield lambda: run.reducing(6)
        lost = run.pid(1)
        run.kill_executor(1)
        wait_until(lambda: not alive(lost), "the end of its agent", 10.0)
        yield lambda: run.takes_part(1, incarnation=1, times=6)
        run.end()

    told = engine(quadratic, story=story, sets=("cluster.codec=int8",))
    assert told.ended.exit_code == 0, told.ended.reason
    assert set(told.cycle(6).contributors) == {0, 2}
    assert told.cycle(6).submissions == 2
    again = recomputed(told, "int8")
    assert again.checked + len(again.plain) == len(told.cycles)
    assert max(again.plain) < 6, "x_0 was alike, so no base of it was sent"
    (lost,) = told.agents("lost")
    assert (lost.index, lost.incarnation) == (1, 0), "who waits for a base is not lost"
    waited = {(cycle, agent) for (cycle, agent), why in told.run.late.items() if why == NO_BASE}
    assert {agent for _, agent in waited} <= {1}
    assert len(waited) <= 3, "once a shard at most"


@pytest.mark.slow
@pytest.mark.long
def test_who_joins_in_mid_run_gets_the_joint_model_as_a_difference_from_a_base_that_its_executor_has_or_fetches(engine) -> None:
    def story(run):
        yield lambda: run.reducing(24)
        run.kill_agent(1)
        yield lambda: run.takes_part(1, incarnation=1, times=6)
        run.kill_executor(2)
        yield lambda: run.takes_part(2, incarnation=1, times=6)
        run.end()

    told = engine(quadratic, story=story, sets=("cluster.codec=int8",))
    assert told.ended.exit_code == 0, told.ended.reason
    joint = {one.broadcast for order in told.run.orders for one in order.downloads if one.mode == "replace"}
    came = {agent: [one for one in told.run.arrived if one.id == (agent, 1) and one.broadcast in joint] for agent in (1, 2)}
    for agent, arrived in came.items():
        assert len({one.broadcast for one in arrived}) == 3, f"agent {agent} has every shard"
        assert 0 < sum(one.bytes_in for one in arrived) < 0.35 * 4 * ALL, "a byte an element, not four"
    waited = [agent for (_, agent), why in told.run.late.items() if why == NO_BASE]
    assert {*waited} <= {1, 2}
    assert max(map(waited.count, (1, 2))) <= 3, "once a shard at most: before its first update two versions may go by"
    again = recomputed(told, "int8")
    assert again.checked + len(again.plain) == len(told.cycles)


@pytest.mark.slow
@pytest.mark.long
def test_a_stopped_agent_goes_on_with_the_bases_of_its_executor(engine) -> None:
    def story(run):
        yield lambda: run.reducing(6)
        run.stop_agent(1)
        yield lambda: any(cycle > 6 and agent == 1 for cycle, agent in run.late)
        back = run.coming.cycle if run.coming is not None else run.orders[-1].cycle
        yield lambda: run.reducing(back + 4)
        os.kill(run.pid(1), signal.SIGCONT)
        yield lambda: run.takes_part(1, incarnation=0, after=back + 4)
        run.end()

    told = engine(quadratic, story=story, sets=("cluster.codec=int8", "cluster.cycle_deadline=1s"))
    assert told.ended.exit_code == 0, told.ended.reason
    again = recomputed(told, "int8")
    assert max(again.plain) < 6
    assert again.checked + len(again.plain) == len([one for one in told.cycles if one.contributors])


@pytest.mark.slow
@pytest.mark.long
def test_a_run_goes_on_from_the_backup_of_another_codec(engine, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    first = engine(quadratic, run_dir=run_dir, sets=("cluster.codec=int8", "objectives.max_cycles=12"))
    assert first.ended.exit_code == 0, first.ended.reason
    again = engine(quadratic, run_dir=run_dir, resume="auto", sets=("cluster.codec=bf16", "objectives.max_cycles=24"))
    assert again.ended.exit_code == 0, again.ended.reason
    assert all(set(one.contributors) == {0, 1, 2} for one in again.cycles)
    assert not again.run.late, "all had their bases by the first freeze"


@pytest.mark.slow
@pytest.mark.long
def test_a_heap_without_room_for_the_default_codec_exchanges_float32(engine) -> None:
    """Executors have 700 MiB; the model has 57, and bases and rests five times that."""
    sets = ("method.name=mpca-nesterov", "method.shards=3", "objectives.max_cycles=6")
    large, small = (engine(wait, size, sets=sets, remember=False) for size in (60_000_000, 60_000))
    assert (large.ended.exit_code, small.ended.exit_code) == (0, 0), (large.ended.reason, small.ended.reason)
    assert {one.bytes["driver_in"] for one in large.cycles} == {20_000_000}
    assert small.cycles[-1].bytes["driver_in"] == 5_000 + 4 * 21, "with room it is int8: bytes, and 21 scales"
