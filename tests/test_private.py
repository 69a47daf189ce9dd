"""Files and folders of a run are their owner's alone, whatever the umask."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.private import make_folder, opener, replace_file, who_else_writes


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_folders_have_the_same_rights_under_every_umask(tmp_path: Path, umask: int) -> None:
    assert make_folder(tmp_path / "runs" / "a") is True
    assert make_folder(tmp_path / "runs" / "a") is False
    assert mode(tmp_path / "runs" / "a") == 0o700
    assert mode(tmp_path / "runs") == 0o755 & ~umask | 0o700, "nobody else can put another folder in its place"
    with open(tmp_path / "runs" / "a" / "x", "wb", opener=opener) as file:
        file.write(b"1")
    replace_file(tmp_path / "runs" / "a" / "y", b"2")
    assert {one.name: mode(one) for one in (tmp_path / "runs" / "a").iterdir()} == {"x": 0o600, "y": 0o600}


def test_a_file_that_was_open_to_all_is_closed_when_it_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    (tmp_path / "x").chmod(0o666)
    with open(tmp_path / "x", "ab", opener=opener):
        pass
    assert mode(tmp_path / "x") == 0o600


def test_a_folder_that_was_there_keeps_its_rights_and_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there").chmod(0o755)
    assert make_folder(tmp_path / "there") is False
    assert mode(tmp_path / "there") == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_file(tmp_path / "x", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"x": b"old"}


@pytest.mark.parametrize(
    ("rights", "who"), [(0o700, ""), (0o755, ""), (0o775, ""), (0o777, "everybody"), (0o1777, "everybody")]
)
def test_who_else_may_write_into_a_folder(tmp_path: Path, rights: int, who: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(rights)
    assert who_else_writes(tmp_path / "a") == (who and f"{who} (mode {rights:04o})")
    assert who_else_writes(tmp_path / "missing") == ""


@pytest.mark.root
def test_a_folder_of_another_user_or_group_is_open_to_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o775)
    os.chown(tmp_path / "a", 0, 4711)
    assert who_else_writes(tmp_path / "a") == "group 4711 (mode 0775)"
    os.chown(tmp_path / "a", 4712, 0)
    assert who_else_writes(tmp_path / "a") == "its owner, uid 4712"
