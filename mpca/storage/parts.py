"""A run's records on storage that cannot append: each range of the local file becomes a part, named by its bytes.

::

    records/000000000000000-000000004096-0001.jsonl    first byte, end, attempt of the driver that wrote it
    records.jsonl                                      all records, once an attempt has ended in order

Parts are whole lines. Sixteen neighbours are merged into one, and sixteen of these again, so that a run of weeks has few parts.
The parts of a killed writer stay; the next attempt continues at the byte where they end. Two attempts may hold the same bytes,
when the earlier one does not know yet that it was replaced; the later attempt's bytes then count.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mpca.storage.store import Store

__all__ = ["PartWriter", "joined"]

log = logging.getLogger("mpca.records")
WHOLE, _FOLDER, _FORMER, _NEW = "records.jsonl", "records", ".records.former", ".records.new"
_HIDDEN = ".new"
_NAME = re.compile(r"(\d{15})-(\d{15})-(\d{4})\.jsonl")
_TOGETHER = 16
_LOOKS = 10


@dataclass(frozen=True)
class _Part:
    path: str
    start: int
    end: int
    term: int

    @classmethod
    def of(cls, start: int, end: int, term: int) -> _Part:
        return cls(f"{_FOLDER}/{start:015d}-{end:015d}-{term:04d}.jsonl", start, end, term)


def joined(store: Store, at: int = 0) -> bytes:
    """All records as whole lines, in the order of writing; also of a run that still writes.

    Args:
        store: the run's folder.
        at: number of bytes of them to leave out.

    Raises:
        OSError: the storage failed.
    """
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):  # parts were merged after they were listed
            return _joined(store, at)
    return _joined(store, at)


def _joined(store: Store, at: int) -> bytes:
    data = bytearray()
    for name in (WHOLE, _FORMER):  # a writer may have been killed between the two renames
        if store.exists(name):
            data += store.read_range(name, at, max(store.size(name) - at, 0))
            break
    parts = _held(store)
    while True:
        end = at + len(data)
        fitting = [one for one in parts if one.start <= end < one.end]
        if not fitting:
            break
        best = max(fitting, key=lambda one: (one.term, one.end))
        data += store.read_range(best.path, end - best.start, best.end - end)
        if at + len(data) < best.end:
            log.warning(
                "part of the records is short: path=%s, bytes=%d", store.describe(best.path), at + len(data) - best.start
            )
            break
    if any(one.start > at + len(data) for one in parts):
        log.warning("records are missing from byte %d on: path=%s", at + len(data), store.describe(_FOLDER))
    return bytes(data[: data.rfind(b"\n") + 1])


def _held(store: Store) -> list[_Part]:
    """The parts; each is cut where a later attempt begins."""
    found = [_Part.of(*map(int, match.groups())) for name in store.names(_FOLDER) if (match := _NAME.fullmatch(name))]
    begins: dict[int, int] = {}
    for one in found:
        begins[one.term] = min(one.start, begins.get(one.term, one.start))
    return [replace(one, end=min([one.end, *(at for e, at in begins.items() if e > one.term)])) for one in found]


class PartWriter:
    """Copies a growing local file of records to a store. For one thread.

    Args:
        store: the run's folder.
        path: the local file, which begins with the result of `joined`.
        term: number of this attempt.
        start: number of bytes of `joined`'s result.
    """

    def __init__(self, store: Store, path: Path, term: int, start: int) -> None:
        self._store, self._path, self._term, self._at = store, path, term, start
        self._levels: list[list[_Part]] = []  # parts by the number of their merges so far

    def flush(self) -> None:
        """Write the new bytes of the file as a part, if there are any.

        Raises:
            OSError: the storage failed; the next call writes these bytes too.
        """
        data = self._read(self._at, self._path.stat().st_size)
        data = data[: data.rfind(b"\n") + 1]
        if data:
            part = _Part.of(self._at, self._at + len(data), self._term)
            self._store.write(part.path, data)
            self._at = part.end
            self._merge(part, 0)

    def finish(self, more: bytes = b"") -> None:
        """Write the whole file and `more` lines as ``records.jsonl``, and remove the parts.

        Raises:
            OSError: the storage failed; nothing is lost.
        """
        store = self._store
        store.write(_NEW, self._path.read_bytes() + more)
        if store.exists(WHOLE):
            store.delete(_FORMER)
            store.rename(WHOLE, _FORMER)
        store.rename(_NEW, WHOLE)
        store.delete(_FORMER)
        for name in store.names(_FOLDER):
            if name == _HIDDEN or _NAME.fullmatch(name):  # other files in the folder are not ours
                store.delete(f"{_FOLDER}/{name}")
        store.rmdir(_FOLDER)

    def _merge(self, part: _Part, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        parts = self._levels[level]
        parts.append(part)
        if len(parts) < _TOGETHER:
            return
        whole = _Part.of(parts[0].start, part.end, self._term)
        hidden = f"{_FOLDER}/{_HIDDEN}"
        self._store.write(hidden, self._read(whole.start, whole.end))
        self._store.rename(hidden, whole.path)
        for one in parts:
            self._store.delete(one.path)
        parts.clear()
        self._merge(whole, level + 1)

    def _read(self, start: int, end: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)
