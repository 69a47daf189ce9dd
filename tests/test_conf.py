"""The configuration files that come with mpca: each can be read, and says what the papers' tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mpca import models
from mpca.api.launch import resolve
from mpca.driver.budget import check_heaps
from mpca.units import parse_size

CONF = Path(__file__).resolve().parent.parent / "conf"
FILES = sorted(path.name for path in CONF.glob("*.toml") if path.name != "compare.toml")  # `mpca compare` reads that one

#: MPCA SGD, sections 7.1 and 7.2 and table 1: model, batch, learning rate, lambda, alpha, shards, target error.
PAPER = {
    "resnet110-cifar10.toml": ("resnet110", 64, 0.001, 0.0001, 0.05, 3, 0.10),
    "imagenet-resnet34.toml": ("resnet34", 128, 0.0001, 0.0001, 0.05, 3, 0.40),
    "imagenet-resnet152.toml": ("resnet152", 32, 0.0001, 0.0001, 0.05, 3, 0.40),
    "imagenet-vgg-a.toml": ("vgg_a", 50, 0.0001, 0.0001, 0.005, 2, 0.40),
}


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_read_and_names_a_model(name: str) -> None:
    tables = resolve(CONF / name).to_dict()
    models.check(tables["model"].pop("name"), tables["model"])
    assert resolve(CONF / name).data.name in ("digits", "cifar10", "imagenet")


@pytest.mark.parametrize("name", sorted(PAPER))
def test_a_papers_run_has_the_papers_numbers(name: str) -> None:
    conf = resolve(CONF / name)
    model, batch, rate, decay, alpha, shards, target = PAPER[name]
    assert (conf.model.name, conf.data.batch_size, conf.method.shards) == (model, batch, shards)
    assert (conf.optimizer.name, conf.optimizer.lr, conf.optimizer.weight_decay) == ("adam", rate, 2 * decay)
    assert (conf.method.alpha, conf.method.gamma, conf.method.delta) == (alpha, 0.7, 0.8)
    assert (conf.method.beta, conf.method.beta_ramp, conf.method.phases) == (0.9, 20, shards)
    assert (conf.objectives.target_error, conf.cluster.agents) == (target, 8)
    assert f"section {7.1 if 'cifar' in name else 7.2}" in (CONF / name).read_text()


@pytest.mark.parametrize("name", sorted(PAPER))
def test_the_heaps_of_a_papers_run_are_large_enough(name: str) -> None:
    conf = resolve(CONF / name)
    with torch.device("meta"):
        shapes = models.create(conf.model.name).state_dict()
    elements = sum(tensor.numel() for tensor in shapes.values() if tensor.is_floating_point())
    bounds = [elements * shard // conf.method.shards for shard in range(conf.method.shards + 1)]
    driver = parse_size(conf.spark.get("spark.driver.memory", "1g"))
    assert check_heaps(bounds, conf.cluster.agents_per_executor, conf.cluster.executor_memory, driver)
