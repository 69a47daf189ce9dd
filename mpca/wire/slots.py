"""Layout of the mapped segment between an agent and its executor. Offsets only; nothing here moves bytes.

The agent makes the segment (a memfd, fully allocated). Slot 0 carries snapshots, slot ``1 + s`` arrivals of shard s.
Each slot is a header of 64 bytes and then float32 elements, little-endian::

    0        4        6        8        16         24         32        40      44        64
    +--------+--------+--------+--------+----------+----------+---------+-------+---------+------------------
    | magic  | layout | shard  | seq    | version  | updates  | length  | mode  | zero    | float32 elements
    +--------+--------+--------+--------+----------+----------+---------+-------+---------+------------------
      u32      u16      u16      u64      u64        u64        u64       u32

``seq`` is odd while the slot is being written. ``version`` is the cycle of a snapshot, the number of an Exchange, or the
exchange number of an arrival. ``updates`` is tau (snapshots and Exchanges). ``length`` is in bytes, without the header.
``mode`` is that of a snapshot for an Exchange too. The snapshot slot is written by the agent and read by the executor;
arrival slots the other way round. A slot belongs to its writer until the message that names it was sent, then to its reader
until the answer (the executor's next SnapshotRequest; the agent's Installed; the Install of an Exchange's shard). One
exception: an Exchange may take the slot behind a Snapshot. If the executor had not read that yet, it sends its
SnapshotRequest once more. Before Hello all slots belong to the agent, which writes x_0 into the arrival slots: the executor
measures from there how far a snapshot has moved.
The Java twin is ``org.mpca.shm.SlotDescriptor``; both read the same bytes from ``tests/golden/wire/``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["HEADER", "HEADER_BYTES", "LAYOUT", "MAGIC", "MODES", "PAGE", "SlotHeader", "slot_offsets"]

MAGIC = 0x4C53504D  # "MPSL"
LAYOUT = 1
HEADER = struct.Struct("<IHHQQQQI20x")
HEADER_BYTES = HEADER.size
PAGE = 4096
#: Codes of the mode field.
MODES = {"snapshot": 0, "install": 1, "replace": 2}

assert HEADER_BYTES == 64


@dataclass(frozen=True, slots=True)
class SlotHeader:
    """One slot header; see the diagram."""

    shard: int
    seq: int
    version: int
    updates: int
    length: int
    mode: int

    def pack(self) -> bytes:
        return HEADER.pack(MAGIC, LAYOUT, self.shard, self.seq, self.version, self.updates, self.length, self.mode)

    @classmethod
    def unpack(cls, data: bytes) -> SlotHeader:
        """Parse a header.

        Raises:
            ValueError: the magic or the layout is not ours.
        """
        magic, layout, shard, seq, version, updates, length, mode = HEADER.unpack(data)
        if magic != MAGIC or layout != LAYOUT:
            raise ValueError(f"not a slot of layout {LAYOUT}: magic={magic:#x}, layout={layout}")
        return cls(shard, seq, version, updates, length, mode)


def slot_offsets(shard_bytes: list[int]) -> tuple[list[int], int]:
    """Byte offsets of the snapshot slot and of each shard's arrival slot, page aligned, and the segment's size."""
    sizes = [max(shard_bytes, default=0), *shard_bytes]
    offsets, position = [], 0
    for size in sizes:
        offsets.append(position)
        position += -(-(HEADER_BYTES + size) // PAGE) * PAGE
    return offsets, position
