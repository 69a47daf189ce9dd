"""Small data sets of real JPEGs, made where a test needs them.

With a shorter edge of 256 nothing is to be scaled, so no decoding process imports torch for it, which takes seconds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import simplejpeg

from mpca.data.ingest import Options, ingest

__all__ = ["folders", "ingested", "jpeg"]


def jpeg(number: int, edge: int = 256) -> bytes:
    """A picture that no other number gives, of `edge` x (edge + 8)."""
    rng = np.random.default_rng(number)
    pixels = np.full((edge, edge + 8, 3), rng.integers(0, 256, 3), dtype=np.uint8)
    pixels[:: 8 * (2 + number % 5)] ^= np.uint8(64)
    return simplejpeg.encode_jpeg(pixels, quality=90, colorspace="RGB")


def folders(root: Path, classes: int = 2, each: int = 10, edge: int = 256) -> Path:
    """A folder a class, of `each` pictures."""
    for label in range(classes):
        folder = root / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(each):
            (folder / f"{number:03d}.jpg").write_bytes(jpeg(label * each + number, edge))
    return root


def ingested(
    root: Path, classes: int = 2, each: int = 10, withheld: int = 0, edge: int = 256, shard_bytes: int = 60_000
) -> Path:
    """The same, ingested."""
    folders(root / "source", classes, each, edge)
    ingest(root / "source", str(root / "set"), Options(withheld=withheld, shard_bytes=shard_bytes), processes=1)
    return root / "set"
