"""The ceiling: which bytes it sends, and that a shaped link carries what was asked for."""

from __future__ import annotations

import pytest

from mpca.cli.bench.net.network import Network
from mpca.cli.bench.net.tcp import cycle_flows, cycle_seconds, stream_rate
from mpca.units import parse_rate
from tests.bench.support import needs_namespaces

MIB = 1 << 20


def test_a_cycle_carries_one_shard_at_the_driver_and_less_than_two_at_an_agent() -> None:
    agents = [f"w{number}" for number in range(8)]
    flows = cycle_flows("driver", agents, 8 * MIB)

    def into(node: str) -> int:
        return sum(size for (_, to), size in flows.items() if to == node)

    def out_of(node: str) -> int:
        return sum(size for (sender, _), size in flows.items() if sender == node)

    assert into("driver") == out_of("driver") == 8 * MIB
    # in: 7/8 of the others' parts, 1/8 from the driver, 7/8 relayed; the same out: the floor of 1.875 shards at K = 8
    assert {into(agent) for agent in agents} == {out_of(agent) for agent in agents} == {15 * MIB}


@pytest.mark.root
@pytest.mark.quiet
@pytest.mark.parametrize("rate", ["30mbit", "100mbit"])
def test_one_stream_gets_the_rate_of_its_link(rate: str) -> None:
    needs_namespaces()
    with Network(["a", "b"]) as net:
        net.shape(rate)
        mib_s = stream_rate(net, "a", "b")
    assert mib_s * MIB * 8 == pytest.approx(parse_rate(rate), rel=0.1)


@pytest.mark.root
@pytest.mark.quiet
def test_a_cycle_takes_about_its_floor() -> None:
    needs_namespaces()
    with Network(["driver", "w0", "w1", "w2"]) as net:
        net.shape("30mbit")
        mib_s = stream_rate(net, "driver", "w0")
        seconds = cycle_seconds(net, "driver", ["w0", "w1", "w2"], 3 * MIB)
    floor_s = (2 * 3 - 1) / 3 * 3 / mib_s  # (2K - 1)/K shards through each agent's link
    assert 0.9 * floor_s < seconds < 2.0 * floor_s
