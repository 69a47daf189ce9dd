"""CIFAR-10's own files, in both published forms: binary (`.bin`) and Python pickles.

A pickle cannot run code here: small classes of this module stand in for numpy's, and every other name is refused. Not for
splits, means or augmentation: `cifar10.py`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.checks import refused
from mpca.errors import ConfigError

__all__ = ["CLASSES", "TEST", "TRAIN", "read", "samples", "withheld"]

CLASSES = 10
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
_WITHHELD = 10  # one in ten of each class: 500 of 5,000 (section 6.2)
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS  # of a binary file: the label, then the red, the green and the blue plane
_LIMIT_BYTES = 64 << 20  # the largest real file has 31 MB
_REMEDY = "unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again, and name the folder that holds its files"

_Bytes = npt.NDArray[np.uint8]


def read(path: str, names: tuple[str, ...]) -> tuple[_Bytes, _Bytes]:
    """Read images, uint8[n, 3, 32, 32], and labels, uint8[n], from some files of the folder.

    Raises:
        ConfigError: a file is missing, has a wrong size, is no pickle of plain data, or has a label out of range.
    """
    parts = [_file(_found(path, name)) for name in names]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def samples(path: str) -> dict[str, int]:
    """Count the samples of each split. It reads all files, so that damaged ones are reported before a run starts.

    Raises:
        ConfigError: as `read`; or the files' lengths differ, since some were cut off; or a class has no image.
    """
    labels = {name: read(path, (name,))[1] for name in (*TRAIN, *TEST)}
    lengths = {name: len(one) for name, one in labels.items()}
    if len(set(lengths.values())) > 1:
        raise refused("data.path", path, f"its files should hold equally many records: {lengths}; {_REMEDY}")
    by_class = np.bincount(np.concatenate([labels[name] for name in TRAIN]), minlength=CLASSES)
    if not by_class.all():
        missing = [int(one) for one in np.flatnonzero(by_class == 0)]
        raise refused("data.path", path, f"no training image of classes {missing}; {_REMEDY}")
    withheld = int((by_class // _WITHHELD).sum())
    return {"train": int(by_class.sum()) - withheld, "validation": withheld, "test": lengths[TEST[0]]}


def withheld(labels: npt.NDArray[Any], seed: int) -> npt.NDArray[np.bool_]:
    """Which training images are kept for validation: an equal number of each class, drawn by the seed."""
    mask = np.zeros(len(labels), dtype=np.bool_)
    for label in range(CLASSES):
        of_class = np.flatnonzero(labels == label)
        mask[np.random.default_rng((3, seed, label)).permutation(of_class)[: len(of_class) // _WITHHELD]] = True
    return mask


def _found(path: str, name: str) -> Path:
    if not path:
        raise refused("data.path", path, f"must be the folder with CIFAR-10's files; {_REMEDY}")
    for file in (Path(path, f"{name}.bin"), Path(path, name)):
        if file.is_file():
            return file
    raise refused("data.path", path, f"has neither {name}.bin nor {name}; {_REMEDY}")


def _file(file: Path) -> tuple[_Bytes, _Bytes]:
    try:
        size = file.stat().st_size
        if not 0 < size <= _LIMIT_BYTES:
            raise _wrong(file, f"wrong size: {size} bytes, of at most {_LIMIT_BYTES}")
        images, labels = _binary(file, size) if file.suffix == ".bin" else _pickled(file)
    except OSError as error:
        raise _wrong(file, f"cannot be read: {error.strerror}") from None
    bad = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if len(bad):
        raise _wrong(file, f"label out of range: record={bad[0]}, label={labels[bad[0]]}, allowed=0..{CLASSES - 1}")
    return images.reshape(-1, 3, 32, 32), labels.astype(np.uint8)


def _binary(file: Path, size: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if size % _RECORD:
        raise _wrong(file, f"wrong size: {size} bytes are no multiple of {_RECORD}, a record")
    records = np.fromfile(file, dtype=np.uint8).reshape(-1, _RECORD)
    return records[:, 1:], records[:, 0]


def _pickled(file: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    try:
        with file.open("rb") as stream:
            content = _PlainUnpickler(stream, encoding="bytes").load()
    except OSError:
        raise
    except Exception as error:  # hostile or damaged bytes make the unpickler raise nearly anything
        raise _wrong(file, f"is no pickle of plain data: {error}") from None
    content = {_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
    array, labels = content.get("data"), content.get("labels")
    if not isinstance(array, _Array) or not isinstance(labels, list) or not all(type(one) is int for one in labels):
        raise _wrong(file, "lacks 'data', an array, or 'labels', a list of whole numbers")
    pixels = array.pixels()
    if pixels is None or len(pixels) != len(labels) * _PIXELS:
        raise _wrong(file, f"'data' must be uint8[{len(labels)}, {_PIXELS}], one row a label")
    return pixels.reshape(-1, _PIXELS), np.array(labels, dtype=object)  # Python's integers: none wraps into the range


def _text(key: Any) -> Any:
    return key.decode("latin1") if isinstance(key, bytes) else key


class _Type:
    """Stands for numpy's dtype: keeps what it was made from."""

    def __init__(self, *arguments: Any) -> None:
        self.code = _text(arguments[0]) if arguments else None

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like, which single bytes do not have."""


class _Array:
    """Stands for numpy's ndarray: keeps its state, and turns it into an array of plain bytes."""

    def __init__(self) -> None:
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def pixels(self) -> _Bytes | None:
        """The array's bytes; None unless it is uint8 in C order."""
        if not isinstance(self._state, tuple) or len(self._state) != 5:
            return None
        *_, kind, is_fortran, content = self._state
        if not isinstance(kind, _Type) or kind.code != "u1" or not isinstance(content, bytes):
            return None
        return None if is_fortran else np.frombuffer(content, dtype=np.uint8)


def _reconstruct(*arguments: Any) -> _Array:
    return _Array()


def _encode(text: str, codec: str) -> bytes:
    return text.encode("latin1")  # how protocol 2 of Python 3 writes bytes; the codec is not looked up


_STANDINS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
}


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, bytes, lists, dictionaries and arrays of bytes; nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STANDINS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not plain data")
        return _STANDINS[module, name]


def _wrong(file: Path, fact: str) -> ConfigError:
    return refused("data.path", str(file), f"{fact}; {_REMEDY}")
