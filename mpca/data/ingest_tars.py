"""Reads ImageNet's tar of tars in parallel: it finds the tars of the classes, and reads each by itself.

Finding them costs a few reads of 4 KB per class, on any storage. An inner tar is read from beginning to end in pieces; no tar
is unpacked or held in memory. `mpca.spark.data.tars` gives each inner tar a task of its own. A single process that reads a
local file uses `ingest_sources.py`.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from mpca.data.ingest_sources import check_member
from mpca.data.manifest import opened
from mpca.errors import ConfigError
from mpca.storage import Store

__all__ = ["ClassTar", "class_tars", "images_of"]

_HEADER_BYTES = 4 << 10  # bytes of a read for one header; the next header is a whole class away
_READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ClassTar:
    """The tar of a class: `length` bytes of the outer tar, from `offset` on."""

    name: str
    offset: int
    length: int


def class_tars(source: str) -> list[ClassTar]:
    """Find the tars in a tar of tars, in their order.

    Args:
        source: a path or a URL.

    Raises:
        ConfigError: the source is no tar of tars, or is cut off.
        OSError: the source cannot be read.
    """
    with _reading(source, 0, None, _HEADER_BYTES) as file, _told(source), tarfile.open(fileobj=file, mode="r:") as outer:
        found = []
        for member in outer:
            if not member.isfile() or PurePosixPath(member.name).suffix != ".tar":
                raise ConfigError(f"{source}: the member {member.name!r} is not the tar of a class, as ImageNet's are")
            found.append(ClassTar(PurePosixPath(member.name).stem, member.offset_data, member.size))
    if not found:
        raise ConfigError(f"no image in {source}: it should hold a tar for each class")
    return found


def images_of(source: str, tar: ClassTar) -> Iterator[tuple[str, bytes]]:
    """Read each image of a class; yields its name and its bytes.

    Raises:
        ConfigError: the tar is cut off, is empty, or has a member that is no plain file.
        OSError: the source cannot be read.
    """
    count = 0
    reading = _reading(source, tar.offset, tar.length, _READ_BYTES)
    with reading as file, _told(source), tarfile.open(fileobj=file, mode="r:") as inner:
        for count, image in enumerate(inner, start=1):  # noqa: B007
            check_member(source, f"{tar.name}.tar", image)
            held = inner.extractfile(image)
            assert held is not None  # it is a plain file
            yield f"{tar.name}/{image.name}", held.read()
    if not count:
        raise ConfigError(f"a class without an image: {tar.name}.tar in {source} is empty")


@contextmanager
def _told(source: str) -> Iterator[None]:
    try:
        yield
    except tarfile.TarError as error:
        raise ConfigError(f"not an uncompressed tar of tars, or cut off: {source}: {error}") from None


@contextmanager
def _reading(source: str, offset: int, length: int | None, piece: int) -> Iterator[io.BufferedReader]:
    """Open a part of a file as a file, which is read in pieces of `piece` bytes."""
    folder, _, name = source.rpartition("/")
    with opened(folder or ("/" if source.startswith("/") else ".")) as store:
        part = _Part(store, name, offset, store.size(name) - offset if length is None else length)
        yield io.BufferedReader(part, piece)


class _Part(io.RawIOBase):
    def __init__(self, store: Store, name: str, offset: int, length: int) -> None:
        self._store, self._name, self._offset, self._length = store, name, offset, length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]  # io gives it nothing else
        wanted = min(len(into), self._length - self._at)
        data = self._store.read_range(self._name, self._offset + self._at, wanted) if wanted > 0 else b""
        into[: len(data)] = data
        self._at += len(data)
        return len(data)
