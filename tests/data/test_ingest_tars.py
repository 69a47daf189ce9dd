"""A tar of tars read class by class gives what a listing of it gives, and is refused in the same words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpca.data.ingest_sources import listing
from mpca.data.ingest_tars import class_tars, images_of
from mpca.errors import ConfigError
from tests.data.test_ingest import tar_of_tars


def test_every_image_is_read_by_its_class_as_the_listing_has_it(tmp_path: Path) -> None:
    images = {"n2": {"a.jpg": os.urandom(70_000), "b.jpg": b""}, "n1": {"c.jpg": os.urandom(9_000_000)}}
    tar = tar_of_tars(tmp_path / "train.tar", images)
    found = class_tars(str(tar))
    assert sorted(one.name for one in found) == ["n1", "n2"]
    read = {name: data for one in found for name, data in images_of(str(tar), one)}
    assert read == {f"{name}/{file}": data for name, files in images.items() for file, data in files.items()}
    listed = listing(tar)
    with tar.open("rb") as file:
        for item in listed.items:
            file.seek(item.offset)
            assert file.read(item.length) in read.values()


@pytest.mark.parametrize(
    ("classes", "cut", "says"),
    [
        ({"n1": {"../x.jpg": b"1"}}, 0, r"n1.tar holds '../x.jpg', .* refused"),
        ({"n1": {}}, 0, "a class without an image: n1.tar"),
        ({}, 0, "no image in"),
        ({"n1": {"a.jpg": b"1" * 40_000}}, 30_000, "not an uncompressed tar of tars, or cut off"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, classes: dict, cut: int, says: str) -> None:
    tar = tar_of_tars(tmp_path / "train.tar", classes)
    if cut:
        os.truncate(tar, cut)
    with pytest.raises(ConfigError, match=says):
        _ = [list(images_of(str(tar), one)) for one in class_tars(str(tar))]


def test_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"x" * 20_000)
    with pytest.raises(ConfigError, match="not an uncompressed tar of tars"):
        class_tars(str(tmp_path / "x.tar"))
    with pytest.raises(FileNotFoundError):
        class_tars(str(tmp_path / "y.tar"))
