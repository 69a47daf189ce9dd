"""The manifest of an ingested data set: classes, counts, channel means, shards. Its file `manifest.json` is written last.

A folder without it is no data set: an ingest is running, or was interrupted. Not for single records: `index.py`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from mpca.data.index import Index
from mpca.errors import ConfigError
from mpca.formats import DATA_SET, check_format
from mpca.storage import Location, Store
from mpca.storage.opening import open_store

__all__ = [
    "BAD_FILE",
    "MANIFEST",
    "SPLITS",
    "Manifest",
    "Shard",
    "Split",
    "VectorForm",
    "index_name",
    "load_index",
    "load_manifest",
    "opened",
    "store_at",
]

MANIFEST = "manifest.json"
BAD_FILE = "bad.jsonl"
#: "train" is trained on; "validation" is withheld from it, equally from each class; "test" is a set of its own (paper, 6.2).
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Shard:
    name: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Split:
    records: int
    by_class: list[int]  # records of each class
    index_crc32: str
    shards: list[Shard]


@dataclass(frozen=True, slots=True)
class VectorForm:
    """Type and shape of records that are numbers instead of images; all records have the same."""

    dtype: str  # numpy's name
    shape: list[int]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description of a data set."""

    classes: list[str]  # label -> name
    channel_means: list[float]  # red, green, blue of the training split, 0 to 255; empty for numbers
    splits: dict[str, Split]
    bad: int  # source files that were left out, named in bad.jsonl
    shorter_edge: int  # pixels, of images that were encoded again; 0: files were kept
    seed: int
    source: str  # digest of the source's listing and of the options: another ingest into the same folder is refused
    versions: dict[str, str]
    vectors: VectorForm | None = None  # None: images
    format: int = DATA_SET

    def dump(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()

    @classmethod
    def parse(cls, data: bytes, name: str) -> Manifest:
        """Parse a manifest.

        Args:
            data: the file's bytes.
            name: the file's name, for errors.

        Raises:
            ConfigError: the manifest is damaged or of a later version, or a class has no record to train on.
        """
        try:
            fields: dict[str, Any] = json.loads(data)
            check_format(name, fields["format"], DATA_SET, oldest=1)
            fields["splits"] = {split: _split(of) for split, of in fields["splits"].items()}
            if fields.get("vectors"):
                fields["vectors"] = VectorForm(**fields["vectors"])
            manifest = cls(**fields)
            counts = manifest.splits["train"].by_class
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"damaged manifest: {name}: {type(error).__name__}: {error}; ingest the data again") from None
        if len(counts) != len(manifest.classes):
            raise ConfigError(f"{name}: {len(manifest.classes)} classes, but counts of {len(counts)}")
        missing = [of for of, count in zip(manifest.classes, counts, strict=True) if count == 0]
        if missing:
            named = ", ".join(missing[:10])
            raise ConfigError(f"{name}: {len(missing)} of {len(counts)} classes have no record to train on: {named}")
        return manifest


def _split(fields: Mapping[str, Any]) -> Split:
    return Split(**{**fields, "shards": [Shard(**one) for one in fields["shards"]]})


def index_name(split: str) -> str:
    """File name of a split's index."""
    return f"{split}.index"


def store_at(path: str) -> Store:
    """The store of a data set's folder.

    Args:
        path: a path on this machine, or a URL of HDFS.

    Raises:
        ConfigError: the path is empty.
    """
    if not path:
        raise ConfigError("data.path is empty: it must name the folder that `mpca ingest` wrote")
    return open_store(Location.parse(path), links=True)  # these are the user's files, and may be links


@contextmanager
def opened(path: str) -> Iterator[Store]:
    """`store_at` as a context; its connections are closed at the end."""
    store = store_at(path)
    try:
        yield store
    finally:
        getattr(store, "close", lambda: None)()  # `Store` has no close: local files have nothing to close


def load_manifest(store: Store) -> Manifest:
    """Read the manifest of the data set in a store.

    Raises:
        ConfigError: the manifest is missing, or `Manifest.parse` refuses it.
    """
    file = store.describe(MANIFEST)
    try:
        data = store.read(MANIFEST)
    except FileNotFoundError:
        raise ConfigError(f"no data set: {file} does not exist; `mpca ingest SOURCE TARGET` writes it last") from None
    return Manifest.parse(data, file)


def load_index(store: Store, manifest: Manifest, split: str) -> Index:
    """Read a split's index, and compare it with the manifest.

    Raises:
        ConfigError: no such split; the index is missing or damaged; or a label is outside of the classes.
    """
    if split not in manifest.splits:
        raise ConfigError(f"no such split: {split!r}; {store.describe(MANIFEST)} has {', '.join(manifest.splits)}")
    name, of = store.describe(index_name(split)), manifest.splits[split]
    try:
        data = store.read(index_name(split))
    except FileNotFoundError:
        raise ConfigError(f"the index is missing: {name}; ingest the data again") from None
    found = f"{zlib.crc32(data):08x}"
    if found != of.index_crc32:
        raise ConfigError(f"damaged index: {name}: crc32={found}, the manifest says {of.index_crc32}; ingest the data again")
    index = Index.parse(data, len(of.shards), name)
    _check_labels(index, manifest.classes, name)
    counts = [end - start for start, end in zip(index.starts, index.starts[1:], strict=False)]
    if counts != [shard.records for shard in of.shards]:
        raise ConfigError(f"the index is of another data set: {name} has {len(index)} records, the manifest {of.records}")
    return index


def _check_labels(index: Index, classes: Sequence[str], name: str) -> None:
    labels = index.labels()
    wrong = ((labels < 0) | (labels >= len(classes))).nonzero()[0]
    if len(wrong):
        entry = index.entry(int(wrong[0]))
        raise ConfigError(
            f"label out of range: {name}: {len(wrong)} records, the first is {entry.key} with label {entry.label}; "
            f"there are {len(classes)} classes, 0 to {len(classes) - 1}"
        )
