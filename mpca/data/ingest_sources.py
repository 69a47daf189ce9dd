"""Lists the images of a source: ImageNet's own tar of tars, a folder per class, or a CSV of paths and labels. Reads no image.

A listing has file, offset and length of each image, so that any process can read it without unpacking. A listing of ImageNet
takes about 300 MB of memory during the ingest.
"""

from __future__ import annotations

import csv
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mpca.errors import ConfigError

__all__ = ["Item", "Listing", "check_member", "listing"]


@dataclass(frozen=True, slots=True)
class Item:
    """One image: `length` bytes of a file, from `offset` on."""

    key: str
    label: int
    file: str
    offset: int
    length: int

    @property
    def name(self) -> str:
        """Where the image is, for people."""
        return f"{self.file}:{self.key}" if self.offset else self.file


@dataclass(frozen=True, slots=True)
class Listing:
    classes: list[str]  # label -> name
    items: list[Item]


def listing(source: Path) -> Listing:
    """List all images of a source, in an order that depends on the source alone.

    Raises:
        ConfigError: the source does not exist, has none of the three forms, or has a class without an image.
    """
    if source.is_dir():
        found = list(_folders(source))
    elif not source.is_file():
        raise ConfigError(f"no such source: {source}: a tar of tars, a folder with a folder a class, or a CSV (path,label)")
    elif source.suffix.lower() == ".csv":
        found = list(_csv(source))
    else:
        found = list(_tars(source))
    if not found:
        raise ConfigError(f"no image in {source}: it should hold a tar, or a folder, for each class")
    names = sorted(
        {one[1] for one in found}, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
    )
    labels = {name: label for label, name in enumerate(names)}
    seen: Counter[str] = Counter()
    items = []
    for key, name, file, offset, length in found:
        key = _plain(key)
        seen[key] += 1
        unique = key if seen[key] == 1 else f"{key}-{seen[key]}"
        items.append(Item(unique, labels[name], file, offset, length))
    return Listing(names, items)


_IMAGES = {".jpg", ".jpeg", ".png"}
_Found = Iterator[tuple[str, str, str, int, int]]  # key, class, file, offset, length


def _plain(key: str) -> str:
    """A key without dots, since WebDataset takes what follows the first dot of a name as its kind."""
    folder, slash, name = key.rpartition("/")
    stem = name.rpartition(".")[0] or name
    return "".join(c if c.isprintable() and c != "." else "_" for c in f"{folder}{slash}{stem}".replace("..", "_"))


def _folders(source: Path) -> _Found:
    for folder in sorted(one for one in source.iterdir() if one.is_dir() and not one.name.startswith(".")):
        files = sorted(one for one in folder.rglob("*") if _stands_for_an_image(one))
        if not files:
            raise ConfigError(f"a class without an image: the folder {folder} is empty")
        for file in files:
            yield file.relative_to(source).as_posix(), folder.name, str(file.absolute()), 0, _size(file)


def _stands_for_an_image(path: Path) -> bool:
    """Whether an entry of a class's folder counts as an image, good or bad. Inner folders do not."""
    if path.name.startswith("."):
        return False
    if path.is_dir():  # a link to a folder, or a folder called x.JPEG, counts as a bad image
        return path.is_symlink() or path.suffix.lower() in _IMAGES
    return True


def _size(path: Path) -> int:
    """Bytes of a plain file; 0 for anything else, which the ingest later reports as a bad record."""
    return path.stat().st_size if path.is_file() else 0


def _csv(source: Path) -> _Found:
    with source.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        if not {"path", "label"} <= set(rows.fieldnames or ()):
            raise ConfigError(f"{source}: its first line must name the columns path and label; it has {rows.fieldnames}")
        parsed = [(rows.line_num, row["path"], row["label"]) for row in rows]
    without = [line for line, path, label in parsed if not path or not label]
    if without:
        raise ConfigError(f"{source}: {len(without)} rows lack a path or a label, the first in line {without[0]}")
    for _, path, label in parsed:
        full = source.parent.absolute() / path
        yield path.lstrip("/"), label.strip(), str(full), 0, _size(full)


def _tars(source: Path) -> _Found:
    try:
        with tarfile.open(source, "r:") as outer:
            for member in outer:
                if not member.isfile() or PurePosixPath(member.name).suffix != ".tar":
                    raise ConfigError(f"{source}: the member {member.name!r} is not the tar of a class, as ImageNet's are")
                name = PurePosixPath(member.name).stem
                empty = True
                with tarfile.open(fileobj=outer.extractfile(member), mode="r:") as inner:
                    for image in inner:
                        check_member(str(source), member.name, image)
                        empty = False
                        yield (
                            f"{name}/{image.name}",
                            name,
                            str(source.absolute()),
                            member.offset_data + image.offset_data,
                            image.size,
                        )
                if empty:
                    raise ConfigError(f"a class without an image: {member.name} in {source} is empty")
    except tarfile.TarError as error:
        raise ConfigError(f"not an uncompressed tar of tars, or cut off: {source}: {error}") from None


def check_member(source: str, tar: str, image: tarfile.TarInfo) -> None:
    """Raise ConfigError for a member that is no plain file, or that would lie outside of the tar's folder."""
    path = PurePosixPath(image.name)
    if not image.isfile() or path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"{source}: {tar} holds {image.name!r}, which is not a plain file inside of it: refused")
