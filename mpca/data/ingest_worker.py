"""The process that builds shards: ``python -m mpca.data.ingest_worker FD``, several beside each other.

Every image is decoded once, whether it is encoded again or not: for the channel means, and because a file that cannot be
decoded is better named now than in the middle of a training. Before each one the parent hears its number, so that it knows
which one killed us. A shard is complete when its note is there; what was written without one is written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simplejpeg

from mpca.data.child import serve
from mpca.data.decode import decode
from mpca.data.ingest_sources import Item
from mpca.data.manifest import store_at
from mpca.data.shards import ShardWriter, shard_name
from mpca.errors import BadImage
from mpca.storage import Store

__all__ = ["EDGE", "WORK", "Note", "Task", "build", "read_note"]

#: Folder of what only an unfinished ingest needs.
WORK = "_ingest"
#: The paper's shorter edge (6.2), and of the pixels that the means are of.
EDGE = 256
_QUALITY = 92


@dataclass(frozen=True, slots=True)
class Task:
    """One shard to build."""

    target: str
    split: str
    number: int
    items: list[Item]
    shorter_edge: int  # 0: the bytes as they are
    skip: dict[int, str] = field(default_factory=dict)  # items that killed a decoder, and how

    @property
    def shard(self) -> str:
        return shard_name(self.split, self.number)


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of a shard that is complete."""

    bytes: int
    lines: list[str]  # of the index, without the shard's number
    pixels: int
    sums: list[float]  # by channel
    labels: list[int]
    bad: list[dict[str, str]]


def build(task: Task, say: Callable[[Any], None]) -> None:
    """Write a shard and then its note."""
    writer, bad = ShardWriter(), []
    pixels, sums = 0, np.zeros(3)
    for number, item in enumerate(task.items):
        if number in task.skip:
            bad.append({"file": item.name, "reason": task.skip[number]})
            continue
        say(number)
        try:
            jpeg = _read(item)
            image = decode(jpeg, task.shorter_edge or EDGE)
        except (BadImage, OSError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            bad.append({"file": item.name, "reason": reason})
            continue
        if task.shorter_edge:
            jpeg = simplejpeg.encode_jpeg(image, quality=_QUALITY, colorspace="RGB", colorsubsampling="420")
        writer.add(item.key, jpeg, item.label)
        pixels += image.shape[0] * image.shape[1]
        sums += image.sum(axis=(0, 1), dtype=np.float64)
    data = writer.finish()
    lines = [entry.line(0).decode().rstrip("\n").partition("\t")[2] for entry in writer.entries]
    labels = [entry.label for entry in writer.entries]
    note = Note(len(data), lines, pixels, sums.tolist(), labels, bad)
    store = store_at(task.target)
    _put(store, task.shard, data)
    _put(store, _note_name(task), json.dumps({name: getattr(note, name) for name in Note.__slots__}).encode())


def read_note(store: Store, task: Task) -> Note | None:
    """The note of a shard; None when it is not complete."""
    try:
        return Note(**json.loads(store.read(_note_name(task))))
    except FileNotFoundError:
        return None


def _note_name(task: Task) -> str:
    return f"{WORK}/{task.shard}.json"


def _put(store: Store, name: str, data: bytes) -> None:
    """Under its name at once or not at all; what an interrupted ingest left there is replaced."""
    temporary = f"{WORK}/writing-{name.rpartition('/')[2]}"
    store.write(temporary, data)
    store.sync(temporary)
    store.delete(name)
    store.rename(temporary, name)


def _read(item: Item) -> bytes:
    with open(item.file, "rb", buffering=0) as file:
        file.seek(item.offset)
        data = file.read(item.length)
    if len(data) != item.length:
        raise BadImage(f"truncated: bytes={len(data)}, expected={item.length}")
    return data


if __name__ == "__main__":
    serve(build)
