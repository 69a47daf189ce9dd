"""The process that decodes: ``python -m mpca.data.workers_main FD JOB``. Bytes in, one view of uint8[3, crop, crop] out.

Images travel in memory that the process shares with its parent (`workers.py`); frames and answers go over a socket::

    header            two uint32 per worker: number of records that it has begun and of those that it has done, so that the
                      parent knows which one killed it
    slot 0, 1, ...    JPEG as it was read (`input_bytes`), then the view; for a bad record, the reason in place of the view

    to the worker     FRAME: slot, length, crc, inline, tell, epoch, number; then the JPEG itself if it is too long for its slot
    from the worker   READY at the start; then, after a record with `tell`, one byte for each record since: GOOD or BAD

An answer wakes a thread, which costs some per cent of decoding an image; so the parent asks for several at once.
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

__all__ = ["BAD", "COUNTS", "FRAME", "GOOD", "READY", "REASON", "Job", "check_crc", "main", "random_of", "view_of"]

FRAME = struct.Struct("<IIII Q qq")
COUNTS = struct.Struct("<II")
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


def view_of(job: Job, jpeg: bytes, crc: int, epoch: int, number: int, out: npt.NDArray[np.uint8]) -> None:
    """Write the view that a model gets of a record in an epoch. Equal arguments give equal views, in any process.

    Args:
        job: options of the stream.
        jpeg: the record's bytes.
        crc: their CRC-32 by the index.
        epoch: with `number` and the seed it decides the patch and the flip.
        number: the record's number in the split.
        out: uint8[3, crop, crop].

    Raises:
        BadImage: a wrong checksum, or `decode` refuses the image.
    """
    check_crc(jpeg, crc)
    image = decode(jpeg, job.shorter_edge)
    if job.centre:
        centre_view(image, job.crop, out)
    else:
        random_view(image, random_of(job, epoch, number), job.crop, out)


def check_crc(jpeg: bytes, crc: int) -> None:
    """Raise BadImage if these are not the bytes of which the index has the CRC-32."""
    found = zlib.crc32(jpeg)
    if found != crc:
        raise BadImage(f"wrong checksum: crc32={found:08x}, expected={crc:08x}")


def random_of(job: Job, epoch: int, number: int) -> np.random.Generator:
    """What decides the patch and the flip of a record in an epoch."""
    return np.random.default_rng((11, job.seed, epoch, number))


def main() -> None:
    """Decode until the parent ends."""
    connection, (text, worker, memory_fd) = parent()
    job, cell = Job(**json.loads(text)), COUNTS.size * int(worker)
    words = connection.fileno()
    frames = os.fdopen(words, "rb", buffering=1 << 16, closefd=False)
    done, answers = 0, b""
    limit_memory()
    memory = mmap.mmap(int(memory_fd), job.memory_bytes)  # until the process ends: the views refer to it
    views = [np.frombuffer(memory, np.uint8, job.view_bytes, job.view_at(slot)) for slot in range(job.slots)]
    views = [view.reshape(3, job.crop, job.crop) for view in views]
    try:
        os.write(words, READY)
        while len(head := frames.read(FRAME.size)) == FRAME.size:
            slot, length, crc, inline, tell, epoch, number = FRAME.unpack(head)
            start = job.input_at(slot)
            jpeg = frames.read(length) if inline else memory[start : start + length]
            COUNTS.pack_into(memory, cell, done + 1, done)
            limit_cpu()
            try:
                view_of(job, jpeg, crc, epoch, number, views[slot])
                answers += GOOD
            except Exception as error:  # damaged bytes make a library raise nearly anything
                reason = str(error) if isinstance(error, BadImage) else f"{type(error).__name__}: {error}"
                words_of_it = reason.encode()[: job.view_bytes - REASON.size][: (1 << 16) - 1]
                at = job.view_at(slot)
                REASON.pack_into(memory, at, len(words_of_it))
                memory[at + REASON.size : at + REASON.size + len(words_of_it)] = words_of_it
                answers += BAD
            done += 1
            COUNTS.pack_into(memory, cell, done, done)
            if tell:
                os.write(words, answers)
                answers = b""
    except (BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    main()
