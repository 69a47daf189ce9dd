"""Rows of a table as records: what a column of features may hold, one row's bytes and digest, and a survey of all of them.

A row's digest is drawn from its content, its label and the seed. Records are ordered by it, and the first ones of a class are
withheld by it; so what is written follows from content and seed, however the rows were ordered and partitioned. Equal rows
cannot be told apart: they go into the same split. Pure: no Spark and no files; `mpca.spark.data.dataframes` carries it to the
executors. Not for writing shards: `ingest_rows.py`.
"""

from __future__ import annotations

import hashlib
import heapq
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpca.data.ingest_worker import QUALITY
from mpca.errors import BadImage
from mpca.extras import extras

__all__ = ["FILES", "IMAGES", "NUMBERS", "Form", "Label", "Packed", "Refusal", "Seen", "Survey", "pack_rows", "survey"]

#: Kinds of columns: numbers; images in the row; names of files.
NUMBERS, IMAGES, FILES = ("vector", "array"), ("binary", "file", "image"), ("path",)

Label = int | str
_DIGEST_BYTES = 16
#: OpenCV's modes in Spark's image struct -> channels: grey, BGR, BGRA, of 8 bits.
_MODES = {0: 1, 16: 3, 24: 4}


@dataclass(frozen=True, slots=True)
class Form:
    """Which columns of a table are records, and how they are read."""

    features: str
    label: str
    kind: str  # one of NUMBERS, IMAGES and FILES
    dtype: str = ""  # of numbers, as numpy calls it


@dataclass(frozen=True, slots=True)
class Packed:
    """One row as it is written."""

    digest: bytes
    label: Label
    data: bytes  # JPEG, .npy, or a file's name
    row: str  # where a person finds it
    reason: str = ""  # why there is no image in it


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that a row breaks, and what to do about it."""

    fact: str
    remedy: str


class _Refused(Exception):
    def __init__(self, refusal: Refusal, value: str = "") -> None:
        self.refusal, self.value = refusal, value


def pack_rows(form: Form, partition: int, rows: Iterable[Any], seed: int) -> Iterator[Packed | tuple[Refusal, str]]:
    """Each row of a partition as a record; or why it cannot be one, and where it is.

    Args:
        rows: (features, label), as Spark hands them over.
    """
    for number, (features, label) in enumerate(rows):
        where = f"partition {partition}, row {number}"
        try:
            whole = _label(form, label)
            data, name, reason = _data(form, features)
        except _Refused as error:
            yield error.refusal, f"{where}{error.value}"
            continue
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=seed.to_bytes(8, "little"))
        digest.update(f"{type(whole).__name__} {whole} ".encode())
        digest.update(data or f"{name} {reason}".encode())
        yield Packed(digest.digest(), whole, data, f"{where}{name}", reason)


def _label(form: Form, label: Any) -> Label:
    if label is None:
        raise _Refused(Refusal(f"column {form.label!r} is null", f"leave such rows out: df.na.drop(subset=[{form.label!r}])"))
    if isinstance(label, str):
        if not label:
            raise _Refused(Refusal(f"column {form.label!r} is an empty text", "leave such rows out, or name their class"))
        return label
    if label % 1:  # NaN is true as well
        remedy = "labels count classes from 0; give them as integers, or their names as texts"
        raise _Refused(Refusal(f"column {form.label!r} is not a whole number", remedy), f": {label}")
    if label < 0:
        rule = Refusal(f"label out of range: column {form.label!r} is below 0", "labels count classes from 0")
        raise _Refused(rule, f": {int(label)}")
    return int(label)


def _data(form: Form, features: Any) -> tuple[bytes, str, str]:
    """Bytes, name, and why there are none."""
    if features is None:
        remedy = f"leave such rows out: df.na.drop(subset=[{form.features!r}])"
        raise _Refused(Refusal(f"column {form.features!r} is null", remedy))
    if form.kind in NUMBERS:
        return _numbers(form, features), "", ""
    if form.kind == "binary":
        return bytes(features), "", ""
    if form.kind == "file":
        return bytes(features.content), f": {features.path}", ""
    if form.kind in FILES:
        return str(features).encode(), f": {features}", ""
    try:
        return _encoded(features), f": {features.origin}" if features.origin else "", ""
    except BadImage as error:
        return b"", f": {features.origin}" if features.origin else "", str(error)


def _numbers(form: Form, features: Any) -> bytes:
    """The numbers as numpy writes them to a file; in float32, which is what is trained on, unless they are whole."""
    held = features.toArray() if form.kind == "vector" else features
    try:
        with np.errstate(over="ignore"):  # what is too large for it becomes infinite, and is refused below
            array = np.asarray(held, dtype=form.dtype)
    except (TypeError, ValueError):
        rule = Refusal(
            f"column {form.features!r} is ragged inside, or holds null", "fill it: arrays of one shape, without null"
        )
        raise _Refused(rule) from None
    if not np.isfinite(array).all():  # a null in an array is NaN here
        rule = Refusal(
            f"column {form.features!r} holds null, NaN or infinite numbers",
            "fill them (pyspark.ml.feature.Imputer, coalesce), or leave such rows out",
        )
        raise _Refused(rule)
    if not array.size:
        raise _Refused(Refusal(f"column {form.features!r} is empty", "leave such rows out"))
    out = io.BytesIO()
    np.save(out, np.ascontiguousarray(array))
    return out.getvalue()


def _encoded(image: Any) -> bytes:
    """An image struct, which holds pixels, as a JPEG.

    Raises:
        BadImage: Spark could not read it, or it is of no kind that a JPEG holds.
    """
    channels, data = _MODES.get(image.mode), bytes(image.data or b"")
    if channels is None:
        raise BadImage(f"not 8 bits a channel, or not read by Spark: mode={image.mode}")
    if channels != image.nChannels or len(data) != image.height * image.width * channels or not data:
        size = f"height={image.height}, width={image.width}, nChannels={image.nChannels}"
        raise BadImage(f"pixels of another size: {size}, bytes={len(data)}")
    pixels = np.frombuffer(data, np.uint8).reshape(image.height, image.width, channels)
    with extras():
        import simplejpeg
    if channels == 1:
        return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), QUALITY, "GRAY", "Gray"))
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels[..., :3]), QUALITY, "BGR", "420"))


# ---- a survey of all rows ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """What was met of one sort: how often, and where first."""

    count: int = 0
    first: str = ""
    data_bytes: int = 0
    smallest: list[bytes] = field(default_factory=list)  # digests: at least as many of the first ones as are withheld

    def add(self, other: Seen, withheld: int) -> None:
        self.count += other.count
        self.first = self.first or other.first
        self.data_bytes += other.data_bytes
        self.smallest += other.smallest
        if len(self.smallest) > 2 * withheld + 16:  # not every time: that would sort for each row
            self.smallest = heapq.nsmallest(withheld, self.smallest)


@dataclass(slots=True)
class Survey:
    """What the driver is told of some rows; two are added up."""

    withheld: int
    labels: dict[Label, Seen] = field(default_factory=dict)
    forms: dict[tuple[str, tuple[int, ...]], Seen] = field(default_factory=dict)  # dtype and shape of numbers
    refused: dict[Refusal, Seen] = field(default_factory=dict)
    digests: int = 0  # their sum: the same in any order

    def plus(self, other: Survey) -> Survey:
        """This one, with the other's rows in it."""
        tables: tuple[tuple[dict[Any, Seen], dict[Any, Seen]], ...] = (
            (self.labels, other.labels),
            (self.forms, other.forms),
            (self.refused, other.refused),
        )
        for mine, theirs in tables:
            for key, seen in theirs.items():
                mine.setdefault(key, Seen()).add(seen, self.withheld)
        self.digests = (self.digests + other.digests) % (1 << 8 * _DIGEST_BYTES)
        return self

    @property
    def records(self) -> int:
        return sum(seen.count for seen in self.labels.values())

    @property
    def data_bytes(self) -> int:
        return sum(seen.data_bytes for seen in self.labels.values())


def survey(form: Form, packed: Iterable[Packed | tuple[Refusal, str]], withheld: int, length: Any = None) -> Survey:
    """What there is in some rows.

    Args:
        length: bytes of the file of that name; for columns of names alone.
    """
    told = Survey(withheld)
    for one in packed:
        if not isinstance(one, Packed):
            refusal, where = one
            told.refused.setdefault(refusal, Seen()).add(Seen(1, where), 0)
            continue
        size = len(one.data) if length is None else length(one.data.decode())
        seen = Seen(1, one.row, size, [one.digest])
        told.labels.setdefault(one.label, Seen()).add(seen, withheld)
        if form.kind in NUMBERS:
            told.forms.setdefault(_form_of(one.data), Seen()).add(Seen(1, one.row), 0)
        told.digests = (told.digests + int.from_bytes(one.digest, "little")) % (1 << 8 * _DIGEST_BYTES)
    return told


def _form_of(npy: bytes) -> tuple[str, tuple[int, ...]]:
    head = io.BytesIO(npy)
    np.lib.format.read_magic(head)
    shape, _, dtype = np.lib.format.read_array_header_1_0(head)
    return dtype.name, shape
