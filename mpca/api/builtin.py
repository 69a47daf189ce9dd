"""What `mpca train CONF` ships: the model, data and optimiser that the configuration names, trained as a user would.

`train` runs in every agent, `evaluate` in the evaluator's process. Neither knows anything that a user's own script could not
know. Both travel by name, so they take the configuration as an argument.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpca
from mpca import data, models
from mpca.checks import nearest, refused
from mpca.config.sections import ObjectivesConfig
from mpca.methods import from_dict

__all__ = ["check", "evaluate", "forget", "layout", "model_bytes", "train"]

_Pairs = tuple[tuple[str, Any], ...]
RETURNED = ("error", "loss")  # what `evaluate` returns
Tables = dict[str, dict[str, Any]]  # the configuration as `config.Resolved.to_dict` gives it


def check(config: Tables) -> None:
    """Refuse what cannot run, before an executor is asked for.

    Raises:
        ConfigError: unknown model, data set or optimiser; an optimiser that the method cannot use; data that is missing or
            damaged; fewer samples than agents; a goal by a number that `evaluate` does not return.
    """
    _check_goals(config["objectives"])
    options = dict(config["model"])
    models.check(options.pop("name"), options)
    data.check(config["data"]["name"], config["cluster"]["agents"], data.own_options(config["data"]))
    data.check_decoder(config["data"], config["cluster"]["device"])
    name, method = config["optimizer"]["name"], from_dict(config["method"])
    if name not in models.OPTIMIZERS:
        raise refused("optimizer.name", name, f"no such optimizer; {nearest(name, models.OPTIMIZERS)}")
    if method.takes_gradients and (name != "sgd" or config["optimizer"]["momentum"]):
        raise refused("optimizer.name", name, f"must be sgd, with optimizer.momentum 0: method {method.name} has the momentum")


def _check_goals(objectives: dict[str, Any]) -> None:
    from mpca.driver.objectives import metric_goals

    texts = {key: objectives[key] for key in ("targets", "early_stopping", "keep_best")}
    for key, found in metric_goals(ObjectivesConfig(**texts)).items():
        for goal in found if isinstance(found, tuple) else (found,):
            if goal.metric not in RETURNED:
                rule = f"the evaluation that mpca brings returns {' and '.join(RETURNED)}, and no {goal.metric}"
                raise refused(f"objectives.{key}", texts[key], f"{rule}; a program of your own may: mpca.Evaluate(function)")


def model_bytes(config: Tables) -> int:
    """Bytes of the flat vector that agents exchange, in float32: parameters and floating-point buffers, and the optimiser's
    state if the method exchanges that too.
    """
    model = models.create(**config["model"])
    if from_dict(config["method"]).agent_side.exchanges_optimizer:
        from mpca.agent.layout import read_layout
        from mpca.agent.optimizers import Optimizers
        from mpca.models.training import create_optimizer

        optimizers = Optimizers()
        optimizers.add(create_optimizer(model, **config["optimizer"]))
        return 4 * read_layout(model, optimizers).total
    floats = [one for one in model.buffers() if one.is_floating_point()]
    return 4 * sum(one.numel() for one in (*model.parameters(), *floats))


def layout(config: Tables) -> list[list[Any]]:
    """Name, shape, kind and offset of each tensor that agents exchange."""
    from mpca.agent.layout import read_layout

    return read_layout(models.create(**config["model"])).rows()


def train(config: Tables) -> None:
    """Train until an objective of the run is reached."""
    from mpca.models.training import create_optimizer, train_step

    device = mpca.device()
    model = models.create(**config["model"]).to(device)
    optimizer = create_optimizer(model, **config["optimizer"])
    mpca.attach(model, optimizer)
    for images, labels in mpca.dataset("train", config["data"]["batch_size"]):
        mpca.log(loss=train_step(model, optimizer, images.to(device), labels.to(device)))


def evaluate(config: Tables, state: dict[str, Any]) -> dict[str, float]:
    """Error and loss of a joint model on the test split."""
    from mpca.models.training import evaluate_classifier

    options, section = (tuple(sorted(one.items())) for one in (config["model"], config["data"]))
    model, test = _bench(options, section, config["run"]["seed"])
    if hasattr(test, "tensors"):
        return evaluate_classifier(model, state, *test.tensors)
    seen, sums = 0, dict.fromkeys(RETURNED, 0.0)
    for images, labels in test:
        for name, mean in evaluate_classifier(model, state, images, labels).items():
            sums[name] += mean * len(labels)
        seen += len(labels)
    return {name: value / seen for name, value in sums.items()}


def forget() -> None:
    """End what `evaluate` keeps between two evaluations: the decoders of a streamed test split."""
    while _open:
        _open.pop().close()
    _bench.cache_clear()


_open: list[Any] = []


@lru_cache(maxsize=1)
def _bench(options: _Pairs, section: _Pairs, seed: int) -> tuple[Any, Any]:
    """A model to load states into, and the test split of the training's seed; the evaluator's process makes them once."""
    from mpca.data.evaluation_loader import EvaluationLoader
    from mpca.data.stream import Streamed

    keys = dict(section)
    model, test = models.create(**dict(options)), data.load(keys["name"], "test", seed, **data.own_options(keys))
    if not isinstance(test, Streamed):
        return model, test
    loader = EvaluationLoader(test, keys["batch_size"], keys["max_bad_fraction"])
    _open.append(loader)
    return model, loader
