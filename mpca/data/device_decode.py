"""Decodes JPEGs on the device on which an agent trains, many in one call. Views are cut there, and come back to host memory.

The pixels are near those of `decode.py`, not equal: another library decodes them, and scales what is not as small as the crop
wants it. Patches and flips are the same. PNGs, and JPEGs that the device's library refuses, are decoded as `decode.py` does, in
this process: a record whose checksum is right was decoded once, when it was ingested. Views come back, so that no tensor of the
decoder's stream is used on the trainer's; 150 KB an image cost less than one wrong number.

Not for the device's library: whoever knows the device gives it (`Jpegs`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, uint8
from torch.nn.functional import interpolate

from mpca.data.augment import centre_patch, random_patch
from mpca.data.decode import checked_header, orientation_of
from mpca.data.jpeg_header import JpegHeader
from mpca.data.stream_reader import Record
from mpca.data.workers import RecordQueue, Result
from mpca.data.workers_main import Job, check_crc, random_of, view_of
from mpca.errors import BadImage

__all__ = ["DeviceDecoder", "Jpegs", "upright"]

_GROUP = 32  # JPEGs of one call: a library needs some to use all of a GPU
Cut = Callable[[int, Tensor], Tensor]


class Jpegs(Protocol):
    """A device's library of JPEGs."""

    def __call__(self, jpegs: Sequence[bytes], cut: Cut) -> Tensor:
        """Decode all, uint8[3, h, w] on the device, call ``cut(number, image)`` for each, and copy what that returns.

        Returns:
            uint8[n, ...] in host memory, of equal shapes.

        Raises:
            RuntimeError: one of them cannot be decoded.
        """
        ...


class DeviceDecoder:
    """Decodes in the thread that iterates over the results. It has no processes."""

    def __init__(self, feed: RecordQueue, job: Job, jpegs: Jpegs) -> None:
        self._feed, self._job, self._jpegs = feed, job, jpegs
        self._closed = threading.Event()

    def results(self) -> Iterator[Result]:
        while not self._closed.is_set() and (group := self._group()):
            yield from self._decoded(group)

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self._closed.set()
        self._feed.close()

    def _group(self) -> list[Record]:
        """Waits for one record, and takes what else is there."""
        group: list[Record] = []
        while len(group) < _GROUP and (taken := self._feed.take(wait=not group)) is not None:
            group.append(taken[1])
        return group

    def _decoded(self, group: list[Record]) -> list[Result]:
        found: dict[int, Result] = {}
        on_device: list[tuple[int, JpegHeader]] = []
        for place, record in enumerate(group):
            try:
                if record.jpeg is None:
                    raise BadImage(record.reason)
                check_crc(record.jpeg, record.entry.crc)
                header = checked_header(record.jpeg, self._job.shorter_edge)
            except BadImage as error:
                found[place] = Result(record, None, str(error))
                continue
            if header is None:
                found[place] = self._here(record)
            else:
                on_device.append((place, header))
        for place, view in zip((place for place, _ in on_device), self._views(group, on_device), strict=True):
            found[place] = self._here(group[place]) if view is None else Result(group[place], view)
        return [found[place] for place in range(len(group))]

    def _views(self, group: list[Record], those: list[tuple[int, JpegHeader]]) -> Sequence[npt.NDArray[np.uint8] | None]:
        """The views of these records of a group; None for one that the device refuses."""
        if not those:
            return ()

        def cut(number: int, image: Tensor) -> Tensor:
            place, header = those[number]
            return self._cut(image, orientation_of(header), group[place])

        try:
            views: Any = self._jpegs([group[place].jpeg or b"" for place, _ in those], cut)
        except RuntimeError:  # the library does not say which one it refuses
            return (None,) if len(those) == 1 else [self._views(group, [one])[0] for one in those]
        return list(views.numpy())

    def _cut(self, image: Tensor, orientation: int, record: Record) -> Tensor:
        size, edge = self._job.crop, self._job.shorter_edge
        _, height, width = image.shape
        shorter = min(height, width)
        if shorter != edge:
            scaled = (edge * height // shorter, edge * width // shorter)
            floats = interpolate(image[None].float(), size=scaled, mode="bilinear", antialias=True)[0]
            image = floats.round().clamp(0, 255).to(uint8)
        image = upright(image, orientation)
        _, height, width = image.shape
        mirrored = False
        if self._job.centre:
            top, left = centre_patch(height, width, size)
        else:
            top, left, mirrored = random_patch(height, width, random_of(self._job, record.epoch, record.number), size)
        patch = image[:, top : top + size, left : left + size]
        return patch.flip(-1) if mirrored else patch

    def _here(self, record: Record) -> Result:
        view = np.empty((3, self._job.crop, self._job.crop), np.uint8)
        try:
            view_of(self._job, record.jpeg or b"", record.entry.crc, record.epoch, record.number, view)
        except Exception as error:  # damaged bytes make a library raise nearly anything
            return Result(record, None, str(error) if isinstance(error, BadImage) else f"{type(error).__name__}: {error}")
        return Result(record, view)


def upright(image: Tensor, orientation: int) -> Tensor:
    """Turn uint8[3, h, w] by EXIF's orientation, 1 to 8, as `decode.py` turns arrays."""
    across = orientation in (5, 6, 7, 8)
    turned = image.transpose(-2, -1) if across else image
    axes = {2: (-1,), 3: (-2, -1), 4: (-2,), 6: (-1,), 7: (-2, -1), 8: (-2,)}.get(orientation, ())
    return turned.flip(axes) if axes else turned
