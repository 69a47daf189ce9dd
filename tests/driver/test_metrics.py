"""The mean over agents of what they log, now and over time."""

from __future__ import annotations

import pytest

from mpca.driver.events import AgentProgress
from mpca.driver.metrics import LoggedMetrics


def said(agent: int, incarnation: int = 0, **metrics: float) -> AgentProgress:
    return AgentProgress(agent, incarnation, 1, 1, 0.0, 0.0, metrics)


def test_the_first_metric_that_was_logged_is_shown_as_the_mean_of_the_newest() -> None:
    logged = LoggedMetrics()
    assert logged.first is None
    logged.heard(said(1, loss=4.0, lr=0.1), 5.0)
    assert logged.first == ("loss", 4.0)
    logged.heard(said(0, lr=0.3), 5.1)
    assert logged.first == ("loss", 4.0), "agent 0 has logged none"
    logged.heard(said(0, loss=1.0), 5.2)
    logged.heard(said(1, loss=2.0), 6.0)
    assert logged.first == ("loss", 1.5)


def test_an_agent_that_is_lost_counts_no_more() -> None:
    logged = LoggedMetrics()
    logged.heard(said(0, loss=4.0), 5.0)
    logged.heard(said(1, loss=2.0), 5.0)
    logged.lost(0, 0)
    logged.lost(7, 0)
    assert logged.first == ("loss", 2.0)
    logged.lost(1, 0)
    assert logged.first is None
    logged.note(9.0)
    assert len(logged.history) == 1, "nobody is there whose numbers could be noted"


def test_a_late_report_of_a_lost_agent_counts_no_more_than_it_does() -> None:
    logged = LoggedMetrics()
    logged.heard(said(0, loss=4.0), 5.0)
    logged.heard(said(1, loss=2.0), 5.0)
    logged.lost(0, 0)
    logged.heard(said(0, loss=4.0), 6.0)
    assert (logged.first, logged.history[-1]["t"]) == (("loss", 2.0), 5.0)
    logged.heard(said(0, incarnation=1, loss=8.0), 7.0)
    logged.heard(said(0, loss=4.0), 8.0)
    assert logged.first == ("loss", 5.0)


def test_an_agent_that_began_anew_without_being_lost_has_nothing_of_before() -> None:
    logged = LoggedMetrics()
    logged.heard(said(0, loss=4.0, lr=0.1), 5.0)
    logged.heard(said(0, incarnation=1, loss=8.0), 6.5)
    assert logged.history[-1]["metrics"] == {"loss": 8.0}


def test_an_agent_that_was_only_late_counts_again() -> None:
    logged = LoggedMetrics()
    logged.lost(0, 2)
    logged.heard(said(0, incarnation=2, loss=4.0), 5.0)
    assert logged.first is None
    logged.back(0, 2)
    logged.heard(said(0, incarnation=2, loss=4.0), 6.0)
    assert logged.first == ("loss", 4.0)


def test_the_history_has_the_means_once_a_second_and_more_seldom_in_a_long_run() -> None:
    logged = LoggedMetrics()
    for n in range(41):
        logged.heard(said(n % 2, loss=n), 10.0 + n / 4)
    logged.note(20.5)
    assert [(one["kind"], one["t"]) for one in logged.history] == [("metrics", 10.0 + n) for n in range(11)] + [
        ("metrics", 20.5)
    ]
    assert [one["metrics"] for one in logged.history[:3]] == [{"loss": 0.0}, {"loss": 3.5}, {"loss": 7.5}]
    logged.heard(said(0, loss=1.0), 10.0 + 36_000)
    logged.heard(said(0, loss=1.0), 10.0 + 36_009)
    logged.heard(said(0, loss=1.0), 10.0 + 36_011)
    assert [one["t"] for one in logged.history[-2:]] == [36_010.0, 36_021.0]


def test_a_metric_of_one_agent_alone_is_its_own_mean() -> None:
    logged = LoggedMetrics()
    logged.heard(said(0, loss=1.0, images=8.0), 1.0)
    logged.heard(said(1, loss=3.0), 2.5)
    assert logged.history[-1] == {"kind": "metrics", "t": 2.5, "metrics": {"loss": pytest.approx(2.0), "images": 8.0}}
