"""Distributor's arguments and objectives become the run's configuration, or are refused where the caller wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

import mpca
from mpca.api.job import Job
from mpca.api.parts import goals_of
from mpca.errors import ConfigError


def evaluate(state: dict) -> dict[str, float]:
    return {"error": 0.0}


class Misspelt(mpca.Callback):
    def on_cycles(self, record: dict) -> None: ...


def test_arguments_become_keys_of_the_configuration() -> None:
    distributor = mpca.Distributor(
        num_agents=8,
        use_gpu=True,
        method=mpca.MPCA(alpha=0.1, shards=2),
        objectives=[
            mpca.Target("error", at_most=0.03),
            mpca.MaxTime("90s"),
            mpca.MaxCycles(600),
            mpca.Evaluate(evaluate, every="5s"),
        ],
        min_agents=3,
        name="mine",
        seed=7,
        conf={"cluster.cycle_deadline": "12s"},
    )
    conf = distributor.conf
    assert (conf.cluster.agents, conf.cluster.min_agents, conf.cluster.device) == (8, 3, "cuda")
    assert (conf.method.alpha, conf.method.shards) == (0.1, 2)
    assert (conf.objectives.target_error, conf.objectives.max_time, conf.objectives.max_cycles) == (0.03, 90.0, 600)
    assert conf.objectives.evaluate_every == 5.0
    assert (conf.run.name, conf.run.seed, conf.cluster.cycle_deadline) == ("mine", 7, 12.0)


def test_a_file_is_taken_up_and_arguments_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[cluster]\nagents = 6\n[method]\nname = "sync"\ntau = 5\n')
    conf = mpca.Distributor(num_agents=2, conf=file).conf
    assert conf.cluster.agents == 2
    assert conf.method == mpca.Sync(tau=5)


def test_a_backup_objective_sets_the_backups() -> None:
    conf = mpca.Distributor(objectives=[mpca.DumpModel(interval="10s", keep=5)]).conf
    assert (conf.backup.interval, conf.backup.keep) == (10.0, 5)


def test_goals_by_any_metric_become_the_configuration() -> None:
    objectives = [
        mpca.Target("accuracy", at_least=0.97),
        mpca.Target("perplexity", at_most=20),
        mpca.Target("error", at_most=0.03),
        mpca.EarlyStopping("f1", 7, mode="max"),
        mpca.KeepBest("perplexity"),
        mpca.Evaluate(dict),
    ]
    distributor = mpca.Distributor(objectives=objectives)
    conf = distributor.conf.objectives
    assert (conf.target_error, conf.targets) == (0.03, "accuracy >= 0.97, perplexity <= 20")
    assert (conf.early_stopping, conf.patience, conf.keep_best) == ("max f1", 7, "min perplexity")
    goals = goals_of(Job(distributor.conf, b"", distributor._evaluate), "backups")
    assert goals.by_metric == [objectives[2], *objectives[:2], *objectives[3:5]]
    assert goals_of(Job(distributor.conf, b""), "backups").by_metric == [], "nothing is evaluated"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"conf": {"objectives.targets": "accuracy > 0.9"}}, "not a target: 'accuracy > 0.9'; write it as"),
        ({"callbacks": [print]}, r"^not a callback: <built-in function print>; give an object of a subclass of mpca.Callback"),
        (
            {"callbacks": [Misspelt()]},
            r"^Misspelt.on_cycles: no such event of a run; known are on_cycle, on_evaluation, on_agent",
        ),
        ({"conf": {"objectives.keep_best": "f1"}}, r"objectives.keep_best = 'f1': write it as \"max f1\" or"),
        ({"conf": {"objectives.targets": "f1 >= 1, f1 <= 2"}}, "two targets for f1"),
        ({"conf": {"objectives.patience": 0}}, "objectives.patience = 0"),
        ({"objectives": [mpca.Target("error", at_most=0.1)]}, r"needs an evaluation: add Evaluate"),
        ({"objectives": [mpca.MaxCycles(1), mpca.MaxCycles(2)]}, "two objectives of one kind"),
        ({"objectives": ["90s"]}, "not an objective"),
        ({"num_agents": 0}, "cluster.agents = 0"),
        ({"num_agents": 2, "min_agents": 3}, "cluster.min_agents = 3"),
        ({"conf": {"cluster.agnets": 2}}, "did you mean 'agents'"),
        ({"method": mpca.Sync(seconds=30.0)}, r"method.seconds = 30.0: must be less than cluster.cycle_deadline = 30 s"),
        ({"method": mpca.Gossip()}, r"method.name = 'gossip': is simulated only"),
    ],
)
def test_what_cannot_be_is_refused_at_once(arguments: dict, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        mpca.Distributor(**arguments)
