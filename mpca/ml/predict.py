"""Predictions for batches of rows, on an executor. pandas and numpy arrays in, a pandas frame out; Spark only names the GPU.

A Python process of an executor keeps the modules that it has loaded, so that a task does not load one again.
"""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mpca.data.augment import centre_view, subtract_mean
from mpca.data.decode import decode
from mpca.data.ingest_rows import Files
from mpca.data.rows import FILES, NUMBERS, encoded
from mpca.errors import BadImage, ConfigError
from mpca.extras import extras
from mpca.ml.code import make_module

__all__ = ["INDEX", "Input", "Package", "Serving", "chances", "predict", "scores"]

_KEPT = 2  # modules in one process: that of a pipeline, and of the one that takes its place
#: Errors of the storage and not of one file. Spark tries the task again; null would be a prediction lost without a word.
_STORAGE = (errno.EIO, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ETIMEDOUT)
#: Names of the columns that `predict` gives.
LABEL, INDEX, RAW, PROBABILITY = "label", "index", "raw", "probability"


@dataclass(frozen=True, slots=True)
class Input:
    """What a model takes: arrays of one form, or images."""

    dtype: str = ""  # of numbers, numpy's name; empty: images
    shape: tuple[int, ...] = ()
    means: tuple[float, ...] = ()  # of the channels of images, 0 to 255
    crop: int = 0  # pixels of the edge that the model sees
    shorter_edge: int = 0  # pixels to which the image is scaled before

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}" if self.dtype else "images"

    def example(self) -> Tensor:
        """A batch of one row, all zeros."""
        dtype, shape = (self.dtype, self.shape) if self.dtype else ("float32", (3, self.crop, self.crop))
        return torch.from_numpy(np.zeros((1, *shape), dtype))


@dataclass(frozen=True, slots=True)
class Package:
    """A trained model as it travels to executors. Its key is a digest: equal keys, equal models."""

    code: bytes  # cloudpickle of what makes the module, and its arguments
    state: bytes  # safetensors


@dataclass(frozen=True, slots=True)
class Serving:
    """How a DataFrame is read, and what is added to it."""

    model: str  # key of its package
    input: Input
    column: str
    kind: str  # of the column, as in `data.rows.Form`
    classes: tuple[str, ...]
    outputs: tuple[str, ...]  # some of LABEL, INDEX, RAW, PROBABILITY
    batch_size: int
    use_gpu: bool


def scores(outputs: Tensor) -> Tensor:
    """A number for each class. One output a row is the margin of class 1, so class 0 has the opposite."""
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        margin = outputs.reshape(-1, 1)
        return torch.cat([-margin, margin], 1)
    return outputs


def chances(outputs: Tensor) -> Tensor:
    """A probability for each class, from the same outputs."""
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        second = outputs.reshape(-1, 1).sigmoid()
        return torch.cat([1 - second, second], 1)
    return outputs.softmax(1)


def predict(package: Callable[[], Package], serving: Serving, batches: Iterator[Any]) -> Iterator[Any]:
    """Predict the rows of a partition.

    Args:
        package: gives the model; called when this process does not have it yet.
        serving: columns and options.
        batches: pandas series of the column's values, or frames of Spark's image structs.

    Raises:
        ConfigError: a row that the model cannot take; the text says which, and what to do.
    """
    place = _place()
    module, device = _loaded(package, serving)
    first = 0
    with Files() as files:
        for batch in batches:
            rows = list(batch.itertuples(index=False)) if serving.kind == "image" else batch.to_list()
            parts = [
                _frame(module, device, serving, rows[begin : begin + serving.batch_size], f"{place}{first + begin}", files)
                for begin in range(0, len(rows), serving.batch_size)
            ]
            first += len(rows)
            yield _joined(parts, serving)


# ---- the model -----------------------------------------------------------------------------------------------------------

_modules: dict[str, nn.Module] = {}


def _loaded(package: Callable[[], Package], serving: Serving) -> tuple[nn.Module, torch.device]:
    device = _device() if serving.use_gpu and torch.cuda.is_available() else torch.device("cpu")
    if serving.model not in _modules:
        from safetensors.torch import load

        one = package()
        model, arguments = pickle.loads(one.code)  # noqa: S301 - came within the UDF, which Spark unpickled
        module = make_module(model, arguments)
        module.load_state_dict(load(one.state))
        while len(_modules) >= _KEPT:
            del _modules[next(iter(_modules))]
        _modules[serving.model] = module.eval()
    return _modules[serving.model].to(device), device


def _device() -> torch.device:
    """The GPU that Spark gave to this task, or one by the task's partition."""
    from pyspark import TaskContext

    task = TaskContext.get()
    given = task.resources().get("gpu") if task is not None else None
    if given is not None and given.addresses:
        return torch.device("cuda", int(given.addresses[0]) % torch.cuda.device_count())
    return torch.device("cuda", (task.partitionId() if task is not None else 0) % torch.cuda.device_count())


def _place() -> str:
    from pyspark import TaskContext

    task = TaskContext.get()
    return f"partition {task.partitionId()}, row " if task is not None else "row "


# ---- rows ----------------------------------------------------------------------------------------------------------------


def _frame(module: nn.Module, device: torch.device, serving: Serving, rows: list[Any], place: str, files: Files) -> Any:
    """The outputs of some rows, by name; `None` for an image that cannot be read."""
    if serving.kind in NUMBERS:
        there, inputs = list(range(len(rows))), _numbers(serving, rows, place)
    else:
        there, inputs = _images(serving, rows, place, files)
    found: dict[str, list[Any]] = {name: [None] * len(rows) for name in serving.outputs}
    if not there:
        return found
    with torch.inference_mode():
        outputs = module(torch.from_numpy(inputs).to(device)).double().cpu()
    raw = scores(outputs)
    winners = raw.argmax(1).tolist()
    columns: dict[str, Any] = {
        LABEL: [serving.classes[one] if one < len(serving.classes) else str(one) for one in winners],
        INDEX: [float(one) for one in winners],
        RAW: raw.numpy(),
        PROBABILITY: chances(outputs).numpy(),
    }
    for name in serving.outputs:
        for row, value in zip(there, columns[name], strict=True):
            found[name][row] = value
    return found


def _joined(parts: list[dict[str, list[Any]]], serving: Serving) -> Any:
    with extras():
        import pandas as pd
    columns = {name: [value for part in parts for value in part[name]] for name in serving.outputs}
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


def _refused(serving: Serving, fact: str, place: str, row: int, remedy: str) -> ConfigError:
    before, _, first = place.rpartition(" ")
    return ConfigError(f"column {serving.column!r} {fact}: {before} {int(first) + row}; {remedy}")


def _null(serving: Serving, rows: list[Any], place: str) -> None:
    row = next((number for number, one in enumerate(rows) if one is None), None)
    if row is not None:
        raise _refused(serving, "is null", place, row, f"leave such rows out: df.na.drop(subset=[{serving.column!r}])")


def _numbers(serving: Serving, rows: list[Any], place: str) -> Any:
    _null(serving, rows, place)
    wanted = serving.input.shape
    try:
        with np.errstate(over="ignore"):
            found = _array(serving, [_plain(one) for one in rows])
    except (TypeError, ValueError):
        found = None
    if found is None or found.shape[1:] != wanted:
        for row, one in enumerate(rows):
            try:
                shape = _array(serving, _plain(one)).shape
            except (TypeError, ValueError):
                raise _refused(
                    serving, "is ragged inside, or holds null", place, row, "fill it, or leave such rows out"
                ) from None
            if shape != wanted:
                remedy = f"the model was fitted on {serving.input}: give it such rows"
                raise _refused(serving, f"has a row of shape {shape}", place, row, remedy)
    assert found is not None
    finite = np.isfinite(found).reshape(len(rows), -1).all(1)
    if not finite.all():
        remedy = "fill them (pyspark.ml.feature.Imputer, coalesce), or leave such rows out"
        raise _refused(serving, "holds null, NaN or infinite numbers", place, int(finite.argmin()), remedy)
    return found


def _array(serving: Serving, values: Any) -> Any:
    """Raises ValueError or TypeError for what has no shape, and for a null among whole numbers."""
    if serving.input.dtype == "int64" and np.asarray(values).dtype.kind == "f":
        raise ValueError("null")  # Arrow gives whole numbers beside a null as floats, which a cast would make any number
    return np.asarray(values, dtype=serving.input.dtype)


def _plain(value: Any) -> Any:
    """Nested arrays as Arrow gives them, arrays of arrays, as lists of arrays."""
    return [_plain(one) for one in value] if isinstance(value, np.ndarray) and value.dtype == object else value


def _images(serving: Serving, rows: list[Any], place: str, files: Files) -> tuple[list[int], Any]:
    """The images that can be read, and which rows they are."""
    # The fields of a null struct are all null: NaN in pandas, which makes floats of the numbers in the good rows beside it.
    null = [serving.kind == "image" and (one.mode is None or one.mode != one.mode) for one in rows]
    _null(serving, [None if gone else one for gone, one in zip(null, rows, strict=True)], place)
    there, views = [], []
    means = np.array(serving.input.means, np.float32)
    for row, one in enumerate(rows):
        try:
            if serving.kind == "image":
                one = encoded(one)
            elif serving.kind in FILES:
                one = files.read(one)
            view = centre_view(decode(bytes(one), serving.input.shorter_edge), serving.input.crop)
        except BadImage:  # as an ingest leaves such an image out
            continue
        except OSError as error:  # a file that is not there, or not ours to read
            if error.errno in _STORAGE:
                raise
            continue
        there.append(row)
        views.append(subtract_mean(view, means).astype(np.float32))
    return there, np.stack(views) if views else None
