"""Transports by exact fractions, worked out by hand, and what no transport may do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F
from math import inf

import pytest

from mpca.sim.transports import COORDINATED, Coordinated, Paper, Peers, Relay, Ring, Server, Setting, Slices, Traffic, Tree

#: Four agents, a model of 960 bytes, one byte a second: a model time is 960 s.
HAND = Setting(
    agents=4,
    model_bytes=F(960),
    step_s=F(5),
    rate=F(1),
    latency_s=F(1, 4),
    message_s=F(1, 8),
    job_s=F(3),
    incast=F(1),
    engine_rate=F(1000),
    prepare_rate=F(96),
    copy_rate=F(192),
)
WIRE = Relay(F(1), F(1))


def test_relay_takes_a_model_time_each_way() -> None:
    assert WIRE.reduce_s(HAND, HAND.model_bytes) == F(1, 2) + 960
    assert WIRE.broadcast_s(HAND, HAND.model_bytes) == F(1, 2) + 960
    # two jobs of 3 s, twice 2 latencies, 10 s to prepare
    assert WIRE.exchange_s(HAND, HAND.model_bytes) == 6 + 1 + 2 * 960 + 10


def test_relay_moves_both_shards_through_the_agents_ports() -> None:
    # Of a shard of 320: 240 from peers and 320 of the broadcast come into a port.
    assert WIRE.together_s(HAND, F(320)) == 1 + 560
    assert WIRE.traffic(HAND, F(320)) == Traffic(560, 560, 320, 320)


def test_three_phases_hide_the_preparation_and_two_do_not() -> None:
    three = F(10, 3)  # seconds to prepare a shard of 320
    assert WIRE.cycle_s(HAND, F(320), 3) == 3 + 1 + 560
    assert WIRE.cycle_s(HAND, F(320), 2) == 3 + 1 + 560 + three
    # a third job asks for the shard, and the last of four agents ends its update of 5 s after 4 s
    assert WIRE.cycle_s(HAND, F(320), 1) == 3 + 4 + 6 + 1 + 640 + three
    slow = replace(HAND, prepare_rate=F(1, 2))
    assert WIRE.cycle_s(slow, F(320), 3) == 3 + 640


def test_a_short_cycle_waits_for_the_last_agents_update() -> None:
    # Both shards of 4 bytes take 1 + 7 s. A reduction takes 1/2 + 4 s, and 4 s later the last agent hands over the next shard.
    assert WIRE.cycle_s(HAND, F(4), 3) == 3 + max(8, F(9, 2) + 4)


def test_relay_is_slower_by_what_was_measured() -> None:
    assert Relay().reduce_s(HAND, F(960)) == 0.5 + 1.4 * 960
    assert Relay().together_s(HAND, F(320)) == 1 + 1.125 * 560


@pytest.mark.parametrize(
    ("agents", "mib", "mbit", "kappa", "period_over_b"),
    [
        (4, 16, 30, 2.60, 1.97), (4, 24, 30, 2.59, 1.94), (4, 16, 100, 2.71, 2.05), (4, 24, 100, 2.72, 1.98),
        (8, 16, 30, 3.00, 2.27), (8, 24, 30, 2.98, 2.11),
    ],
)  # fmt: skip
def test_relay_is_within_a_tenth_of_what_the_bench_measured(
    agents: int, mib: int, mbit: int, kappa: float, period_over_b: float
) -> None:
    """All valid results of `mpca bench exchange` on shaped links; its agents only wait."""
    rate = mbit * 1e6 / 8 * 0.957  # of one TCP stream: 3.42 MiB/s of 30 Mbit/s
    at = Setting(agents, mib << 20, 0, rate)
    b_s = at.model_bytes / rate
    assert Relay().exchange_s(at, at.model_bytes) / b_s == pytest.approx(kappa, rel=0.1)
    assert 3 * Relay().cycle_s(at, at.model_bytes / 3, 3) / b_s == pytest.approx(period_over_b, rel=0.1)


def test_messages_of_many_executors_are_a_limit_of_their_own() -> None:
    many = replace(HAND, agents=64, rate=F(10**6))
    assert WIRE.broadcast_s(many, F(960)) == F(1, 2) + F(5 * 64, 8)
    assert WIRE.together_s(many, F(960)) == 1 + F(5 * 64, 8)


def test_incast_and_a_narrow_driver() -> None:
    crowded = replace(HAND, incast=F(2), driver_rate=F(3))
    assert crowded.narrow == 1
    assert WIRE.reduce_s(crowded, F(960)) == F(1, 2) + 960  # 2/3 s a byte at the driver, 1 s at an agent
    assert WIRE.broadcast_s(crowded, F(960)) == F(1, 2) + 2 * 960
    narrow = replace(HAND, driver_rate=F(1, 3))
    assert WIRE.reduce_s(narrow, F(960)) == F(1, 2) + 3 * 960
    assert Server.service_s(narrow, F(960)) == F(1, 4) + 3 * 960
    alone = replace(crowded, agents=1)
    assert alone.crowd == 1


def test_tree_stores_and_forwards_and_torrent_seeds() -> None:
    tree = Tree(F(1))
    assert HAND.depth == 3  # four agents below a driver: rounds of 1, 2 and 1 more
    assert tree.reduce_s(HAND, F(960)) == F(3, 4) + 3 * 960
    assert tree.broadcast_s(HAND, F(960)) == pytest.approx(float(F(3, 4) + F(25, 12) * 960))
    moved = tree.traffic(HAND, F(960))
    assert moved.driver_in == 3 * 960
    assert moved.driver_out == pytest.approx(2000)
    assert moved.agent_in == F(960 + 240)
    assert moved.agent_out == pytest.approx(960 + 460)


def test_paper_is_its_line_at_eight_agents() -> None:
    at = replace(HAND, agents=8)
    assert Paper().exchange_s(at, F(960)) == pytest.approx(0.54 + 12.3 * 960)
    assert Paper().cycle_s(at, F(320), 3) == pytest.approx(0.27 + 9.84 * 320)
    assert Paper().cycle_s(replace(at, agents=1), F(320), 1) == pytest.approx(0.54 + 2 * 2.46 * 320)


def test_one_to_one() -> None:
    assert Server.service_s(HAND, F(960)) == F(1, 4) + 960
    assert Server.stream_s(HAND, F(960)) == F(3, 4) + 960
    assert Slices.stream_s(HAND, F(960)) == F(1, 4) + F(3, 8) + 720
    assert Peers.stream_s(HAND, F(960)) == F(3, 8) + 960
    assert Ring.all_reduce_s(HAND, F(960)) == F(6, 4) + 1440
    assert Slices.traffic(HAND, F(960)) == Ring.traffic(HAND, F(960)) == Traffic(1440, 1440)
    assert Server.traffic(HAND, F(960)) == Traffic(960, 960, 3840, 3840)


def test_the_engine_is_a_limit_of_its_own_transports_alone() -> None:
    fast = replace(HAND, rate=inf, engine_rate=F(8))
    assert WIRE.reduce_s(fast, F(960)) == F(1, 2) + 120
    assert Ring.all_reduce_s(fast, F(960)) == F(6, 4)
    assert Paper().reduce_s(fast, F(960)) == 0


@pytest.mark.parametrize("on", COORDINATED.values(), ids=lambda on: on.name)
@pytest.mark.parametrize("agents", [1, 2, 3, 8, 1000])
def test_what_is_sent_is_received(on: Coordinated, agents: int) -> None:
    moved = on.traffic(replace(HAND, agents=agents), F(960))
    assert float(agents * moved.agent_out + moved.driver_out) == pytest.approx(float(agents * moved.agent_in + moved.driver_in))
