"""The same records give the same numbers: their names, steps and values."""

from __future__ import annotations

import math
from typing import Any

from mpca.records import make
from mpca.track.scalars import Scalar, Scalars, axis
from tests.records.test_records import SAMPLES


def of(scalars: Scalars, kind: str, t: float, **values: Any) -> dict[str, tuple[float, int, float]]:
    found = scalars.of(make(kind, t, {**SAMPLES[kind], **values}))
    return {one.name: (one.value, one.step, one.t) for one in found}


def logged(
    scalars: Scalars, agent: int, t: float, steps: int, incarnation: int = 1, samples: int | None = None, **values: float
) -> Any:
    return of(scalars, "metrics", t, agent=agent, incarnation=incarnation, steps=steps, samples=samples, metrics=values)


def test_an_evaluation_is_told_at_its_cycle_and_without_what_is_no_number() -> None:
    told = of(Scalars(), "evaluation", 4.5, cycle=7, error=0.25, loss=None, metrics={"accuracy": 0.75, "ppl": math.inf})
    assert told == {"evaluation/error": (0.25, 7, 4.5), "evaluation/accuracy": (0.75, 7, 4.5)}


def test_a_cycle_tells_its_mean_tau_and_its_bytes() -> None:
    assert of(Scalars(), "cycle", 2.0, cycle=5) == {
        "run/tau": (11.0, 5, 2.0),  # of 13 and 9
        **{f"bytes/{key}": (float(n), 5, 2.0) for n, key in enumerate(("driver_in", "driver_out", "in", "out"), start=1)},
    }
    assert "run/tau" not in of(Scalars(), "cycle", 2.0, contributors={})


def test_an_exchange_of_one_agent_tells_its_tau() -> None:
    told = of(Scalars(), "exchange", 3.0)
    assert told == {"run/tau": (10, 7, 3.0), "bytes/driver_in": (24, 7, 3.0), "bytes/driver_out": (24, 7, 3.0)}


def test_an_exchange_that_was_refused_is_no_second_point_at_its_number() -> None:
    assert of(Scalars(), "exchange", 3.0, reason="not finite") == {}


def test_agents_alive_are_counted_at_the_newest_cycle() -> None:
    scalars = Scalars()
    events = ["started", "started", "silent", "lost", "rediscovered", "lost", "replaced", "finished"]
    agents = [0, 1, 1, 1, 1, 1, 1, 0]
    counts = [of(scalars, "agent", 1.0, event=event, index=agent) for event, agent in zip(events, agents, strict=True)]
    assert [one["run/agents"][0] if one else None for one in counts] == [1, 2, None, 1, 2, 1, 2, 1]
    of(scalars, "cycle", 2.0, cycle=9)
    assert of(scalars, "agent", 3.0, event="lost", index=1) == {"run/agents": (0, 9, 3.0)}


def test_what_agents_log_is_told_by_agent_and_as_their_mean_when_one_logs_again() -> None:
    scalars = Scalars()
    for agent in (0, 1):
        of(scalars, "agent", 0.5, event="started", index=agent)
    assert logged(scalars, 0, 1.0, 10, samples=320, loss=1.0, lr=0.5) == {
        "agent-0/loss": (1.0, 10, 1.0),
        "agent-0/lr": (0.5, 10, 1.0),
    }
    assert logged(scalars, 1, 1.25, 20, samples=640, loss=3.0, lr=math.nan) == {"agent-1/loss": (3.0, 20, 1.25)}
    assert logged(scalars, 0, 2.0, 30, samples=960, loss=0.5) == {
        "agents/loss": (2.0, 15, 2.0),
        "agents/lr": (0.5, 15, 2.0),
        "agent-0/loss": (0.5, 30, 2.0),
    }
    logged(scalars, 1, 2.25, 50, samples=1600, loss=1.5)
    rates = {"agents/steps_per_s": (20.0 + 30.0, 40, 3.0), "agents/samples_per_s": (640.0 + 960.0, 40, 3.0)}
    told = logged(scalars, 0, 3.0, 31, samples=992, loss=0.25)
    assert {name: value for name, value in told.items() if name in rates} == rates
    assert told["agents/loss"] == (1.0, 40, 3.0)
    assert scalars.rest()[0] == Scalar("agents/loss", 0.875, round((31 + 50) / 2), 3.0)
    assert scalars.rest() == []


def test_samples_that_nobody_counts_have_no_rate_and_a_replacement_goes_on_with_the_updates() -> None:
    scalars = Scalars()
    of(scalars, "agent", 0.5, event="started", index=0)
    for t, steps in ((1.0, 10), (2.0, 15)):
        logged(scalars, 0, t, steps, loss=1.0)
    assert logged(scalars, 0, 3.0, 20, loss=1.0)["agents/steps_per_s"] == (5.0, 15, 3.0)
    assert [one.name for one in scalars.rest()] == ["agents/loss", "agents/steps_per_s"]
    assert logged(scalars, 0, 9.0, 3, incarnation=2, loss=1.0) == {"agent-0/loss": (1.0, 23, 9.0)}
    assert [one.name for one in scalars.rest()] == ["agents/loss"], "no rate over the time between two processes"


def test_what_an_agent_says_after_it_was_replaced_does_not_count() -> None:
    scalars = Scalars()
    logged(scalars, 0, 1.0, 100, loss=1.0)
    assert logged(scalars, 0, 2.0, 5, incarnation=2, loss=2.0)["agent-0/loss"] == (2.0, 105, 2.0)
    assert logged(scalars, 0, 2.5, 101, incarnation=1, loss=9.0) == {}
    told = logged(scalars, 0, 3.0, 6, incarnation=2, loss=2.0)
    assert (told["agent-0/loss"], told["agents/loss"]) == ((2.0, 106, 3.0), (2.0, 105, 3.0))


def test_an_agent_that_is_lost_is_no_part_of_the_mean() -> None:
    scalars = Scalars()
    for agent, loss in ((0, 1.0), (1, 5.0)):
        of(scalars, "agent", 0.5, event="started", index=agent)
        logged(scalars, agent, 1.0, 10, loss=loss)
    of(scalars, "agent", 1.5, event="lost", index=1)
    assert logged(scalars, 0, 2.0, 20, loss=1.0)["agents/loss"] == (1.0, 10, 2.0)


def test_a_later_attempt_goes_on_with_the_updates_of_the_earlier_one() -> None:
    scalars = Scalars()
    of(scalars, "agent", 0.5, event="started", index=0)
    logged(scalars, 0, 1.0, 10, loss=1.0)
    assert of(scalars, "run", 5.0) == {}
    assert of(scalars, "agent", 5.5, event="started", index=1) == {"run/agents": (1, 0, 5.5)}
    assert logged(scalars, 0, 6.0, 4, loss=1.0) == {"agent-0/loss": (1.0, 14, 6.0)}


def test_every_other_record_says_nothing() -> None:
    others = set(SAMPLES) - {"agent", "cycle", "evaluation", "exchange", "metrics"}
    assert {kind: of(Scalars(), kind, 1.0) for kind in others} == {kind: {} for kind in others}


def test_what_steps_count() -> None:
    assert [axis(name) for name in ("agents/loss", "agent-3/loss", "evaluation/error", "run/agents")] == ["steps"] * 2 + [
        "cycle"
    ] * 2


def test_the_mean_of_the_largest_numbers_is_left_out_and_breaks_nothing() -> None:
    scalars = Scalars()
    for agent in (0, 1):
        logged(scalars, agent, 1.0, 10, perplexity=1.7e308)
    assert "agents/perplexity" not in {one.name for one in scalars.rest()}
