"""What agents are started with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mpca.api.job import Job
from mpca.api.launch import resolve
from mpca.api.parts import agent_spec, saves_to, unjudged
from mpca.driver.objectives import Evaluate
from mpca.errors import ConfigError
from mpca.storage import Location


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


YARN: Any = SimpleNamespace(yarn=True)


@pytest.mark.parametrize(
    ("at", "url"),
    [
        ("/data/backups", "file:///data/backups"),
        ("hdfs://nn:8020/b", "hdfs://nn:8020/b"),
        ("webhdfs://nn:9870/b", "webhdfs://nn:9870/b"),
    ],
)
def test_where_executors_write_what_is_the_agents_own(at: str, url: str) -> None:
    assert saves_to(Job(resolve(None, ("backup.optimizers=true",)), b""), Location.parse(at), None) == url
    assert saves_to(Job(resolve(None), b""), Location.parse(at), YARN) == ""


def test_where_it_cannot_be_written_it_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        ConfigError, match=r"^backup\.optimizers = true: agents of method easgd ask by themselves.*take a method with"
    ):
        saves_to(Job(resolve(None, ("backup.optimizers=true", "method.name=easgd")), b""), Location.parse("/b"), None)
    with pytest.raises(ConfigError, match=r"^backup\.optimizers = true: executors cannot write to .* /b; set backup\.path"):
        saves_to(Job(resolve(None, ("backup.optimizers=true",)), b""), Location.parse("/b"), YARN)
