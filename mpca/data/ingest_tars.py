"""ImageNet's tar of tars where many read it at once: found in it are the tars of the classes, and each is read by itself.

To find them costs a few reads of 4 KB a class, wherever the file lies; an inner tar is read from its beginning to its end, in
pieces, so that neither it nor the outer one is ever unpacked or held. `mpca.spark.data.tars` gives each to a task of its own;
one process with a file of its own disk uses `ingest_sources.py`.
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

_HEADER_BYTES = 4 << 10  # a read for a header: they lie a whole class apart
_READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ClassTar:
    """The tar of a class: `length` bytes of the outer one from `offset` on."""

    name: str
    offset: int
    length: int


def class_tars(source: str) -> list[ClassTar]:
    """The tars in a tar of tars, by path or URL, in their order.

    Raises:
        ConfigError: not a tar of tars, or cut off.
        OSError: it cannot be read.
    """
    with _reading(source, 0, None, _HEADER_BYTES) as file, _told(source), tarfile.open(fileobj=file, mode="r:") as outer:
        found = []
        for member in outer:
            if not member.isfile() or PurePosixPath(member.name).suffix != ".tar":
                raise ConfigError(f"{source}: the member {member.name!r} is not the tar of a class, as ImageNet's are")
            found.append(ClassTar(PurePosixPath(member.name).stem, member.offset_data, member.size))
    if not found:
        raise ConfigError(f"no image in {source}: it should hold a tar a class")
    return found


def images_of(source: str, tar: ClassTar) -> Iterator[tuple[str, bytes]]:
    """Each image of a class, with its name.

    Raises:
        ConfigError: cut off, empty, or it holds what is no plain file.
        OSError: it cannot be read.
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
    """A part of a file as a file of its own, read `piece` bytes at a time."""
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

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        wanted = min(len(into), self._length - self._at)
        data = self._store.read_range(self._name, self._offset + self._at, wanted) if wanted > 0 else b""
        into[: len(data)] = data
        self._at += len(data)
        return len(data)
