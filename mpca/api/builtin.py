"""What `mpca train CONF` ships: the model, data and optimiser that the configuration names, trained as a user would.

`train` runs in every agent, `evaluate` in the evaluator's process; neither knows anything that a user's own script could
not. They travel by name, so the configuration is an argument of theirs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpca
from mpca import data, models
from mpca.checks import nearest, refused

__all__ = ["check", "evaluate", "train"]

Tables = dict[str, dict[str, Any]]  # the configuration as `config.Resolved.to_dict` gives it


def check(config: Tables) -> None:
    """Refuse what can be refused before an executor is asked for.

    Raises:
        ConfigError: unknown model, data set or optimiser; fewer samples than agents.
    """
    from mpca.models.training import OPTIMIZERS

    options = dict(config["model"])
    models.check(options.pop("name"), options)
    data.check(config["data"]["name"], config["cluster"]["agents"])
    name = config["optimizer"]["name"]
    if name not in OPTIMIZERS:
        raise refused("optimizer.name", name, f"no such optimizer; {nearest(name, OPTIMIZERS)}")


def train(config: Tables) -> None:
    """Train until an objective of the run is reached."""
    from mpca.models.training import create_optimizer, train_step

    device = mpca.device()
    model = models.create(**config["model"]).to(device)
    settings = {key: value for key, value in config["optimizer"].items() if value or key in ("name", "lr")}
    optimizer = create_optimizer(model, **settings)
    mpca.attach(model, optimizer)
    for images, labels in mpca.data("train", config["data"]["batch_size"]):
        mpca.log(loss=train_step(model, optimizer, images.to(device), labels.to(device)))


def evaluate(config: Tables, state: dict[str, Any]) -> dict[str, float]:
    """Error and loss of a joint model on the test split."""
    from mpca.models.training import evaluate_classifier

    options = tuple(sorted(config["model"].items()))
    model, images, labels = _bench(options, config["data"]["name"])
    return evaluate_classifier(model, state, images, labels)


@lru_cache(maxsize=1)
def _bench(options: tuple[tuple[str, Any], ...], data_set: str) -> tuple[Any, Any, Any]:
    """A model to load states into, and the test split: made once in the evaluator's process."""
    images, labels = data.load(data_set, "test").tensors
    return models.create(**dict(options)), images, labels
