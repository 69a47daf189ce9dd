"""Builds shards: `ShardBuilder`, and the process ``python -m mpca.data.ingest_worker FD``, of which several run in parallel.

Every image is decoded once, even when its bytes are kept: for the channel means, and so that the ingest reports files that
cannot be decoded, rather than a later training. The process sends each image's number to its parent before it decodes the
image, so that the parent knows which image killed it. A shard is complete when its note exists; a shard without a note is
written again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpca.data.child import serve
from mpca.data.decode import decode
from mpca.data.ingest_sources import Item
from mpca.data.limits import MEMORY_BYTES, limit_cpu, limit_memory
from mpca.data.manifest import opened
from mpca.data.plain_files import read_plain
from mpca.data.shards import ShardWriter, shard_name
from mpca.errors import BadImage
from mpca.extras import extras
from mpca.storage import Store
from mpca.units import format_size

__all__ = ["EDGE", "QUALITY", "WORK", "Note", "ShardBuilder", "Task", "build", "read_note"]

#: Folder of files that only an unfinished ingest needs.
WORK = "_ingest"
#: The paper's shorter edge, in pixels (6.2). Channel means are computed at this size.
EDGE = 256
#: JPEG quality of images that are encoded again.
QUALITY = 92


@dataclass(frozen=True, slots=True)
class Task:
    """One shard to build."""

    target: str
    split: str
    number: int
    items: list[Item]
    shorter_edge: int  # pixels; 0 keeps the bytes
    skip: dict[int, str] = field(default_factory=dict)  # items that killed a decoder -> how it died

    @property
    def shard(self) -> str:
        return shard_name(self.split, self.number)


@dataclass(frozen=True, slots=True)
class Note:
    """Facts about a complete shard."""

    bytes: int
    lines: list[str]  # lines of the index, without the shard's number
    pixels: int
    sums: list[float]  # sum of the pixels, by channel
    labels: list[int]
    bad: list[dict[str, str]]


class ShardBuilder:
    """Builds one shard and its note, record by record."""

    def __init__(self, shorter_edge: int) -> None:
        self._shorter_edge = shorter_edge
        self._writer = ShardWriter()
        self._pixels, self._sums = 0, np.zeros(3)
        self._bad: list[dict[str, str]] = []

    def image(self, key: str, data: bytes, label: int) -> None:
        """Append an image.

        Raises:
            BadImage: training could not read the image.
        """
        pixels = decode(data, self._shorter_edge or EDGE)
        if self._shorter_edge:
            with extras():
                import simplejpeg
            data = simplejpeg.encode_jpeg(pixels, quality=QUALITY, colorspace="RGB", colorsubsampling="420")
        self._writer.add(key, data, label)
        self._pixels += pixels.shape[0] * pixels.shape[1]
        self._sums += pixels.sum(axis=(0, 1), dtype=np.float64)

    def numbers(self, key: str, npy: bytes, label: int) -> None:
        """Append an array in the format of numpy's files."""
        self._writer.add(key, npy, label, "npy")

    def bad(self, name: str, reason: str) -> None:
        """Note a file that was left out, and the reason."""
        self._bad.append({"file": name, "reason": reason})

    def put(self, store: Store, shard: str) -> None:
        """Write the shard, and then its note."""
        data, entries = self._writer.finish(), self._writer.entries
        lines = [entry.line(0).decode().rstrip("\n").partition("\t")[2] for entry in entries]
        note = Note(len(data), lines, self._pixels, self._sums.tolist(), [entry.label for entry in entries], self._bad)
        _put(store, shard, data)
        _put(store, _note_name(shard), json.dumps({name: getattr(note, name) for name in Note.__slots__}).encode())


def build(task: Task, say: Callable[[Any], None]) -> None:
    """Write a shard and then its note."""
    builder = ShardBuilder(task.shorter_edge)
    for number, item in enumerate(task.items):
        if number in task.skip:
            builder.bad(item.name, task.skip[number])
            continue
        say(number)
        limit_cpu()
        try:
            builder.image(item.key, read_plain(item.file, item.offset, item.length), item.label)
        except BadImage as error:
            builder.bad(item.name, str(error))
        except MemoryError:
            builder.bad(item.name, f"decoding it takes more than {format_size(MEMORY_BYTES)}")
        except OSError as error:
            builder.bad(item.name, error.strerror or str(error))
    with opened(task.target) as store:
        builder.put(store, task.shard)


def read_note(store: Store, shard: str) -> Note | None:
    """The note of a shard; None when the shard is not complete."""
    try:
        return Note(**json.loads(store.read(_note_name(shard))))
    except FileNotFoundError:
        return None


def _note_name(shard: str) -> str:
    return f"{WORK}/{shard}.json"


def _put(store: Store, name: str, data: bytes) -> None:
    """Write a file completely or not at all. A file that an interrupted ingest left is replaced."""
    temporary = f"{WORK}/writing-{os.urandom(4).hex()}-{name.rpartition('/')[2]}"  # Spark may run a task twice at once
    store.write(temporary, data)
    store.sync(temporary)
    store.delete(name)
    store.rename(temporary, name)


if __name__ == "__main__":
    limit_memory()
    serve(build)
