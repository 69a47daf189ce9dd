"""What agents are started with."""

from __future__ import annotations

from mpca.api.job import Job
from mpca.api.launch import resolve
from mpca.api.parts import agent_spec, unjudged
from mpca.driver.objectives import Evaluate


def test_a_start_has_no_alpha_and_of_the_configuration_only_what_agents_read() -> None:
    job = Job(resolve(None, ("method.name=mpca", "method.alpha=0.0625", "data.name=digits", "run.seed=7")), b"payload")
    start = agent_spec(job, "night", on_yarn=False).start
    assert "0.0625" not in repr(start)
    assert start["method"]["name"] == "mpca"
    assert list(start["conf"]) == ["data"]
    assert (start["conf"]["data"]["name"], start["seed"]) == ("digits", 7)


def test_goals_that_nobody_looks_at_are_told() -> None:
    goals = resolve(None, ("objectives.target_error=0.1", "objectives.keep_best=loss"))
    assert unjudged(Job(goals, b"")) == [
        "warning: nothing is evaluated, so this does not count: objectives.target_error = 0.1, "
        "objectives.keep_best = 'loss'; give a Distributor Evaluate(function)"
    ]
    assert unjudged(Job(goals, b"", Evaluate(dict))) == unjudged(Job(resolve(None), b"")) == []
