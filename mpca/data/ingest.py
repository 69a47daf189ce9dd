"""Ingest: writes source images as shards, indexes and a manifest. Several processes do it, and it can be resumed.

Images are shuffled once. The source's listing and the options alone decide which image goes into which shard, so an interrupted
ingest resumes with the shards that have no note yet (`ingest_worker.py`). The manifest is written last: a folder without it is
no data set. Not for reading shards: `stream.py`.
"""

from __future__ import annotations

import hashlib
import json
import platform
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np

from mpca.data.child import Died, Said, work
from mpca.data.index import HEADER
from mpca.data.ingest_sources import Item, Listing, listing
from mpca.data.ingest_worker import WORK, Note, Task, read_note
from mpca.data.manifest import (
    BAD_FILE,
    MANIFEST,
    SPLITS,
    Manifest,
    Shard,
    Split,
    VectorForm,
    index_name,
    load_manifest,
    opened,
)
from mpca.data.shards import shard_name
from mpca.errors import ConfigError, MpcaError
from mpca.extras import require
from mpca.storage import Store

__all__ = ["Ingested", "Options", "begin", "check_withheld", "finish", "ingest", "look"]

_PLAN = f"{WORK}/plan.json"
_STARTS = 3  # after this many deaths of a process before it reads anything, more attempts are useless


@dataclass(frozen=True, slots=True)
class Options:
    """Options that change the shards."""

    seed: int = 0
    shorter_edge: int = 0  # pixels of the shorter edge of images that are encoded again; 0 keeps the bytes
    withheld: int = 0  # images of each class that go into the validation split
    shard_bytes: int = 120 << 20  # with its index a shard fits into one block of HDFS

    def __post_init__(self) -> None:
        if self.withheld < 0 or self.shorter_edge < 0 or self.shard_bytes < 1 << 10:
            raise ConfigError(f"not a way to ingest: {self}")
        if not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"seed={self.seed}: must lie in 0 .. 2^63 - 1")


@dataclass(frozen=True, slots=True)
class Ingested:
    manifest: Manifest
    found: str  # state of the target before: "new", "resumed" (unfinished) or "finished"


def ingest(
    source: Path,
    target: str,
    options: Options,
    processes: int,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
    test: Path | None = None,
) -> Ingested:
    """Ingest a source, resume an unfinished ingest, or find a finished one.

    Args:
        source: a tar of tars, a folder with a folder per class, or a CSV: see `ingest_sources`.
        target: folder of the data set: a path, or a URL of HDFS.
        processes: number of decoding processes.
        on_progress: called with the number of images that are done, and of all.
        test: images of the same classes for a split "test", which is for evaluation alone.

    Raises:
        ConfigError: not a source; the target holds something else; a class lost all of its images.
        EnvironmentRefused: nothing is installed that decodes images.
        MpcaError: the decoding process does not start, or another ingest removed a note.
    """
    require("simplejpeg", "PIL")
    images = listing(source)
    tests = _labelled(listing(test), images.classes, test) if test is not None else []
    digest = _digest(images, tests, options)
    with opened(target) as store:
        found, manifest = look(store, target, digest)
        if manifest is None:
            tasks = _tasks(images, tests, target, options)
            begin(store, digest)
            notes = _build(store, tasks, processes, on_progress)
            manifest = finish(store, images.classes, options, digest, notes)
    return Ingested(manifest, found)


def look(store: Store, target: str, digest: str) -> tuple[str, Manifest | None]:
    """The state of a target: "new", "resumed" (unfinished), or "finished" with its manifest.

    Args:
        digest: of the source and the options that the target is for.

    Raises:
        ConfigError: the target holds something else.
    """
    if store.exists(MANIFEST):
        manifest = load_manifest(store)
        if manifest.source != digest:
            raise ConfigError(f"{target} holds a data set of another source, or with other options: ingest into another folder")
        return "finished", manifest
    if not store.exists(_PLAN):
        if store.names(""):
            raise ConfigError(f"{target} is not empty, and holds no ingest: use another folder")
        return "new", None
    if json.loads(store.read(_PLAN) or b"{}").get("source") != digest:
        raise ConfigError(
            f"{target} holds an unfinished ingest of another source, or with other options: finish that one, or remove it"
        )
    return "resumed", None


def begin(store: Store, digest: str) -> None:
    """Write down which source and options the ingest has, before its first shard."""
    store.write(_PLAN, json.dumps({"source": digest}).encode())


def _labelled(tests: Listing, classes: list[str], source: Path) -> list[Item]:
    """The items of the test listing, with the labels of the training classes."""
    labels = {name: label for label, name in enumerate(classes)}
    unknown = [name for name in tests.classes if name not in labels]
    if unknown:
        raise ConfigError(
            f"{len(unknown)} classes of {source} are not classes of the training source: {', '.join(unknown[:10])}; "
            "a class has the same name in both sources: its folder, its tar, or its label in the CSV"
        )
    return [replace(item, label=labels[tests.classes[item.label]]) for item in tests.items]


def _digest(images: Listing, tests: list[Item], options: Options) -> str:
    digest = hashlib.sha256(repr((options, images.classes)).encode())
    for items in (images.items, tests):
        for item in items:
            digest.update(f"{item.key}\t{item.label}\t{item.length}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _tasks(images: Listing, tests: list[Item], target: str, options: Options) -> list[Task]:
    order = np.random.default_rng((9, options.seed)).permutation(len(images.items))
    check_withheld(images.classes, Counter(item.label for item in images.items), options.withheld)
    taken: Counter[int] = Counter()
    by_split: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for index in order.tolist():
        item = images.items[index]
        taken[item.label] += 1
        by_split["validation" if taken[item.label] <= options.withheld else "train"].append(item)
    by_split["test"] = [tests[index] for index in np.random.default_rng((13, options.seed)).permutation(len(tests)).tolist()]
    return [
        Task(target, split, number, items, options.shorter_edge)
        for split, chosen in by_split.items()
        for number, items in enumerate(_cut(chosen, options.shard_bytes))
    ]


def check_withheld(classes: Sequence[str], counts: Mapping[int, int], withheld: int) -> None:
    """Raise ConfigError when a class has no records left after `withheld` of them are withheld."""
    for label, name in enumerate(classes):
        if counts.get(label, 0) <= withheld:
            raise ConfigError(
                f"nothing is left to train on: class {name} has {counts.get(label, 0)} records, withheld={withheld}"
            )


def _cut(items: Sequence[Item], shard_bytes: int) -> list[list[Item]]:
    shards: list[list[Item]] = []
    size = 0
    for item in items:
        if not shards or size + item.length > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(item)
        size += item.length + 2048  # headers, padding and the label's file
    return shards


def _build(store: Store, tasks: list[Task], processes: int, on_progress: Callable[[int, int], None]) -> dict[str, list[Note]]:
    """The notes of all shards, in their order, by split."""
    total = sum(len(task.items) for task in tasks)
    todo = deque(task for task in tasks if read_note(store, task.shard) is None)
    done = total - sum(len(task.items) for task in todo)
    at: dict[str, int] = {}  # shard -> the item that its process works on
    lifeless: Counter[str] = Counter()
    on_progress(done, total)
    for event in work("mpca.data.ingest_worker", todo, processes):
        task = event.task
        if isinstance(event, Said):
            at[task.shard] = event.value
            on_progress(done + sum(at.values()), total)
        elif isinstance(event, Died):
            todo.appendleft(_again(task, at.pop(task.shard, None), event.reason, lifeless))
        else:
            at.pop(task.shard, None)
            done += len(task.items)
            on_progress(done + sum(at.values()), total)
    notes: dict[str, list[Note]] = {split: [] for split in SPLITS}
    for task in tasks:
        note = read_note(store, task.shard)
        if note is None:
            raise MpcaError(f"the note of {store.describe(task.shard)} is gone: is another ingest at work there?")
        notes[task.split].append(note)
    return notes


def _again(task: Task, item: int | None, reason: str, lifeless: Counter[str]) -> Task:
    """The task without the item that killed its process.

    Raises:
        MpcaError: the process died `_STARTS` times before its first item.
    """
    if item is not None:
        return replace(task, skip={**task.skip, item: f"the decoder died of it: {reason}"})
    lifeless[task.shard] += 1
    if lifeless[task.shard] == _STARTS:
        raise MpcaError(f"the process that ingests does not start: {reason}")
    return task


def finish(
    store: Store,
    classes: list[str],
    options: Options,
    digest: str,
    notes: Mapping[str, list[Note]],
    vectors: VectorForm | None = None,
) -> Manifest:
    """Write indexes, the list of bad files and the manifest, from the notes of all shards.

    Args:
        notes: by split, in the order of its shards.
        vectors: the form of records that are numbers; None for images.

    Raises:
        ConfigError: a class lost all of its records.
    """
    splits = {}
    for split, of in notes.items():
        if of:
            splits[split] = _write_index(store, split, of, len(classes))
    empty = [name for name, count in zip(classes, splits["train"].by_class, strict=True) if not count]
    if empty:
        raise ConfigError(
            f"{len(empty)} classes have no readable image to train on: {', '.join(empty[:10])}; "
            f"mend them and ingest anew, into another folder than {store.describe('')}"
        )
    bad = [one for of in notes.values() for note in of for one in note.bad]
    used = ("mpca",) if vectors is not None else ("mpca", "simplejpeg")
    manifest = Manifest(
        classes=classes,
        channel_means=[] if vectors is not None else _means(notes["train"]),
        splits=splits,
        bad=len(bad),
        shorter_edge=options.shorter_edge,
        seed=options.seed,
        source=digest,
        versions={"python": platform.python_version(), **{name: metadata.version(name) for name in used}},
        vectors=vectors,
    )
    _replace(store, BAD_FILE, "".join(json.dumps(one) + "\n" for one in bad).encode())
    _replace(store, MANIFEST, manifest.dump())
    store.delete(WORK)
    return manifest


def _means(notes: Sequence[Note]) -> list[float]:
    pixels = sum(note.pixels for note in notes)
    return [round(sum(note.sums[c] for note in notes) / pixels, 4) for c in range(3)]


def _write_index(store: Store, split: str, notes: list[Note], classes: int) -> Split:
    shards, lines = [], [HEADER]
    counts: Counter[int] = Counter()
    for number, note in enumerate(notes):
        shards.append(Shard(shard_name(split, number), len(note.lines), note.bytes))
        lines += [f"{number}\t{line}\n".encode() for line in note.lines]
        counts.update(note.labels)
    data = b"".join(lines)
    _replace(store, index_name(split), data)
    by_class = [counts[label] for label in range(classes)]
    return Split(sum(by_class), by_class, f"{zlib.crc32(data):08x}", shards)


def _replace(store: Store, name: str, data: bytes) -> None:
    temporary = f"{WORK}/writing-{name}"
    store.write(temporary, data)
    store.sync(temporary)
    store.delete(name)
    store.rename(temporary, name)
    store.sync("")
