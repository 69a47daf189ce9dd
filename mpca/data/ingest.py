"""From images as they come to shards, index and manifest: shuffled once, by several processes, and resumable.

What goes into which shard follows from the source's listing and the options alone, so an ingest that was broken off goes on
with the shards that have no note yet (`ingest_worker.py`). The manifest comes last: before it there is no data set.
Not for reading what was written: `stream.py`.
"""

from __future__ import annotations

import hashlib
import json
import platform
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np

from mpca.data.child import Died, Said, work
from mpca.data.index import HEADER
from mpca.data.ingest_sources import Item, Listing, listing
from mpca.data.ingest_worker import WORK, Note, Task, read_note
from mpca.data.manifest import BAD_FILE, MANIFEST, SPLITS, Manifest, Shard, Split, index_name, load_manifest, store_at
from mpca.errors import ConfigError, MpcaError
from mpca.storage import Store

__all__ = ["Ingested", "Options", "ingest"]

_STARTS = 3  # a process that dies so often without reading anything will go on doing so


@dataclass(frozen=True, slots=True)
class Options:
    """What decides what is written."""

    seed: int = 0
    shorter_edge: int = 0  # encode again with the shorter edge at so many pixels; 0: the bytes as they are
    withheld: int = 0  # images of each class that go into the validation split
    shard_bytes: int = 120 << 20  # with its index a shard fits into one block of HDFS

    def __post_init__(self) -> None:
        if self.withheld < 0 or self.shorter_edge < 0 or self.shard_bytes < 1 << 10:
            raise ConfigError(f"not a way to ingest: {self}")


@dataclass(frozen=True, slots=True)
class Ingested:
    manifest: Manifest
    found: str  # "new", "resumed" or "finished": what there was in the target


def ingest(
    source: Path, target: str, options: Options, processes: int, on_progress: Callable[[int, int], None] = lambda done, of: None
) -> Ingested:
    """Ingest, go on with it, or find it finished.

    Args:
        on_progress: called with the images that are done, and all of them.

    Raises:
        ConfigError: not a source; the target holds something else; a class lost all of its images.
    """
    store = store_at(target)
    images = listing(source)
    digest = _digest(images, options)
    if store.exists(MANIFEST):
        manifest = load_manifest(store)
        if manifest.source != digest:
            raise ConfigError(f"{target} holds a data set of another source, or with other options: ingest into another folder")
        return Ingested(manifest, "finished")
    plan = f"{WORK}/plan.json"
    resumed = store.exists(plan)
    if resumed and json.loads(store.read(plan) or b"{}").get("source") != digest:
        raise ConfigError(
            f"{target} holds an unfinished ingest of another source, or with other options: finish that one, or remove it"
        )
    if not resumed and store.names(""):
        raise ConfigError(f"{target} is not empty, and what is in it is not of an ingest: use another folder")
    tasks = _tasks(images, target, options)
    store.write(plan, json.dumps({"source": digest}).encode())
    notes = _build(store, tasks, processes, on_progress)
    manifest = _finish(store, images, options, digest, notes)
    return Ingested(manifest, "resumed" if resumed else "new")


def _digest(images: Listing, options: Options) -> str:
    digest = hashlib.sha256(repr((options, images.classes)).encode())
    for item in images.items:
        digest.update(f"{item.key}\t{item.label}\t{item.length}\n".encode())
    return digest.hexdigest()


def _tasks(images: Listing, target: str, options: Options) -> list[Task]:
    order = np.random.default_rng((9, options.seed)).permutation(len(images.items))
    counts = Counter(item.label for item in images.items)
    for label, name in enumerate(images.classes):
        if counts[label] <= options.withheld:
            raise ConfigError(
                f"nothing is left to train on: class {name} has {counts[label]} images, withheld={options.withheld}"
            )
    taken: Counter[int] = Counter()
    by_split: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for place in order.tolist():
        item = images.items[place]
        taken[item.label] += 1
        by_split["validation" if taken[item.label] <= options.withheld else "train"].append(item)
    return [
        Task(target, split, number, items, options.shorter_edge)
        for split, chosen in by_split.items()
        for number, items in enumerate(_cut(chosen, options.shard_bytes))
    ]


def _cut(items: Sequence[Item], shard_bytes: int) -> list[list[Item]]:
    shards: list[list[Item]] = []
    size = shard_bytes
    for item in items:
        if size + item.length > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(item)
        size += item.length + 2048  # headers, padding and the label's file
    return shards


def _build(store: Store, tasks: list[Task], processes: int, on_progress: Callable[[int, int], None]) -> dict[str, list[Note]]:
    """The notes of all shards, in their order, by split."""
    total = sum(len(task.items) for task in tasks)
    todo = deque(task for task in tasks if read_note(store, task) is None)
    done = total - sum(len(task.items) for task in todo)
    at: dict[str, int] = {}  # shard -> item that its process is at
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
        note = read_note(store, task)
        if note is None:
            raise MpcaError(f"the note of {store.describe(task.shard)} is gone: is another ingest at work there?")
        notes[task.split].append(note)
    return notes


def _again(task: Task, item: int | None, reason: str, lifeless: Counter[str]) -> Task:
    """The task without the item that its process died of."""
    if item is not None:
        return replace(task, skip={**task.skip, item: f"the decoder died of it: {reason}"})
    lifeless[task.shard] += 1
    if lifeless[task.shard] == _STARTS:
        raise MpcaError(f"the process that ingests does not start: {reason}")
    return task


def _finish(store: Store, images: Listing, options: Options, digest: str, notes: dict[str, list[Note]]) -> Manifest:
    splits = {}
    for split, of in notes.items():
        if of:
            splits[split] = _write_index(store, split, of, len(images.classes))
    empty = [name for name, count in zip(images.classes, splits["train"].by_class, strict=True) if not count]
    if empty:
        raise ConfigError(
            f"{len(empty)} classes have no readable image to train on: {', '.join(empty[:10])}; "
            f"mend them and ingest anew, into another folder than {store.describe('')}"
        )
    pixels = sum(note.pixels for note in notes["train"])
    bad = [one for of in notes.values() for note in of for one in note.bad]
    manifest = Manifest(
        classes=images.classes,
        channel_means=[round(sum(note.sums[c] for note in notes["train"]) / pixels, 4) for c in range(3)],
        splits=splits,
        bad=len(bad),
        shorter_edge=options.shorter_edge,
        seed=options.seed,
        source=digest,
        versions={"python": platform.python_version(), **{name: metadata.version(name) for name in ("mpca", "simplejpeg")}},
    )
    _replace(store, BAD_FILE, "".join(json.dumps(one) + "\n" for one in bad).encode())
    _replace(store, MANIFEST, manifest.dump())
    store.delete(WORK)
    return manifest


def _write_index(store: Store, split: str, notes: list[Note], classes: int) -> Split:
    shards, lines = [], [HEADER]
    counts: Counter[int] = Counter()
    for number, note in enumerate(notes):
        shards.append(Shard(Task("", split, number, [], 0).shard, len(note.lines), note.bytes))
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
