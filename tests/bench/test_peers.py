"""`mpca bench peers`: the pace of an update, the loops of torch's peers on real processes, and how trials become a row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mpca.cli.bench.cases.peers import Plan, _Trials
from mpca.cli.bench.run.peers_train import Pace, Paced, Trial, evaluate, net
from tests.support.fake_executor import wait_until

ROOT = Path(__file__).resolve().parents[2]
TRIAL = Trial(peer="ddp", rate=0.001, seed=0, step_s=0.02, seconds=1.0, every_s=0.25, batch=8, optimizer="adam", target=0.3)
PLAN = Plan(2, "30mbit", 2.31, ("ddp",), (0.001, 0.002, 0.004), 3, 100, 0.3, 8, "adam")


def gradients(model: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    model(images).square().sum().backward()
    return [one.grad.clone() for one in model.parameters() if one.grad is not None]


def test_the_pace_takes_its_time_and_changes_no_gradient() -> None:
    pace, images = Pace(0.2), torch.randn(4, 1, 12, 12)
    paced, plain = Paced(net(3), pace), net(3)
    pace.begin()
    began = time.monotonic()
    found = gradients(paced, images.clone())
    assert time.monotonic() - began >= 0.2
    assert all(torch.equal(*pair) for pair in zip(found, gradients(plain, images), strict=True))
    assert len(found) == 6


class NotedPace(Pace):
    """Notes the ninths of the update that it waited for, among what else happens."""

    def __init__(self, step_s: float) -> None:
        super().__init__(step_s)
        self.happened: list[float | str] = []

    def wait(self, share: float) -> None:
        super().wait(share)
        assert time.monotonic() >= self._began + share * self._step_s
        self.happened.append(round(9 * share, 6))


def test_two_thirds_of_the_time_lie_in_the_backward_pass_and_its_first_gradient_comes_early() -> None:
    """That of the last layer: DDP sends it while the others are computed."""
    pace = NotedPace(0.3)
    model = Paced(net(0), pace)
    for name, one in model.named_parameters():
        if name.endswith(".weight"):
            one.register_post_accumulate_grad_hook(lambda _, name=name: pace.happened.append(name))
    pace.begin()
    out = model(torch.randn(4, 1, 12, 12))
    assert pace.happened == [1, 2, 3]
    out.sum().backward()
    assert pace.happened[3:] == [5, "layers.2.weight", 7, "layers.1.0.weight", 9, "layers.0.1.weight"]


def test_evaluating_does_not_wait() -> None:
    began = time.monotonic()
    said = evaluate(Paced(net(0), Pace(100.0)).state_dict())
    assert set(said) == {"error", "loss"}
    assert time.monotonic() - began < 50.0


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["ddp", "ddp-local-sgd"])
def test_torchs_peers_train_on_two_processes_and_tell_the_model_over_time(peer: str, tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys\nfrom mpca.cli.bench.run.peers_train import Trial, ddp\n"
        "said = ddp(Trial(**json.loads(sys.argv[1])))\nif said: open(sys.argv[2], 'w').write(json.dumps(said))\n"
    )
    trial = {**vars(TRIAL), "peer": peer, "seconds": 3.0, "step_s": 0.01}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*launcher, json.dumps(trial), str(said)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(said.read_text())
    assert told["ended"] - told["began"] >= 3.0
    assert told["updates"] % 10 == 0, "they agree every ten updates"
    assert len(told["errors"]) >= 2
    assert told["errors"][-1][1] < told["errors"][0][1]


class Answers:
    """A driver that reaches the target sooner with a higher rate, and misses it under one seed."""

    def __init__(self, missed: int | None) -> None:
        self.trials: list[dict[str, Any]] = []
        self.read = 0  # times that the ports of the switch were read
        self._missed = missed

    def ports(self) -> dict[str, tuple[int, int]]:
        self.read += 1
        return {"driver": (0, 0), "w0": (0, 0), "w1": (0, 0)}

    def tell(self, trial: dict[str, Any]) -> None:
        self.trials.append(trial)

    def hear(self) -> dict[str, Any]:
        before = self.read
        wait_until(lambda: self.read >= before + 2, "the bytes of the trial were counted at its begin and end")
        trial, now = self.trials[-1], time.monotonic()
        error = 0.5 if trial["seed"] == self._missed else 0.25
        errors = [[0.1, 0.9], [0.004 / trial["rate"] + trial["seed"] / 10, error]]
        return {"began": now - 100.0, "ended": now + 100.0, "updates": 100, "errors": errors}


@pytest.mark.parametrize("missed", [None, 1])
def test_the_best_rate_of_the_tuning_seed_runs_on_the_seeds_that_are_reported(missed: int | None) -> None:
    driver: Any = Answers(missed)
    nodes: Any = SimpleNamespace(net=SimpleNamespace(ports=driver.ports), workers=["w0", "w1"])
    trials = _Trials(driver, nodes, PLAN, ports_every_s=0.0005)
    row = trials.of_peer(TRIAL)
    assert [(one["rate"], one["seed"]) for one in driver.trials] == [
        *((rate, 1000) for rate in PLAN.rates),
        *((0.004, seed) for seed in range(3)),
    ]
    assert (row["lr"], row["edge"], row["missed"]) == (0.004, True, 0 if missed is None else 1)
    assert row["median_s"] == (pytest.approx(1.1) if missed is None else None), "not reached under one seed is not reached"
