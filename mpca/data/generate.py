"""A generated set of photographs in ImageNet's own layout, for tests and benches: a tar of tars, one per class.

Images are crops, warps, blends and colours of the two photographs that scikit-learn bundles. A class is a colour cast, a region
of a photograph, and the direction of a warp, so that a small net can learn it; the rest of each image is random.
Equal arguments give equal bytes (with the same version of Pillow, which encodes). Not a benchmark of accuracy.
"""

from __future__ import annotations

import colorsys
import io
import os
import tarfile
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.data.child import Died, Done, serve, work
from mpca.errors import ConfigError, MpcaError
from mpca.extras import extras, require

with extras():
    from PIL import Image

__all__ = ["generate", "image"]

_SMALLEST, _LARGEST = 300, 600  # pixels of an edge
_WARPED = 480  # pixels of an edge of a warped region
_NOISE = 7.0  # deviation of the grain; enlarged crops without it are too smooth (photographs have 0.25 bytes per pixel)


def generate(
    target: Path, images: int, classes: int, seed: int, processes: int, on_class: Callable[[int], None] = lambda images: None
) -> int:
    """Write the outer tar, and return its size in bytes. An existing file is replaced once the new one is complete.

    Args:
        on_class: called with the number of a class's images when the class is written.
    """
    require("PIL", "sklearn")
    if not 1 <= classes <= images:
        raise ConfigError(f"classes must lie between 1 and the number of images: classes={classes}, images={images}")
    counts = [images // classes + (label < images % classes) for label in range(classes)]
    tasks = deque((seed, label, classes, count) for label, count in enumerate(counts))
    early: dict[int, bytes] = {}
    written = 0
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with temporary.open("wb") as out:
            for event in work("mpca.data.generate", tasks, processes):
                if isinstance(event, Died):
                    raise MpcaError(f"a process that made images died: {event.reason}")
                if isinstance(event, Done):
                    early[event.task[1]] = event.value
                while written in early:
                    _member(out, f"{_class_name(written)}.tar", early.pop(written))
                    on_class(counts[written])
                    written += 1
            out.write(bytes(2 * tarfile.BLOCKSIZE))
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target.stat().st_size


def image(seed: int, label: int, classes: int, number: int) -> bytes:
    """One JPEG."""
    rng = np.random.default_rng((6, seed, label, number))
    width, height = (int(edge) for edge in rng.integers(_SMALLEST, _LARGEST + 1, 2))
    picture = _crop(rng, _warped(label % 2, label, int(rng.integers(0, 4))), width, height)
    other = _crop(rng, _warped(1 - label % 2, int(rng.integers(0, 8)), 0), width, height)
    picture = Image.blend(picture, other, float(rng.uniform(0.0, 0.25)))
    picture = picture.convert("RGB", _cast(label / classes + rng.normal(0, 0.05 / classes), float(rng.uniform(0.85, 1.15))))
    pixels = np.asarray(picture).astype(np.int16)
    top, left = (int(edge) for edge in rng.integers(0, _LARGEST, 2))
    pixels += _grain()[top : top + height, left : left + width]
    out = io.BytesIO()
    quality = int(rng.integers(85, 96))
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=quality)
    return out.getvalue()


def _class_name(label: int) -> str:
    return f"n{label:08d}"  # as WordNet's numbers look


def _member(out: Any, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    out.write(info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE))


def _class_tar(task: tuple[int, int, int, int], say: Callable[[Any], None]) -> bytes:
    seed, label, classes, count = task
    out, name = io.BytesIO(), _class_name(label)
    for number in range(count):
        _member(out, f"{name}_{number}.JPEG", image(seed, label, classes, number))
    out.write(bytes(2 * tarfile.BLOCKSIZE))
    return out.getvalue()


@lru_cache(maxsize=1)
def _photographs() -> tuple[Image.Image, Image.Image]:
    with extras():
        from sklearn.datasets import load_sample_image

    china, flower = (Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg"))
    return china, flower


@lru_cache(maxsize=1)
def _grain() -> npt.NDArray[np.int16]:
    """Noise, twice as large as an image, so that images can have different parts of it."""
    edge = 2 * _LARGEST
    return np.random.default_rng(7).normal(0.0, _NOISE, (edge, edge, 3)).astype(np.int16)


@lru_cache(maxsize=64)
def _warped(photograph: int, kind: int, variant: int) -> Image.Image:
    """A region of a photograph as a slanted quadrilateral; `kind` says which region, and which way it leans.

    Results are kept, since this step takes Pillow four times as long as all other steps of an image.
    """
    rng = np.random.default_rng((8, photograph, kind, variant))
    picture = _photographs()[photograph]
    across, down = picture.size
    middle = np.array([across * (0.3 + 0.2 * (kind // 2 % 3)), down * (0.4 + 0.2 * (kind // 6 % 2))])
    middle += rng.uniform(-0.1, 0.1, 2) * (across, down)
    corners = np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)], dtype=float)
    corners[:, 0] += (0.25 if kind % 4 < 2 else -0.25) * corners[:, 1]
    corners += rng.normal(0, 0.08, corners.shape)
    quad = (middle + corners * np.array([across, down]) * 0.4).clip(0, (across - 1, down - 1))
    size = (_WARPED, _WARPED)
    return picture.transform(size, Image.Transform.QUAD, tuple(quad.ravel().tolist()), Image.Resampling.BILINEAR)


def _crop(rng: np.random.Generator, picture: Image.Image, width: int, height: int) -> Image.Image:
    """A part of a picture, enlarged, and mirrored every other time."""
    share = rng.uniform(0.6, 0.95, 2) * _WARPED
    left, top = rng.uniform(0, _WARPED - share)
    part = picture.resize((width, height), Image.Resampling.BILINEAR, (left, top, left + share[0], top + share[1]))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part


def _cast(hue: float, brightness: float) -> tuple[float, ...]:
    """A colour matrix that shifts a picture towards one hue."""
    tint = colorsys.hsv_to_rgb(hue % 1.0, 0.6, 1.0)
    rows = []
    for channel, share in enumerate(tint):
        row = [0.12, 0.2, 0.08, 0.0]
        row[channel] += 0.6
        rows += [brightness * share * value for value in row]
    return tuple(rows)


if __name__ == "__main__":
    serve(_class_tar)
