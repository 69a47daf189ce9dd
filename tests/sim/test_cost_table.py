"""The table of costs: each row by exact fractions worked out by hand, its limits, and the paper's figures of the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F
from math import inf

import pytest

from mpca.sim.cost_table import ROWS, Choice, Cost, Row, cost, formulas
from mpca.sim.transports import COORDINATED, Paper, Relay, Setting, Traffic, Tree
from tests.sim.test_transports import HAND, WIRE

#: A blocking exchange of HAND on WIRE: two jobs of 3 s, 1 s of latencies, 960 s each way, 10 s to prepare. Copies take 10 s.
EXCHANGE = 6 + 1 + 1920 + 10
#: Nothing costs anything but computing.
FREE = Setting(
    agents=8, model_bytes=1e9, step_s=0.5, rate=inf, latency_s=0, message_s=0, job_s=0, engine_rate=inf, prepare_rate=inf,
    copy_rate=inf,
)  # fmt: skip


def row(method: str, transport: str | None = None, shards: int | None = None, peer: bool = False) -> Row:
    wanted = method, transport, shards, peer or method in ("ddp", "local-sgd")
    (one,) = (each for each in ROWS if (each.method, each.transport, each.shards, each.peer) == wanted)
    return one


def by_hand(method: str, transport: str | None = None, peer: bool = False, **choice: int) -> Cost:
    return cost(row(method, transport, peer=peer), HAND, Choice(**choice), WIRE)


def test_single_computes() -> None:
    assert by_hand("single", "none") == Cost(1, 5, 0, 0, 0, Traffic())


@pytest.mark.parametrize("method", ["sync", "dl4j-averaging", "diloco"])
def test_stopping_methods(method: str) -> None:
    found = by_hand(method, tau=100)
    assert found == Cost(100, 500 + EXCHANGE + 10, EXCHANGE + 10, EXCHANGE, 0, Traffic(1680, 1680, 960, 960))
    assert found.utilisation == F(500, 500 + 1947)
    assert by_hand(method).tau == 1937  # five exchanges, in updates of 5 s


@pytest.mark.parametrize(("method", "models"), [("dl4j-averaging-2M", 2), ("dl4j-averaging-3M", 3)])
def test_the_optimisers_state_goes_along(method: str, models: int) -> None:
    exchange = 6 + 1 + models * 1930
    moved = Traffic(models * 1680, models * 1680, models * 960, models * 960)
    assert by_hand(method, tau=100) == Cost(100, 500 + exchange + 10 * models, exchange + 10 * models, exchange, 0, moved)
    assert by_hand(method).tau == exchange


def test_a_round_is_never_shorter_than_the_job_that_asks_for_it() -> None:
    quick = replace(HAND, step_s=F(1))
    assert cost(row("sync"), quick, Choice(tau=2), WIRE).period_s == 3 + EXCHANGE + 10
    assert cost(row("sync-ps"), quick, Choice(), WIRE).waits_s == 2 + EXCHANGE + 10
    assert cost(row("sync"), quick, Choice(tau=1), Paper()).waits_s == pytest.approx(0.54 + 2.46 * 4 * 960)


def test_gradients_to_one_optimiser_after_every_update() -> None:
    assert by_hand("sync-ps") == by_hand("sync", tau=1)
    stream = F(1, 4) + F(3, 8) + 720
    both = Cost(1, 5 + 2 * stream + 10, 2 * stream + 10, 2 * stream, 0, Traffic(1440, 1440))
    assert by_hand("sync-ps", "slices") == both
    assert by_hand("async-ps", "slices") == replace(both, staleness=1)


@pytest.mark.parametrize("method", ["async-ps", "softsync", "gradient-sharing"])
def test_the_drivers_port_serves_one_agent_after_the_other(method: str) -> None:
    service = F(1, 4) + 960
    found = by_hand(method, "server")
    assert found.exchange_s == 2 * (F(1, 2) + service)
    assert (found.period_s, found.waits_s) == (4 * service, 4 * service - 5)
    alone = cost(row(method, "server"), replace(HAND, agents=1), Choice(), WIRE)
    assert alone.period_s == 5 + 2 * (F(1, 2) + service) + 10


@pytest.mark.parametrize(("paper", "ways"), [(False, 2), (True, 1)])
def test_easgd_waits_for_both_ways_and_in_the_paper_for_the_download_alone(paper: bool, ways: int) -> None:
    service = F(1, 4) + 960
    found = by_hand("easgd", "server", paper, tau=1000)
    assert (found.exchange_s, found.waits_s) == (ways * (F(1, 2) + service), ways * (F(1, 2) + service) + 10)
    assert found.staleness == 500
    assert found.traffic == Traffic(960, 960, 3840, 3840)
    crowded = by_hand("easgd", "server", paper, tau=10)
    assert crowded.period_s == 4 * service  # 50 s of computing: the queue never empties
    assert by_hand("easgd", "server", paper).tau == 999  # 1.3 x 3841 s, in updates of 5 s


def test_gradient_sharing_goes_to_all_others() -> None:
    share = Choice(density=F(1, 10))  # type: ignore[arg-type]  # 96 bytes
    through = cost(row("gradient-sharing", "server", peer=True), HAND, share, WIRE)
    assert through.traffic == Traffic(96, 288, 1152, 384)
    assert (through.period_s, through.waits_s) == (1152, 1147)
    straight = cost(row("gradient-sharing", "peers"), HAND, share, WIRE)
    assert straight.traffic == Traffic(288, 288)
    assert (straight.period_s, straight.exchange_s) == (288, F(3, 8) + 96)
    tiny = cost(row("gradient-sharing", "server", peer=True), replace(HAND, message_s=F(1)), Choice(density=0), WIRE)
    assert tiny.period_s == 16  # a message of each agent in, three out, a second each
    assert cost(row("gradient-sharing", "peers"), HAND, Choice(density=0), WIRE).period_s == 5


def test_gossip_goes_on() -> None:
    found = by_hand("gossip", "peers", tau=300)
    assert (found.period_s, found.waits_s) == (1510, 10)
    assert found.staleness == (F(3, 8) + 960) / 5 + 600  # two rounds until four agents know
    assert by_hand("gossip", "peers", tau=1).period_s == F(3, 8) + 960
    assert by_hand("gossip", "peers").tau == 250


@pytest.mark.parametrize("method", ["overlap-local-sgd", "sync-easgd", "diloco-eager"])
def test_overlapped_rounds(method: str) -> None:
    assert by_hand(method) == Cost(388, 388 * 5 + 10, 10, EXCHANGE, 388, Traffic(1680, 1680, 960, 960))  # 387.4 updates
    assert by_hand(method, tau=100).period_s == EXCHANGE + 10
    assert by_hand(method, tau=1000).period_s == 5010


def test_mpca_never_stops() -> None:
    cycle = 3 + 1 + 560
    found = cost(row("mpca"), HAND, Choice(), WIRE)
    assert found == Cost(F(3 * cycle - 10, 5), 3 * cycle, 10, cycle, F(3 * cycle, 5), Traffic(1680, 1680, 960, 960), 3)
    finer = by_hand("mpca", shards=12)
    assert finer.period_s == 12 * (3 + 1 + 140)
    assert finer.staleness == F(3 * 144, 5)
    one = by_hand("mpca", shards=1)
    assert one.period_s == 3 + 4 + EXCHANGE
    assert one.staleness == one.period_s / 5
    assert by_hand("mpca", shards=2, phases=2).exchange_s == 3 + 1 + 840 + 5


def test_streaming_is_mpca_in_whole_updates() -> None:
    found = by_hand("diloco-streaming")
    assert (found.tau, found.period_s, found.staleness) == (339, 1705, F(1692, 5))  # 338.4 updates
    assert by_hand("diloco-streaming", tau=1000).period_s == 5010
    assert by_hand("diloco-streaming", tau=1000).staleness == F(1692, 5)


def test_peers_of_the_engine() -> None:
    ring = F(3, 2) + 1440
    assert cost(row("ddp", "ring"), HAND, Choice(), WIRE).period_s == pytest.approx(float(ring + F(5, 3)))
    assert cost(row("ddp", "ring"), replace(HAND, step_s=F(9000)), Choice(), WIRE).utilisation == pytest.approx(1)
    local = cost(row("local-sgd", "ring"), HAND, Choice(tau=10), WIRE)
    assert (local.period_s, local.waits_s) == (50 + ring, ring)


@pytest.mark.parametrize("one", ROWS, ids=lambda one: f"{one.method}-{one.transport}-{one.shards}")
class TestEveryRow:
    def test_without_costs_an_agent_always_computes(self, one: Row) -> None:
        found = cost(one, FREE, Choice(shards=3 if one.shards is None else one.shards), Relay())
        assert found.utilisation == pytest.approx(1)
        # Each of three cycles still waits until the last of eight agents has ended its update.
        least = {"mpca": 3 * 8 / 9, "diloco-streaming": 3}.get(one.method, 1)
        assert found.tau == pytest.approx(least)
        assert found.staleness <= 4

    @pytest.mark.parametrize("agents", [1, 2, 7, 64])
    def test_no_port_carries_more_than_it_can_and_what_is_sent_is_received(self, one: Row, agents: int) -> None:
        at = replace(HAND, agents=agents, engine_rate=inf, driver_rate=F(1, 2))
        for on in (WIRE, Relay(), Tree(), Paper()):
            if on.name == "paper":  # it knows one rate
                at = replace(at, driver_rate=None)
            found = cost(one, at, Choice(shards=3 if one.shards is None else one.shards), on)
            moved = found.traffic
            assert 0 < found.utilisation <= 1
            assert found.period_s == pytest.approx(float(found.tau * at.step_s + found.waits_s))
            if not (on.name == "tree" and agents == 1):  # a single agent's driver is not crowded
                assert max(moved.agent_in, moved.agent_out) <= found.period_s * at.port * (1 + 1e-9)
            assert max(moved.driver_in, moved.driver_out) <= found.period_s * at.driver_port * (1 + 1e-9)
            sent, received = agents * moved.agent_out + moved.driver_out, agents * moved.agent_in + moved.driver_in
            assert float(sent) == pytest.approx(float(received))

    def test_a_wider_wire_never_costs_more(self, one: Row) -> None:
        shares = [
            cost(one, replace(HAND, rate=rate), Choice(tau=50, shards=3), WIRE).period_s
            for rate in (F(1), F(2), F(10), F(1000))
        ]
        assert shares == sorted(shares, reverse=True)

    def test_one_agent_waits_for_nobodys_messages(self, one: Row) -> None:
        alone = replace(FREE, agents=1, message_s=1e-9)
        assert cost(one, alone, Choice(shards=3), Relay()).utilisation == pytest.approx(1)


def test_the_table_has_every_method_and_transport_with_formula_and_source() -> None:
    said = formulas(WIRE)
    assert {name for one in said for name in one.rows} == {one.method + " *" * one.peer for one in ROWS} | {
        "transport ranges+relay", "a cycle", "transport driver's port", "transport a slice an agent",
        "transport agent to agent", "transport ring all-reduce",
    }  # fmt: skip
    assert all(one.formula and one.source and ("=" in one.formula or "   " in one.formula) for one in said)
    assert len({one.formula for one in formulas() if one.rows[0].startswith("transport")}) == 7


def test_a_formula_is_printed_with_its_rows() -> None:
    (first,) = (one.lines() for one in formulas(Paper()) if "diloco" in one.rows)
    assert first[0] == "sync, dl4j-averaging, diloco (the paper's)"
    assert first[1] == "    period = max(tau C, fixed) + E(M) + copies, of which all but tau C are waited for"
    assert first[-1].startswith("    Source: SparkNet")
    assert all(len(line) <= 128 for one in formulas() for line in one.lines() if "Source" not in line)


def auto_shards(at: Setting) -> int:
    (row,) = (one for one in ROWS if one.shards == 0)
    return cost(row, at, Choice(shards=0), Relay()).shards


def test_an_auto_number_of_shards_follows_the_model_and_the_link() -> None:
    small = Setting(8, 7 << 20, 0.01, 125e6)
    large = replace(small, model_bytes=491 << 20)
    assert auto_shards(small) == 4
    assert 4 < auto_shards(large) <= 24
    assert auto_shards(FREE) == 3
    assert auto_shards(replace(large, rate=1e6)) == 24
    empty = Relay().cycle_s(large, 0, 3)
    wire = Relay().cycle_s(large, large.model_bytes, 3) - empty
    assert auto_shards(large) == min(round((12 * wire / empty) ** 0.5), 24)


# ---- the paper's own numbers ----

_MIB = 1 << 20
#: Bytes and seconds a batch of Table 1; ResNet-110's 6.7 MiB stand in section 6.4.
RESNET_110, RESNET_152, VGG_A = (
    Setting(8, size * _MIB, step_s, 1e9 / 8) for size, step_s in ((6.7, 0.095), (223, 0.809), (491, 0.474))
)


def test_resnet_110_is_pulled_13_to_17_times_between_updates_of_a_shard() -> None:
    assert 13 <= cost(row("mpca"), RESNET_110, Choice(), COORDINATED["paper"]).tau <= 17


@pytest.mark.parametrize(("at", "ratio", "n"), [(RESNET_110, 0.59, 15), (RESNET_152, 2.31, 25), (VGG_A, 8.69, 90)])
def test_the_three_ratios_give_the_periods_of_the_comparison(at: Setting, ratio: float, n: int) -> None:
    assert at.model_bytes / at.rate / at.step_s == pytest.approx(ratio, abs=0.005)
    assert cost(row("mpca"), at, Choice(), Paper()).tau == pytest.approx(n, rel=0.05)


@pytest.mark.parametrize(("at", "tau", "share"), [(RESNET_110, 20, 97), (RESNET_152, 50, 95), (VGG_A, 95, 90)])
def test_easgd_computes_as_much_as_the_paper_says(at: Setting, tau: int, share: int) -> None:
    alone = replace(at, message_s=0, latency_s=0, copy_rate=inf)
    found = cost(row("easgd", "server", peer=True), alone, Choice(tau=tau), Paper())
    assert 100 * found.utilisation == pytest.approx(share, abs=2)


def test_easgds_smallest_tau_is_the_papers() -> None:
    alone = replace(RESNET_110, message_s=0, latency_s=0)
    assert cost(row("easgd", "server"), alone, Choice(), Paper()).tau == 7
    assert cost(row("easgd", "server"), VGG_A, Choice(), Paper()).tau == pytest.approx(95, rel=0.05)


def test_mxnet_computes_less_than_it_sends() -> None:
    shares = [
        cost(row("async-ps", "slices"), replace(at, message_s=0, latency_s=0, copy_rate=inf), Choice(), Paper()).utilisation
        for at in (RESNET_110, RESNET_152, VGG_A)
    ]
    assert shares == pytest.approx([0.49, 0.20, 0.06], abs=0.005)


def test_sync_at_100_stands_still_half_of_the_time_with_vgg_a() -> None:
    assert cost(row("sync"), VGG_A, Choice(tau=100), Paper()).utilisation == pytest.approx(0.48, abs=0.005)
