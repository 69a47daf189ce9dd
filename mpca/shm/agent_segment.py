"""The mapped segment: one memfd of the agent with a slot for snapshots and one for the arrivals of each shard.

The agent makes it. It has no name that must be removed when a process is killed: the kernel frees it with its last user. The
executor opens it as ``/proc/<pid>/fd/<fd>``. It is allocated completely when it is made, so that later writes cannot fail or
raise SIGBUS. `wire.slots` has the layout of the slots and their headers.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mpca.errors import EnvironmentRefused, RemoteProtocolError
from mpca.shm.memory import available_bytes
from mpca.units import format_size
from mpca.wire.slots import HEADER_BYTES, MODES, SlotHeader, slot_offsets

__all__ = ["AgentSegment"]

_WIRE = np.dtype("<f4")


class AgentSegment:
    """Slots of one agent. Written and read between two batches by the thread that trains; a GPU may go on with that afterwards,
    and then the lock of the agent's loop keeps `end_snapshot` in order (`agent.deliveries`)."""

    def __init__(self, bounds: Sequence[int], agent: int, have_bytes: Callable[[], int] = available_bytes) -> None:
        """Make the segment for shards with these edges (elements of the flat vector).

        Raises:
            EnvironmentRefused: the machine or the container has too little memory left.
        """
        self._shard_bytes = [(end - start) * _WIRE.itemsize for start, end in pairwise(bounds)]
        self.slots, self.size_bytes = slot_offsets(self._shard_bytes)
        have = have_bytes()
        if have < self.size_bytes:
            raise EnvironmentRefused(
                f"too little memory for the parameter slots: need_bytes={self.size_bytes}, have_bytes={have}, "
                f"agent={agent}; the slots take {format_size(self.size_bytes)} beside the model itself: "
                "give the executors more memory (spark.executor.memoryOverhead) or run fewer agents on a host"
            )
        self.fd = os.memfd_create(f"mpca-agent-{agent}", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self.fd, 0, self.size_bytes)
            self._map = mmap.mmap(self.fd, self.size_bytes)
        except OSError as error:
            os.close(self.fd)
            raise EnvironmentRefused(
                f"the parameter slots could not be allocated: need_bytes={self.size_bytes}, have_bytes={have}, "
                f"agent={agent}: {error}"
            ) from error
        self._snapshot = SlotHeader(0, 0, 0, 0, 0, MODES["snapshot"])
        self._write_header(0, self._snapshot)
        for shard in range(len(self._shard_bytes)):
            self._write_header(1 + shard, SlotHeader(shard, 0, 0, 0, 0, MODES["install"]))

    @property
    def memory(self) -> npt.NDArray[np.uint8]:
        """All of it, as bytes."""
        return np.frombuffer(self._map, np.uint8)

    def shard_view(self, shard: int, slot: int = 0) -> npt.NDArray[np.float32]:
        """The elements of `shard` in the snapshot slot (0) or in its arrival slot (``1 + shard``), as a view."""
        return np.frombuffer(
            self._map, _WIRE, self._shard_bytes[shard] // _WIRE.itemsize, offset=self.slots[slot] + HEADER_BYTES
        )

    def begin_snapshot(self, shard: int, cycle: int, updates: int) -> npt.NDArray[np.float32]:
        """The snapshot slot, to write the shard into it. The header's seq is odd until `end_snapshot`.

        A cycle may be negative (x_0 is read before cycle 0); the unsigned field holds it modulo 2^64.
        """
        seq, length = self._snapshot.seq + 1, self._shard_bytes[shard]
        self._snapshot = SlotHeader(shard, seq, cycle % (1 << 64), updates, length, MODES["snapshot"])
        self._write_header(0, self._snapshot)
        return self.shard_view(shard)

    def end_snapshot(self) -> None:
        """All of the shard is there."""
        self._snapshot = replace(self._snapshot, seq=self._snapshot.seq + 1)
        self._write_header(0, self._snapshot)

    def lay_initial(self, fill: Callable[[int, npt.NDArray[np.float32]], None]) -> None:
        """Let `fill(shard, out)` write x_0 into every arrival slot, before Hello. The distance of snapshots is measured from
        x_0 until a joint state comes."""
        for shard, length in enumerate(self._shard_bytes):
            fill(shard, self.shard_view(shard, slot=1 + shard))
            self._write_header(1 + shard, SlotHeader(shard, 0, 0, 0, length, MODES["install"]))

    def read_arrival(self, shard: int, version: int, mode: str) -> npt.NDArray[np.float32]:
        """The shard that an Install has named, as a view of the mapped slot: copy it before sending Installed.

        Raises:
            RemoteProtocolError: the slot holds something else, or is being written.
        """
        offset = self.slots[1 + shard]
        try:
            header = SlotHeader.unpack(self._map[offset : offset + HEADER_BYTES])
        except ValueError as error:
            raise RemoteProtocolError(f"arrival slot of shard {shard}: {error}") from error
        expected = SlotHeader(shard, header.seq, version, header.updates, self._shard_bytes[shard], MODES[mode])
        if header.seq % 2 or header != expected:
            raise RemoteProtocolError(f"arrival slot of shard {shard} is not what Install said: {header}, not {expected}")
        return self.shard_view(shard, slot=1 + shard)

    def close(self) -> None:
        """Close descriptor and mapping. If an array still uses the mapping, the mapping ends with the array."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            with contextlib.suppress(BufferError):
                self._map.close()

    def _write_header(self, slot: int, header: SlotHeader) -> None:
        offset = self.slots[slot]
        self._map[offset : offset + HEADER_BYTES] = header.pack()
