"""A locked file: seen as held while its maker lives, free when it is killed, and unknown where nobody can say."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mpca.storage import held

HOLD = """
import sys
from pathlib import Path
from mpca.storage import held
held.create(Path(sys.argv[1]), b"text")
print("held", flush=True)
sys.stdin.read()
"""


def mounts(path: Path, kind: str, options: str = "rw") -> Path:
    """A table of mounts that says so of the device of `path`."""
    device = path.parent.stat().st_dev
    table = path.parent / "mountinfo"
    table.write_text(
        "20 1 0:9999 / /proc rw - proc proc rw\n"
        f"27 1 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {kind} source {options}\n"
    )
    return table


def test_it_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert path.read_bytes() == b"text"
        assert held.held(path) is True
        path.rename(tmp_path / "elsewhere")
        assert held.held(tmp_path / "elsewhere") is True
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert held.held(tmp_path / "elsewhere", mounts=mounts(path, "ext4")) is False


def test_it_is_locked_whole_and_private_from_the_start_and_made_by_one_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fd = held.create(tmp_path / "lock", b"one")
    finally:
        os.umask(before)
    try:
        with pytest.raises(FileExistsError):
            held.create(tmp_path / "lock", b"two")
        assert (tmp_path / "lock").read_bytes() == b"one"
        assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
        assert os.listdir(tmp_path) == ["lock"]
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("kind", "options", "seen"),
    [
        ("ext4", "rw", False),
        ("tmpfs", "rw", False),
        ("nfs4", "rw,vers=4.2,local_lock=none,addr=10.0.0.1", False),
        ("nfs", "rw,vers=3,local_lock=all,addr=10.0.0.1", None),
        ("fuse.sshfs", "rw", None),
    ],
)
def test_a_free_lock_means_a_dead_holder_only_where_locks_of_other_machines_are_seen(
    tmp_path: Path, kind: str, options: str, seen: bool | None
) -> None:
    os.close(held.create(tmp_path / "lock", b""))
    assert held.held(tmp_path / "lock", mounts=mounts(tmp_path / "lock", kind, options)) is seen


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_says_nothing(tmp_path: Path, code: int) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    fd = held.create(tmp_path / "lock", b"text", flock)
    os.close(fd)
    assert (tmp_path / "lock").read_bytes() == b"text"
    assert held.held(tmp_path / "lock", flock) is None
    assert held.held(tmp_path / "nowhere") is None
