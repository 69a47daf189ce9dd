"""The Params of estimator and model, typed: each value is checked when it is set, and can be saved as JSON.

The user's functions are kept as import paths where they have one, else as they are. Objectives and methods are kept as dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasSeed,
)

from mpca.checks import nearest, refused
from mpca.driver import objectives as known_objectives
from mpca.driver.objectives import Evaluate, Objective
from mpca.errors import ConfigError
from mpca.methods import Method, from_dict
from mpca.units import parse_duration

__all__ = ["CODE", "Estimating", "Serves", "accessors", "objectives_of"]

#: Params that hold the user's code.
CODE = ("model", "loss", "optimizer")
P = TypeVar("P", bound=type[Params])


def _param(name: str, doc: str, converter: Callable[[Any], Any]) -> Any:
    return Param(Params._dummy(), name, doc, converter)


# ---- converters: to values that JSON has, or errors that say what to give --------------------------------------------------


def _code(key: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        from mpca.ml.code import import_path

        if isinstance(value, str):
            return value
        if not callable(value):
            raise refused(key, value, 'must be a function or class, or its import path, such as "my_package.nets:create"')
        return import_path(value) or value

    return convert


def _whole(key: str, least: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        found = TypeConverters.toInt(value)
        if found < least:
            raise refused(key, found, f"must be {least} or more")
        return found

    return convert


def _positive(key: str) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        found = TypeConverters.toFloat(value)
        if not 0 < found < float("inf"):
            raise refused(key, found, "must be above 0")
        return found

    return convert


def _table(key: str) -> Callable[[Any], dict[str, Any]]:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise refused(key, value, "must be a dict with names as keys")
        return dict(value)

    return convert


def _validation(value: Any) -> str | float:
    if isinstance(value, str) and value:
        return value
    share = TypeConverters.toFloat(value)
    if not 0 < share < 1:
        raise refused("validation", value, "must be a column, or a share of the rows above 0 and below 1")
    return share


def _every(value: Any) -> str:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise refused("evaluateEvery", value, str(error)) from None
    if not 0 < seconds < float("inf"):
        raise refused("evaluateEvery", value, "must be longer than 0 s")
    return value if isinstance(value, str) else f"{seconds:f}s"  # a number is seconds, here as in mpca.Evaluate


def _method(value: Any) -> dict[str, Any]:
    found = value if isinstance(value, Method) else from_dict({"name": value} if isinstance(value, str) else value)
    return {key: one for key, one in found.to_dict().items() if one is not None}


def _objectives(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, (Objective, Mapping)) or not isinstance(value, Iterable):
        raise refused("objectives", value, "must be a list, such as [mpca.MaxTime('60s')]")
    listed = [_as_dict(one) for one in value]
    objectives_of(listed)
    return listed


def _as_dict(one: Any) -> dict[str, Any]:
    if isinstance(one, Evaluate):
        raise ConfigError(
            "objectives: Evaluate comes of the Param validation: set it to a column or a share, and evaluateEvery"
        )
    if isinstance(one, Objective):
        return {"kind": type(one).__name__, **{of.name: getattr(one, of.name) for of in fields(one)}}  # type: ignore[arg-type]
    if isinstance(one, Mapping) and "kind" in one:
        return dict(one)
    raise refused("objectives", one, "is no objective; use mpca.Target, MaxTime, MaxCycles, EarlyStopping, KeepBest, DumpModel")


def objectives_of(listed: Iterable[Mapping[str, Any]]) -> list[Objective]:
    """The objectives that the Param has as dicts.

    Raises:
        ConfigError: one of them is wrong.
    """
    found = []
    for one in listed:
        arguments = dict(one)
        cls = getattr(known_objectives, str(arguments.pop("kind")), None)
        if not (isinstance(cls, type) and issubclass(cls, Objective)):
            raise refused("objectives", one["kind"], "is no objective of this mpca")
        found.append(cls(**arguments))
    return found


# ---- Params ----------------------------------------------------------------------------------------------------------------


def accessors(cls: P) -> P:
    """Give a class of Params `setBatchSize` and `getBatchSize` for its Param `batchSize`, as all stages of Spark have them."""
    for name, one in list(vars(cls).items()):
        if not isinstance(one, Param):
            continue
        title = name[0].upper() + name[1:]

        def put(self: Any, value: Any, name: str = name) -> Any:
            return self.setParams(**{name: value})

        def get(self: Any, name: str = name) -> Any:
            return self.getOrDefault(name) if self.isDefined(name) else None

        put.__doc__, get.__doc__ = f"Set `{name}`: {one.doc}.", f"The value of `{name}`, or None."
        setattr(cls, f"set{title}", put)
        setattr(cls, f"get{title}", get)
    return cls


@accessors
class Serves(HasFeaturesCol, HasLabelCol, HasPredictionCol, HasProbabilityCol, HasRawPredictionCol):
    """Params of both: the model's code, and what `transform` reads and adds."""

    model = _param("model", "a function or class that makes the torch.nn.Module, its import path, or a module", _code("model"))
    modelArgs = _param("modelArgs", "arguments of that function, by name", _table("modelArgs"))
    predictionIndexCol = _param(
        "predictionIndexCol", "column for the number of the predicted class; empty: none", TypeConverters.toString
    )
    labelIndexCol = _param(
        "labelIndexCol", "column for the number of the label's class, for evaluators; empty: none", TypeConverters.toString
    )
    transformBatchSize = _param("transformBatchSize", "rows that predict at once", _whole("transformBatchSize", 1))
    useGpu = _param("useGpu", "train on GPUs, and predict on them where there are any", TypeConverters.toBoolean)
    savePickle = _param(
        "savePickle", "whether save may write code that has no import path, by cloudpickle", TypeConverters.toBoolean
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            featuresCol="features",
            labelCol="label",
            predictionCol="prediction",
            probabilityCol="",
            rawPredictionCol="",
            modelArgs={},
            predictionIndexCol="",
            labelIndexCol="",
            transformBatchSize=256,
            useGpu=False,
            savePickle=False,
        )

    if TYPE_CHECKING:  # what `accessors` adds

        def __getattr__(self, name: str) -> Any: ...

    def setParams(self, **params: Any) -> Any:
        """Set Params by name.

        Raises:
            ConfigError: there is no such Param, or its value is of another type.
        """
        for name in params:
            if not self.hasParam(name):
                known = [one.name for one in self.params]
                raise ConfigError(f"{type(self).__name__} has no Param {name!r}: {nearest(name, known)}")
        try:
            return self._set(**params)
        except TypeError as error:  # of Spark's converters, with the Param's name and the value
            raise ConfigError(str(error)) from None

    def _set(self, **params: Any) -> Any:
        """As Spark's, but None is a Param that is not set. Spark's counts it as defined, and epochs=None had no end."""
        for name in [name for name, value in params.items() if value is None]:
            self.clear(self.getParam(name))
            del params[name]
        return super()._set(**params)

    def setFeaturesCol(self, value: str) -> Any:
        """Set `featuresCol`."""
        return self.setParams(featuresCol=value)

    def setLabelCol(self, value: str) -> Any:
        """Set `labelCol`."""
        return self.setParams(labelCol=value)

    def setPredictionCol(self, value: str) -> Any:
        """Set `predictionCol`."""
        return self.setParams(predictionCol=value)

    def setProbabilityCol(self, value: str) -> Any:
        """Set `probabilityCol`."""
        return self.setParams(probabilityCol=value)

    def setRawPredictionCol(self, value: str) -> Any:
        """Set `rawPredictionCol`."""
        return self.setParams(rawPredictionCol=value)


@accessors
class Estimating(Serves, HasSeed):
    """Params of the estimator alone: how it trains."""

    loss = _param("loss", "function of outputs and labels, its import path, or a name of torch.nn.functional", _code("loss"))
    optimizer = _param(
        "optimizer",
        "function of parameters that makes the optimiser, its import path, or a name of torch.optim",
        _code("optimizer"),
    )
    learningRate = _param("learningRate", "the optimiser's lr", _positive("learningRate"))
    optimizerArgs = _param("optimizerArgs", "further arguments of the optimiser, by name", _table("optimizerArgs"))
    batchSize = _param("batchSize", "rows of one agent's batch", _whole("batchSize", 1))
    epochs = _param("epochs", "passes over the rows", _whole("epochs", 1))
    objectives = _param("objectives", "what ends the training: a list of mpca.MaxTime, mpca.Target, ...", _objectives)
    validation = _param("validation", "a column that is true for rows to evaluate on, or about which share of all", _validation)
    evaluateEvery = _param("evaluateEvery", "time between two evaluations, such as '2s'", _every)
    numAgents = _param("numAgents", "how many agents train", _whole("numAgents", 1))
    method = _param("method", "how agents train together: an object such as mpca.DiLoCo(period=50), or its name", _method)
    store = _param("store", "folder that driver and executors share, for the rows as shards", TypeConverters.toString)
    cropSize = _param("cropSize", "of images: pixels of the square that the model sees", _whole("cropSize", 1))
    shorterEdge = _param("shorterEdge", "of images: pixels to which the shorter edge is scaled first", _whole("shorterEdge", 1))
    conf = _param("conf", "further keys of the run's configuration, {'section.key': value}", _table("conf"))

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            loss="cross_entropy",
            optimizer="Adam",
            learningRate=1e-3,
            optimizerArgs={},
            batchSize=32,
            evaluateEvery="2s",
            seed=0,
            store="",
            cropSize=224,
            shorterEdge=256,
            conf={},
        )

    def setSeed(self, value: int) -> Any:
        """Set `seed`: of the initial parameters, the order of rows, and the choice of those to evaluate on."""
        return self.setParams(seed=value)
