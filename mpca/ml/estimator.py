"""`MpcaEstimator`: trains a module on the rows of a DataFrame, as a stage of `pyspark.ml`.

`fit` writes the rows as shards (`mpca.ingest_dataframe`), trains on them in the DataFrame's own session (`mpca.Distributor`),
and returns an `MpcaModel`. A tuner, which fits many models on the same rows, has them written once.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from pyspark.ml import Estimator
from pyspark.ml.base import _FitMultipleIterator
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql.types import StringType
from torch import nn
from torch.nn import functional as F

from mpca.api.distributor import Distributor, Result
from mpca.checks import refused
from mpca.data.manifest import Manifest, load_manifest, opened
from mpca.driver.objectives import Evaluate, Goals, Objective
from mpca.errors import ConfigError, RunFailed
from mpca.methods import from_dict
from mpca.ml.code import LOSSES, OPTIMIZERS, Recipe, find
from mpca.ml.model import MpcaModel, check_packages
from mpca.ml.params import Estimating, objectives_of
from mpca.ml.predict import Input, scores
from mpca.ml.saving import Reader, Writer
from mpca.ml.training import Evaluation, train
from mpca.spark.data.dataframes import IngestedData, column_type, ingest_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MpcaEstimator"]

#: Agents of one run fill the executors, so trainings of one process come one after the other.
_training = threading.Lock()


class MpcaEstimator(Estimating, Estimator[MpcaModel], MLWritable, MLReadable["MpcaEstimator"]):
    """Trains a classifier on a DataFrame.

    `explainParams()` lists the Params with their meanings and defaults. `model` is needed, and `epochs` or `objectives`. Each
    Param `batchSize` has `setBatchSize` and `getBatchSize`.

    Args:
        params: Params by name.

    Raises:
        ConfigError: an unknown Param, or a value that it cannot have.

    Example::

        estimator = MpcaEstimator(model="my_package.nets:create", epochs=20, validation=0.2)
        estimator.fit(df).transform(df).select("prediction").show()
    """

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self.setParams(**params)

    def write(self) -> Writer:
        """As of all stages: ``estimator.write().overwrite().save(path)``."""
        return Writer(self)

    @classmethod
    def read(cls) -> Reader:
        """As of all stages."""
        return Reader(cls)

    def files(self) -> dict[str, bytes]:
        """What `save` writes beside the metadata: nothing."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What `save` writes into the metadata: nothing of its own."""
        return {}

    def restore(self, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> None:
        """Take what `files` and `facts` gave: nothing."""

    def _fit(self, dataset: DataFrame) -> MpcaModel:
        model: MpcaModel = next(self.fitMultiple(dataset, [{}]))[1]
        return model

    def fitMultiple(self, dataset: DataFrame, paramMaps: Sequence[Any]) -> Any:
        """As of all estimators: yields (index, model) for each of the maps of Params, which tuners call in threads."""
        estimators = [self.copy(one) for one in paramMaps]
        for one in estimators:
            one._prepare()
        rows = _Rows(dataset, len(estimators))
        return _FitMultipleIterator(lambda index: estimators[index]._fit_on(rows), len(estimators))

    # ---- one training --------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Refuse what can be refused without the rows."""
        check_packages()
        self._recipe()
        objectives = self._objectives()
        if not self.isDefined("validation"):
            for goal in Goals.of([*objectives, Evaluate(dict)]).by_metric:
                raise ConfigError(
                    f"{type(goal).__name__} needs an evaluation: set validation, to a column or a share of the rows"
                )
        if not self.isDefined("epochs") and not objectives:
            raise ConfigError("nothing ends the training: set epochs, or objectives, such as [mpca.MaxTime('60s')]")

    def _objectives(self) -> list[Objective]:
        return objectives_of(self.getObjectives() or [])

    def _recipe(self) -> Recipe:
        if not self.isDefined("model"):
            raise ConfigError("model is not set: give a function or class that makes the torch.nn.Module, or its import path")
        maker, loss, optimizer = (
            find(key, value, home) if isinstance(value, str) else value
            for key, value, home in (
                ("model", self.getModel(), ""),
                ("loss", self.getLoss(), LOSSES),
                ("optimizer", self.getOptimizer(), OPTIMIZERS),
            )
        )
        if isinstance(loss, type) and issubclass(loss, nn.Module):
            loss = loss()
        arguments = {"lr": self.getLearningRate(), **self.getOptimizerArgs()}
        return Recipe(maker, loss, optimizer, self.getModelArgs(), arguments)

    def _fit_on(self, rows: _Rows) -> MpcaModel:
        with _training:
            try:
                data = rows.written(self)
                return self._train(rows.df, data)
            finally:
                rows.one_is_done()

    def _train(self, df: DataFrame, data: IngestedData) -> MpcaModel:
        with opened(data.path) as store:
            manifest = load_manifest(store)
        taken, recipe = _input(manifest, self.getCropSize(), self.getShorterEdge()), self._recipe()
        self._check_outputs(recipe, taken, data.classes)
        images = {} if taken.dtype else {"crop": taken.crop, "shorter_edge": taken.shorter_edge}
        objectives = self._objectives()
        if self.isDefined("validation"):
            views = {"test_view": "centre"} if images else {}
            where = {"name": data.name, "path": data.path, "seed": self.getSeed(), **images, **views}
            objectives.append(Evaluate(Evaluation(recipe, where, self.getTransformBatchSize()), self.getEvaluateEvery()))
        distributor = Distributor(
            num_agents=self.getNumAgents(),
            use_gpu=self.getUseGpu(),
            method=from_dict(self.getMethod()) if self.isDefined("method") else None,
            objectives=objectives,
            seed=self.getSeed(),
            conf={**self.getConf(), **data.conf, **{f"data.{key}": value for key, value in images.items()}},
            spark=df.sparkSession,
        )
        self._check_rows(data.records, distributor.conf.cluster.agents)
        result = distributor.run(train, recipe, self.getBatchSize(), self.getEpochs())
        return self._model(result, taken, data.classes, isinstance(column_type(df, self.getLabelCol()), StringType))

    def _check_rows(self, records: Mapping[str, int], agents: int) -> None:
        """Refuse too few rows, of those that can be read."""
        if records["train"] < agents:
            rule = f"fewer rows than agents: there are {records['train']} to train on; give more, or fewer agents"
            raise refused("numAgents", agents, rule)
        if self.isDefined("validation") and not records["validation"]:
            rule = "no image that it puts aside can be read, so there is nothing to evaluate on; put more aside, or repair them"
            raise refused("validation", self.getValidation(), rule)

    def _check_outputs(self, recipe: Recipe, taken: Input, classes: list[str]) -> None:
        """Refuse a module that cannot take a row, or has too few outputs for the classes."""
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            module = recipe.module().eval()
            try:
                outputs = module(taken.example())
            except (RuntimeError, TypeError, IndexError, ValueError) as error:
                first = (str(error).splitlines() or [type(error).__name__])[0]
                raise refused(
                    "model", self.getModel(), f"cannot take a batch of {taken} (column {self.getFeaturesCol()!r}): {first}"
                ) from None
        if not isinstance(outputs, torch.Tensor) or outputs.ndim not in (1, 2) or outputs.shape[0] != 1:
            shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
            raise refused("model", self.getModel(), f"gives {shape} for one row: it must give a number for each class")
        self._check_loss(recipe.loss, outputs.numel())
        width = scores(outputs).shape[1]
        if width < len(classes):
            shown = ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")
            raise refused(
                "model",
                self.getModel(),
                f"has {width} outputs, and column {self.getLabelCol()!r} has {len(classes)} classes ({shown}): make it wider",
            )

    def _check_loss(self, loss: Any, outputs: int) -> None:
        """Refuse losses of torch that would train without an error, and to predictions that are wrong."""
        instead = "set loss='binary_cross_entropy_with_logits'"
        if loss is F.binary_cross_entropy or isinstance(loss, nn.BCELoss):
            rule = f"takes probabilities, and one output is taken as a margin: {instead}, and leave the module's sigmoid out"
            raise refused("loss", self.getLoss(), rule)
        if outputs == 1 and (loss is F.cross_entropy or isinstance(loss, nn.CrossEntropyLoss)):
            raise refused(
                "loss", self.getLoss(), f"the model has one output a row, which is the margin of two classes: {instead}"
            )

    def _model(self, result: Result, taken: Input, classes: list[str], textual: bool) -> MpcaModel:
        if result.model_state is None:
            raise RunFailed(f"the run has no model: {result.reason}; run folder: {result.run_dir}")
        model: MpcaModel = self._copyValues(MpcaModel())
        model._resetUid(self.uid)  # a tuner's Params are found by it, as in Spark's own models
        model._input, model._textual = taken, textual
        model.classes, model.history, model.run_dir = classes, result.history, str(result.run_dir)
        model._state = safetensors.torch.save(result.model_state)
        return model


MpcaEstimator.__module__ = "mpca.ml"  # saved stages name their class: this must outlive a move


def _input(manifest: Manifest, crop: int, shorter_edge: int) -> Input:
    if manifest.vectors is not None:
        return Input(manifest.vectors.dtype, tuple(manifest.vectors.shape))
    return Input(means=tuple(manifest.channel_means), crop=crop, shorter_edge=shorter_edge)


class _Rows:
    """The rows of a DataFrame as shards, for some trainings: written when the first one asks, and removed after the last."""

    def __init__(self, df: DataFrame, trainings: int) -> None:
        self.df, self._left = df, trainings
        self._written: dict[tuple[Any, ...], IngestedData] = {}
        self._remove: Any = None

    def written(self, by: MpcaEstimator) -> IngestedData:
        features, label, validation, seed = by.getFeaturesCol(), by.getLabelCol(), by.getValidation(), by.getSeed()
        key = features, label, validation, seed, by.getStore()
        if key not in self._written:
            self._written[key] = ingest_dataframe(
                self.df,
                f"{self._folder(by.getStore())}/data-{{digest}}",
                features=features,
                label=label,
                validation=validation,
                seed=seed,
            )
        return self._written[key]

    def one_is_done(self) -> None:
        self._left -= 1
        if not self._left and self._remove is not None:
            self._remove()

    def _folder(self, store: str) -> str:
        if store:
            return store.rstrip("/")
        master = str(self.df.sparkSession.sparkContext.master)
        if not master.startswith("local"):
            raise refused(
                "store", store, f"must be a folder that driver and executors of {master} share, such as hdfs:///user/me/mpca"
            )
        if self._remove is None:
            self._made = tempfile.mkdtemp(prefix="mpca-")
            self._remove = weakref.finalize(self, shutil.rmtree, self._made, ignore_errors=True)
        return self._made
