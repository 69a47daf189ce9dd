"""Sums of a run, over agents and their incarnations, and the rate over the last seconds."""

from __future__ import annotations

from typing import Any

from mpca.driver.events import AgentProgress
from mpca.driver.tally import Tally


def says(agent: int, incarnation: int, steps: int, samples: int, train_s: float = 1.0, pause_s: float = 0.0) -> AgentProgress:
    return AgentProgress(agent, incarnation, steps, samples, train_s, pause_s, {})


def test_steps_and_samples_of_all_incarnations_count_and_of_each_only_the_newest() -> None:
    tally = Tally(agents=2)
    for at, event in enumerate([says(0, 0, 1, 10), says(1, 0, 2, 20), says(0, 0, 5, 50), says(0, 1, 3, 30)]):
        tally.progress(event, float(at))
    assert tally.steps == [8, 2]
    assert tally.samples == 100


def test_the_rate_is_the_slope_over_the_last_five_seconds() -> None:
    tally = Tally(agents=1)
    rates = []
    for second in range(16):  # 10 samples a second, from the eleventh on 100
        tally.progress(says(0, 0, second, 10 * second if second <= 10 else 100 + 100 * (second - 10)), 100.0 + second)
        rates.append(tally.samples_per_s)
    assert rates[:2] == [None, 10.0]
    assert rates[10] == 10.0
    assert rates[11] == (200 - 60) / 5
    assert rates[15] == 100.0


def test_where_nobody_counts_samples_there_is_no_number_of_them_and_the_rate_is_that_of_updates() -> None:
    tally = Tally(agents=2)
    assert tally.samples == 0, "no update yet"
    tally.progress(says(0, 0, 0, 0), 1.0)
    assert (tally.samples, tally.samples_per_s, tally.updates_per_s) == (0, None, None)
    tally.progress(says(0, 0, 5, 0), 2.0)
    tally.progress(says(1, 0, 7, 0), 3.0)
    assert (tally.samples, tally.samples_per_s, tally.updates_per_s) == (None, None, 6.0)
    tally.progress(says(1, 0, 8, 64), 5.0)
    assert (tally.samples, tally.samples_per_s, tally.updates_per_s) == (64, 16.0, 13 / 4)


def test_a_rate_needs_two_moments() -> None:
    tally = Tally(agents=2)
    assert tally.samples_per_s is None
    tally.progress(says(0, 0, 1, 10), 3.0)
    assert tally.samples_per_s is None
    tally.progress(says(1, 0, 1, 10), 3.0)
    assert tally.samples_per_s is None
    tally.progress(says(1, 0, 1, 30), 13.0)
    assert tally.samples_per_s == 2.0, "the two newest count however old they are"


def test_the_first_update_is_placed_by_the_time_that_its_agent_trained() -> None:
    tally = Tally(agents=2)
    tally.progress(says(0, 0, 0, 0), 4.0)
    assert tally.first_step is None
    tally.progress(says(0, 0, 1, 1, train_s=2.0), 7.0)
    assert tally.first_step == 5.0
    tally.progress(says(1, 0, 4, 4, train_s=4.5), 8.0)
    assert tally.first_step == 3.5
    tally.progress(says(0, 0, 2, 2, train_s=1.0), 9.0)
    assert tally.first_step == 3.5


def test_pauses_are_a_share_of_the_time_trained() -> None:
    tally = Tally(agents=2)
    assert tally.pause_share is None
    tally.progress(says(0, 0, 1, 1, train_s=6.0, pause_s=0.5), 1.0)
    tally.progress(says(1, 0, 1, 1, train_s=4.0, pause_s=0.75), 1.0)
    assert tally.pause_share == 0.125


def cycle(taus: list[int], bytes_in: int, bytes_out: int) -> dict[str, Any]:
    return {
        "bytes": {"driver_in": bytes_in, "driver_out": bytes_out},
        "contributors": {agent: {"tau": tau} for agent, tau in enumerate(taus)},
    }


def test_cycles_add_up_and_tau_is_the_newest_mean() -> None:
    tally = Tally(agents=3)
    tally.cycle(cycle([4, 6, 11], 100, 7))
    assert tally.tau == 7.0
    tally.cycle(cycle([5, 8], 30, 2))
    tally.cycle(cycle([], 1, 1))
    assert (tally.cycles, tally.bytes_in_driver, tally.bytes_out_driver, tally.tau) == (3, 131, 10, 6.5)
