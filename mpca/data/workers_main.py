"""The process that decodes: ``python -m mpca.data.workers_main FD JOB``. Bytes in, one view of uint8[3, crop, crop] out.

Images travel in memory that the process shares with its parent (`workers.py`); frames and answers go over a socket::

    header            one uint32 per worker: number of records that it has begun, so that the parent knows which one killed it
    slot 0, 1, ...    JPEG as it was read (`input_bytes`), then the view; for a bad record, the reason in place of the view

    to the worker     FRAME: slot, length, crc, inline, epoch, number; then the JPEG itself if it is too long for its slot
    from the worker   READY at the start; then one byte per record, in order: GOOD or BAD
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mpca.data.augment import centre_view, random_view
from mpca.data.child import parent
from mpca.data.decode import decode
from mpca.data.limits import limit_cpu, limit_memory
from mpca.errors import BadImage

__all__ = ["BAD", "BEGUN", "FRAME", "GOOD", "READY", "REASON", "Job", "main", "view_of"]

FRAME = struct.Struct("<IIII qq")
BEGUN = struct.Struct("<I")
REASON = struct.Struct("<H")
READY, GOOD, BAD = b"R", b"G", b"B"
_HEADER_BYTES = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class Job:
    """Options that hold for all records of a stream, and the layout of the shared memory."""

    seed: int
    shorter_edge: int
    crop: int
    centre: bool
    slots: int
    input_bytes: int

    @property
    def view_bytes(self) -> int:
        return 3 * self.crop * self.crop

    @property
    def memory_bytes(self) -> int:
        return _HEADER_BYTES + self.slots * (self.input_bytes + self.view_bytes)

    def input_at(self, slot: int) -> int:
        """Offset of a slot's JPEG."""
        return _HEADER_BYTES + slot * (self.input_bytes + self.view_bytes)

    def view_at(self, slot: int) -> int:
        """Offset of a slot's view."""
        return self.input_at(slot) + self.input_bytes


def view_of(job: Job, jpeg: bytes, crc: int, epoch: int, number: int) -> npt.NDArray[np.uint8]:
    """The view that a model gets of a record in an epoch. Equal arguments give equal views, in any process.

    Args:
        job: options of the stream.
        jpeg: the record's bytes.
        crc: their CRC-32 by the index.
        epoch: with `number` and the seed it decides the patch and the flip.
        number: the record's number in the split.

    Returns:
        uint8[3, crop, crop].

    Raises:
        BadImage: a wrong checksum, or `decode` refuses the image.
    """
    found = zlib.crc32(jpeg)
    if found != crc:
        raise BadImage(f"wrong checksum: crc32={found:08x}, expected={crc:08x}")
    image = decode(jpeg, job.shorter_edge)
    if job.centre:
        return centre_view(image, job.crop)
    return random_view(image, np.random.default_rng((11, job.seed, epoch, number)), job.crop)


def main() -> None:
    """Decode until the parent ends."""
    connection, (text, worker, memory_fd) = parent()
    job, cell = Job(**json.loads(text)), BEGUN.size * int(worker)
    words = connection.fileno()
    frames = os.fdopen(words, "rb", buffering=1 << 16, closefd=False)
    begun = 0
    limit_memory()
    with mmap.mmap(int(memory_fd), job.memory_bytes) as memory:
        try:
            os.write(words, READY)
            while len(head := frames.read(FRAME.size)) == FRAME.size:
                slot, length, crc, inline, epoch, number = FRAME.unpack(head)
                start = job.input_at(slot)
                jpeg = frames.read(length) if inline else memory[start : start + length]
                begun += 1
                BEGUN.pack_into(memory, cell, begun)
                limit_cpu()
                at, answer = job.view_at(slot), GOOD
                try:
                    memory[at : at + job.view_bytes] = view_of(job, jpeg, crc, epoch, number).tobytes()
                except Exception as error:  # damaged bytes make a library raise nearly anything
                    reason = str(error) if isinstance(error, BadImage) else f"{type(error).__name__}: {error}"
                    words_of_it = reason.encode()[: job.view_bytes - REASON.size][: (1 << 16) - 1]
                    REASON.pack_into(memory, at, len(words_of_it))
                    memory[at + REASON.size : at + REASON.size + len(words_of_it)] = words_of_it
                    answer = BAD
                os.write(words, answer)
        except (BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    main()
