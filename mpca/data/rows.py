"""Rows of a table as records: the allowed columns of features, a row's bytes and digest, and a survey of all rows.

A row's digest is a hash of its content, its label and the seed. Records are in the order of their digests. The first ones of
each class are withheld, or those below a share of all digests, or those that a column names. So the files depend on content and
seed alone, not on the order or the partitions of the rows. Equal rows have one digest, and go into the same split. Functions
are pure: no Spark and no files; `mpca.spark.data.dataframes` brings them to the executors. Not for writing shards:
`ingest_rows.py`.
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

__all__ = [
    "FILES",
    "IMAGES",
    "NUMBERS",
    "Form",
    "Label",
    "Packed",
    "Refusal",
    "Seen",
    "Survey",
    "encoded",
    "pack_rows",
    "survey",
]

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
    dtype: str = ""  # numpy's name of the type of numbers
    validation: str | float | None = None  # column that is true for rows to evaluate on, or their share of all rows


@dataclass(frozen=True, slots=True)
class Packed:
    """One row as a record."""

    digest: bytes
    label: Label
    data: bytes  # JPEG, .npy, or a file's name
    row: str  # where the row is, for people
    reason: str = ""  # why the row has no image
    withheld: bool = False  # by `Form.validation`


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that a row breaks, and the remedy."""

    fact: str
    remedy: str


class _Refused(Exception):
    def __init__(self, refusal: Refusal, value: str = "") -> None:
        self.refusal, self.value = refusal, value


def pack_rows(form: Form, partition: int, rows: Iterable[Any], seed: int) -> Iterator[Packed | tuple[Refusal, str]]:
    """Turn each row of a partition into a record, or into a refusal that says where the row is.

    Args:
        form: the columns, and how they are read.
        partition: the partition's number, to say where a row is.
        rows: (features, label), as Spark gives them; with a column for validation, that comes third.
        seed: goes into the digests.
    """
    below = _share(form)
    for number, (features, label, *rest) in enumerate(rows):
        where = f"partition {partition}, row {number}"
        try:
            whole = _label(form, label)
            named = _named(form, *rest)
            data, name, reason = _data(form, features)
        except _Refused as error:
            yield error.refusal, f"{where}{error.value}"
            continue
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=seed.to_bytes(8, "little"))
        digest.update(f"{type(whole).__name__} {whole} ".encode())
        digest.update(data or f"{name} {reason}".encode())
        if named:
            digest.update(b" validation")
        found = digest.digest()
        yield Packed(found, whole, data, f"{where}{name}", reason, named or found < below)


def _named(form: Form, value: Any = False) -> bool:
    """Whether the column for validation names a row."""
    if value is None:
        remedy = f"true puts a row aside, false does not: df.fillna(False, [{form.validation!r}]), or 0 where it has numbers"
        raise _Refused(Refusal(f"column {form.validation!r} is null", remedy))
    return bool(value)


def _share(form: Form) -> bytes:
    """The digests below this are the share of rows that is withheld."""
    if not isinstance(form.validation, float):
        return b""
    return int(form.validation * (1 << 8 * _DIGEST_BYTES)).to_bytes(_DIGEST_BYTES, "big")


def _label(form: Form, label: Any) -> Label:
    if label is None:
        raise _Refused(Refusal(f"column {form.label!r} is null", f"leave such rows out: df.na.drop(subset=[{form.label!r}])"))
    if isinstance(label, str):
        if not label:
            raise _Refused(Refusal(f"column {form.label!r} is an empty text", "leave such rows out, or name their class"))
        return label
    if label % 1:  # also true for NaN
        remedy = "labels count classes from 0; give them as integers, or their names as texts"
        raise _Refused(Refusal(f"column {form.label!r} is not a whole number", remedy), f": {label}")
    if label < 0:
        rule = Refusal(f"label out of range: column {form.label!r} is below 0", "labels count classes from 0")
        raise _Refused(rule, f": {int(label)}")
    return int(label)


def _data(form: Form, features: Any) -> tuple[bytes, str, str]:
    """A row's bytes, its name for people, and the reason if there are no bytes."""
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
        return encoded(features), f": {features.origin}" if features.origin else "", ""
    except BadImage as error:
        return b"", f": {features.origin}" if features.origin else "", str(error)


def _numbers(form: Form, features: Any) -> bytes:
    """The numbers in numpy's file format, as `form.dtype`: float32 for training, or int64 for whole numbers."""
    held = features.toArray() if form.kind == "vector" else features
    try:
        with np.errstate(over="ignore"):  # numbers that are too large become infinite, and are refused below
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


def encoded(image: Any) -> bytes:
    """Encode Spark's image struct, which holds pixels, as a JPEG.

    Raises:
        BadImage: Spark could not read the image, or a JPEG cannot hold its kind of pixels.
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
    """Rows of one sort: their number, and where the first one is."""

    count: int = 0
    first: str = ""
    data_bytes: int = 0
    withheld: int = 0  # of them, by `Form.validation`
    smallest: list[bytes] = field(default_factory=list)  # the smallest digests; at least as many as are withheld

    def add(self, other: Seen, withheld: int) -> None:
        self.count += other.count
        self.first = self.first or other.first
        self.data_bytes += other.data_bytes
        self.withheld += other.withheld
        self.smallest += other.smallest
        if len(self.smallest) > 2 * withheld + 16:  # only now and then, or each row would cost a sort
            self.smallest = heapq.nsmallest(withheld, self.smallest)


@dataclass(slots=True)
class Survey:
    """Facts about some rows, for the driver. Surveys of different rows can be added."""

    withheld: int
    labels: dict[Label, Seen] = field(default_factory=dict)
    forms: dict[tuple[str, tuple[int, ...]], Seen] = field(default_factory=dict)  # dtype and shape of numbers
    refused: dict[Refusal, Seen] = field(default_factory=dict)
    digests: int = 0  # sum of the digests, which does not depend on their order

    def plus(self, other: Survey) -> Survey:
        """Add the other survey to this one, and return this one."""
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
    """Survey some rows.

    Args:
        withheld: number of records that are withheld from each class.
        length: gives the size in bytes of the file of a name; for columns of names only.
    """
    told = Survey(withheld)
    for one in packed:
        if not isinstance(one, Packed):
            refusal, where = one
            told.refused.setdefault(refusal, Seen()).add(Seen(1, where), 0)
            continue
        size = len(one.data) if length is None else length(one.data.decode())
        seen = Seen(1, one.row, size, int(one.withheld), [one.digest])
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
