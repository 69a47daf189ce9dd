"""Pictures that are told apart by their class, and that a stream reads ahead few of: each is a class, and has 30 KB."""

from __future__ import annotations

from pathlib import Path

from tests.data.pictures import jpeg

__all__ = ["numbered_pictures"]

_COMMENT = b"\xff\xfe" + (30_002).to_bytes(2, "big") + bytes(30_000)  # costs no decoding


def numbered_pictures(root: Path, count: int) -> Path:
    """A folder for `mpca ingest`; labels are the numbers."""
    for number in range(count):
        folder = root / f"{number:03d}"
        folder.mkdir(parents=True)
        picture = jpeg(number, edge=32)
        (folder / "one.jpg").write_bytes(picture[:2] + _COMMENT + picture[2:])
    return root
