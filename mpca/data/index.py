"""The index of a split: where each record's JPEG lies in its shard, its checksum, label and key. One text file per split.

::

    mpca-index 1
    shard TAB offset TAB length TAB crc32 TAB label TAB key        one line per record, in the order of shards and offsets

An offset is that of the JPEG's own bytes in the tar, so that one ranged read fetches them. The checksum is zlib's CRC-32 of
these bytes, in hexadecimal. Memory holds columns: 30 bytes and the key per record. Not for reading shards: `shards.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mpca.errors import ConfigError

__all__ = ["HEADER", "Entry", "Index"]

HEADER = b"mpca-index 1\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a shard."""

    offset: int
    length: int
    crc: int
    label: int
    key: str

    def line(self, shard: int) -> bytes:
        """The record's line in the index."""
        return f"{shard}\t{self.offset}\t{self.length}\t{self.crc:08x}\t{self.label}\t{self.key}\n".encode()


class Index:
    """All records of a split. `starts[i]` is the number of shard i's first record, `starts[-1]` the number of records."""

    def __init__(self, rows: Iterable[tuple[int, int, int, int, int, str]], shards: int) -> None:
        keys = bytearray()
        ends: list[int] = []

        def columns() -> Iterable[tuple[int, int, int, int, int]]:
            for shard, offset, length, crc, label, key in rows:
                keys.extend(key.encode())
                ends.append(len(keys))
                yield shard, offset, length, crc, label

        kinds = [("shard", "<i4"), ("offset", "<i8"), ("length", "<i8"), ("crc", "<u4"), ("label", "<i4")]
        self._columns: npt.NDArray[np.void] = np.fromiter(columns(), dtype=np.dtype(kinds))
        self._keys, self._key_ends = bytes(keys), np.array([0, *ends], dtype=np.int64)
        order = self._columns["shard"]
        if len(order) and (np.any(np.diff(order) < 0) or order[0] < 0 or order[-1] >= shards):
            raise ValueError(f"shards are not in order, or there are more than {shards}")
        self.starts: list[int] = np.searchsorted(order, np.arange(shards + 1)).tolist()

    @classmethod
    def parse(cls, data: bytes, shards: int, name: str) -> Index:
        """Parse an index.

        Args:
            data: the file's bytes.
            shards: number of the split's shards.
            name: the file's name, for errors.

        Raises:
            ConfigError: not an index, or a line is damaged.
        """
        if not data.startswith(HEADER):
            raise ConfigError(f"not an index of this version: {name} begins {data[: len(HEADER)]!r} instead of {HEADER!r}")
        at = 1

        def rows() -> Iterable[tuple[int, int, int, int, int, str]]:
            nonlocal at
            for line in data[len(HEADER) :].decode().splitlines():
                at += 1
                shard, offset, length, crc, label, key = line.split("\t")
                yield int(shard), int(offset), int(length), int(crc, 16), int(label), key

        try:
            return cls(rows(), shards)
        except (ValueError, OverflowError) as error:
            raise ConfigError(f"damaged index: {name}, line {at}: {error}; ingest the data again") from None

    def __len__(self) -> int:
        return len(self._columns)

    def entry(self, number: int) -> Entry:
        """Record `number` of the split."""
        row = self._columns[number]
        key = self._keys[self._key_ends[number] : self._key_ends[number + 1]].decode()
        return Entry(int(row["offset"]), int(row["length"]), int(row["crc"]), int(row["label"]), key)

    def labels(self) -> npt.NDArray[np.int32]:
        """Label of every record."""
        return self._columns["label"]
