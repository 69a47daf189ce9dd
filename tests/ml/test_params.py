"""Params of the stages: what they become, and what is refused in one sentence, before any Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.ml.tuning import ParamGridBuilder

import mpca
from mpca.errors import ConfigError, EnvironmentRefused
from mpca.ml import MpcaEstimator, MpcaModel
from mpca.ml.code import find, import_path, make_module
from mpca.ml.params import objectives_of
from mpca.ml.predict import Input
from tests.ml import nets


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"batchsize": 3}, r"^MpcaEstimator has no Param 'batchsize': did you mean 'batchSize'\?$"),
        ({"batchSize": "many"}, r'^Invalid param value given for param "batchSize". Could not convert many to int$'),
        ({"batchSize": 0}, "^batchSize = 0: must be 1 or more$"),
        ({"learningRate": -1}, r"^learningRate = -1.0: must be above 0$"),
        ({"modelArgs": [8]}, r"^modelArgs = \[8\]: must be a dict with names as keys$"),
        ({"model": 3}, '^model = 3: must be a function or class, or its import path, such as "my_package.nets:create"$'),
        ({"validation": 1.5}, r"^validation = 1.5: must be a column, or a share of the rows above 0 and below 1$"),
        ({"evaluateEvery": "soon"}, "^evaluateEvery = 'soon': "),
        ({"evaluateEvery": "0s"}, "^evaluateEvery = '0s': must be longer than 0 s$"),
        ({"method": "mcpa"}, "^method.name = 'mcpa': .*did you mean 'mpca'"),
        ({"objectives": mpca.MaxTime("60s")}, r"must be a list, such as \[mpca.MaxTime\('60s'\)\]$"),
        ({"objectives": ["60s"]}, "^objectives = '60s': is no objective; use mpca.Target"),
        ({"objectives": [mpca.Evaluate(dict)]}, "^objectives: Evaluate comes of the Param validation: set it to a column or"),
    ],
)
def test_values_that_a_param_cannot_have_are_refused(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MpcaEstimator(**params)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({}, "^model is not set: give a function or class that makes the torch.nn.Module, or its import path$"),
        ({"model": nets.two}, r"^nothing ends the training: set epochs, or objectives, such as \[mpca.MaxTime\('60s'\)\]$"),
        ({"model": nets.two, "epochs": None}, r"^nothing ends the training: set epochs, or objectives, such as"),
        ({"model": "tests.ml.nets:tow"}, "^model = 'tests.ml.nets:tow': tests.ml.nets has no 'tow'; did you mean 'two'"),
        (
            {"model": "tests.ml.notes:two"},
            "^model = .*: cannot be imported here: No module named 'tests.ml.notes'; install its",
        ),
        ({"model": "two"}, "^model = 'two': must be an import path"),
        ({"model": nets.two, "loss": "cross_entropi"}, "^loss = .*torch.nn.functional has no .*; did you mean 'cross_entropy'"),
        ({"model": nets.two, "optimizer": "Adan"}, "^optimizer = 'Adan': torch.optim has no 'Adan'; did you mean 'Adam'"),
        (
            {"model": nets.two, "objectives": [mpca.Target("accuracy", at_least=0.9)]},
            "^Target needs an evaluation: set validation, to a column or a share of the rows$",
        ),
    ],
)
def test_what_needs_no_rows_is_refused_before_there_is_a_job(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MpcaEstimator(**params).fitMultiple(None, [{}])


@pytest.mark.parametrize(
    ("model", "arguments", "says"),
    [
        (nets.two, {"hiden": 3}, r"^modelArgs = .*: tests.ml.nets:two: got an unexpected keyword argument 'hiden'$"),
        (nets.nothing, {}, "^model: tests.ml.nets:nothing returns NoneType: it must return a torch.nn.Module$"),
        (nets.Line(), {"classes": 3}, "^modelArgs = .*: the model is a module, and takes none"),
    ],
)
def test_code_that_makes_no_module_is_refused(model: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_module(model, arguments)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"model": nets.Squeezed, "modelArgs": {"classes": 1}},
            r"^model = .*: gives \(\) for one row: it must give a number for",
        ),
        ({"model": nets.half}, "^loss = 'cross_entropy': .* one output .*: set loss='binary_cross_entropy_with_logits'$"),
        ({"model": nets.half, "loss": torch.nn.CrossEntropyLoss}, "^loss = .* one output .*: set loss='binary_cross_entropy_w"),
        (
            {"model": nets.half, "loss": "binary_cross_entropy"},
            "^loss = 'binary_cross_entropy': .* set loss='binary_cross_entrop",
        ),
        ({"model": nets.half, "loss": torch.nn.BCELoss()}, r"^loss = BCELoss\(\): .* leave the module's sigmoid out"),
    ],
)
def test_outputs_that_are_no_scores_of_classes_are_refused(params: dict[str, Any], says: str) -> None:
    one = MpcaEstimator(**params)
    with pytest.raises(ConfigError, match=says):
        one._check_outputs(one._recipe(), Input("float32", (2,)), ["bee", "wolf"])


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ({"train": 1, "validation": 1}, "^numAgents = 2: fewer rows than agents: there are 1 to train on; give more"),
        ({"train": 2, "validation": 0}, "^validation = 0.1: no image that it puts aside can be read, so there is nothing to"),
    ],
)
def test_too_few_rows_that_can_be_read_are_refused(records: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MpcaEstimator(validation=0.1)._check_rows(records, 2)
    MpcaEstimator()._check_rows({"train": 2}, 2)


def test_one_output_is_trained_as_the_margin_of_two_classes() -> None:
    one = MpcaEstimator(model=nets.half, loss="binary_cross_entropy_with_logits")
    one._check_outputs(one._recipe(), Input("float32", (2,)), ["bee", "wolf"])


def test_a_module_is_copied_with_its_parameters() -> None:
    given = nets.Line()
    made = make_module(given, {})
    assert made is not given
    assert torch.equal(made.out.weight, given.out.weight)


def test_code_is_kept_by_its_import_path_where_it_has_one() -> None:
    assert import_path(nets.two) == "tests.ml.nets:two"
    assert find("model", "tests.ml.nets:Line") is nets.Line
    assert [import_path(one) for one in (lambda: None, nets.Line(), 3)] == [None, None, None]
    one = MpcaEstimator(model=nets.two, loss=torch.nn.CrossEntropyLoss, optimizer=torch.optim.SGD)
    assert (one.getModel(), one.getOptimizer()) == ("tests.ml.nets:two", "torch.optim.sgd:SGD")


def test_all_values_are_json_and_come_back_as_what_they_were() -> None:
    goals = [mpca.Target("accuracy", at_least=np.float64(0.9)), mpca.MaxTime("60s"), mpca.KeepBest("loss"), mpca.DumpModel()]
    one = MpcaEstimator(model=nets.two, objectives=goals, method=mpca.DiLoCo(period=7), validation=0.2, numAgents=3)
    values = {param.name: value for param, value in one.extractParamMap().items()}
    again = MpcaEstimator(**json.loads(json.dumps(values)))
    assert objectives_of(again.getObjectives()) == goals
    assert again.getMethod() == mpca.DiLoCo(period=7).to_dict()
    assert again.extractParamMap().keys() == {again.getParam(name) for name in values}


def test_a_grid_converts_its_values() -> None:
    one = MpcaEstimator()
    grid = ParamGridBuilder().addGrid(one.learningRate, [1, 0.1]).addGrid(one.model, [nets.two, nets.Line]).build()
    assert [found[one.learningRate] for found in grid] == [1.0, 1.0, 0.1, 0.1]
    assert grid[1][one.model] == "tests.ml.nets:Line"


def test_every_param_can_be_set_by_a_method_and_explained() -> None:
    one = MpcaEstimator()
    assert one.setBatchSize(64).setFeaturesCol("x").setSeed(7) is one
    assert (one.getBatchSize(), one.getFeaturesCol(), one.getSeed(), one.getEpochs()) == (64, "x", 7, None)
    with pytest.raises(ConfigError, match="batchSize"):
        one.setBatchSize(-1)
    explained = one.explainParams()
    for param in one.params:
        title = param.name[0].upper() + param.name[1:]
        assert callable(getattr(one, f"set{title}")), param.name
        assert param.name in explained
    assert "batchSize: rows of one agent's batch" in explained
    assert not MpcaModel().hasParam("batchSize")


def test_none_is_a_param_that_is_not_set() -> None:
    one = MpcaEstimator(epochs=None, validation=None, method=None, batchSize=None)
    assert not [param for param in (one.epochs, one.validation, one.method) if one.isDefined(param)]
    assert one.getBatchSize() == 32, "its default"
    assert one.setEpochs(3).setEpochs(None).getEpochs() is None
    assert one.setEpochs(3).copy({one.epochs: None}).getEpochs() is None


def test_a_number_between_two_evaluations_is_seconds() -> None:
    assert mpca.Evaluate(dict, MpcaEstimator(evaluateEvery=0.5).getEvaluateEvery()) == mpca.Evaluate(dict, "500ms")


@pytest.mark.parametrize("module", ["pandas", "pyarrow"])
def test_a_missing_package_is_named_before_there_is_a_job(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EnvironmentRefused, match=rf"^{module} is not installed: run pip install 'mpca\[ml\]'$"):
        MpcaEstimator(model=nets.two, epochs=1).fitMultiple(None, [{}])


def test_a_pandas_that_spark_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpca.ml.model.metadata.version", {"pandas": "3.0.1", "pyspark": "3.5.9"}.get)
    with pytest.raises(
        EnvironmentRefused, match=r"^pandas 3.0.1 is newer than pyspark 3.5.9 knows: run pip install 'mpca\[ml\]'$"
    ):
        MpcaEstimator(model=nets.two, epochs=1).fitMultiple(None, [{}])


def test_mpca_and_what_agents_import_are_without_pyspark_and_pandas() -> None:
    code = "import sys, mpca, mpca.ml.training; print([one for one in ('pyspark', 'pandas', 'pyarrow') if one in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    code = "import sys, mpca; [getattr(mpca, one) for one in mpca.__all__]; print('mpca.ml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
