"""Distributor's arguments and objectives become the run's configuration, or are refused where the caller wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

import mpca
from mpca.errors import ConfigError


def evaluate(state: dict) -> dict[str, float]:
    return {"error": 0.0}


def test_arguments_become_keys_of_the_configuration() -> None:
    distributor = mpca.Distributor(
        num_agents=8,
        use_gpu=True,
        method=mpca.MPCA(alpha=0.1, shards=2),
        objectives=[mpca.TargetError(0.03), mpca.MaxTime("90s"), mpca.MaxCycles(600), mpca.Evaluate(evaluate, every="5s")],
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


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"objectives": [mpca.TargetError(0.1)]}, r"needs an evaluation: add Evaluate"),
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
