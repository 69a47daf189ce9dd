"""Streams that lose what they cannot write: real pipes, terminals, full devices and closed descriptors."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.streams import SturdyFile, sturdy

F_SETPIPE_SZ = 1031


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        with contextlib.suppress(OSError):  # the test has closed it
            os.close(fd)


def program(text: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program with these streams, e.g. `>&-`."""
    line = f'exec "$0" -c "$1" {shell}'
    return subprocess.run(["bash", "-c", line, sys.executable, text], capture_output=True, text=True, timeout=60)


def test_a_reader_that_is_gone_is_known_and_raises_nothing(pipe: tuple[int, int]) -> None:
    read, write = pipe
    file = SturdyFile(write)
    out = sturdy(file)
    print("here", file=out)
    assert os.read(read, 100) == b"here\n"
    assert file.lost is None
    os.close(read)
    print("gone", file=out)
    print("gone again", file=out)
    assert file.lost is not None
    assert file.lost.errno == errno.EPIPE


def test_a_terminal_that_vanished_is_known_and_raises_nothing() -> None:
    master, slave = pty.openpty()
    file = SturdyFile(slave)
    assert file.isatty()
    os.close(master)
    print("gone", file=sturdy(file))
    assert file.lost is not None
    assert file.lost.errno == errno.EIO
    os.close(slave)


def test_a_full_disk_loses_no_more_than_was_written_meanwhile() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    file = SturdyFile(fd)
    print("lost", file=sturdy(file))
    assert file.lost is not None
    assert file.lost.errno == errno.ENOSPC
    os.close(fd)


def test_what_the_alphabet_lacks_is_escaped(pipe: tuple[int, int]) -> None:
    read, write = pipe
    out = sturdy(SturdyFile(write), "ascii")
    print("tau \u03c4", file=out)
    assert os.read(read, 100) == b"tau \\u03c4\n"


def test_a_descriptor_that_another_made_non_blocking_gets_everything(pipe: tuple[int, int]) -> None:
    read, write = pipe
    fcntl.fcntl(write, F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    got = bytearray()

    def reading() -> None:
        while len(got) < 100_000:
            got.extend(os.read(read, 1000))

    reader = threading.Thread(target=reading)
    reader.start()
    file = SturdyFile(write)
    file.write(bytes(100_000))
    reader.join(30)
    assert len(got) == 100_000
    assert file.lost is None


def test_aside_nobody_waits_for_a_reader_who_then_gets_it_all(pipe: tuple[int, int]) -> None:
    read, write = pipe
    fcntl.fcntl(write, F_SETPIPE_SZ, 4096)
    file = SturdyFile(write)
    file.begin_aside()
    out = sturdy(file)
    for number in range(20_000):  # 20 times what the pipe takes; this would stand still
        print(number % 10, file=out)
    got = bytearray()

    def reading() -> None:
        while data := os.read(read, 1 << 16):
            got.extend(data)

    reader = threading.Thread(target=reading)
    reader.start()
    file.end_aside()
    os.close(write)
    reader.join(30)
    assert bytes(got) == b"".join(b"%d\n" % (number % 10) for number in range(20_000))


def test_aside_memory_is_bounded_and_a_loss_does_not_count(pipe: tuple[int, int]) -> None:
    read, write = pipe
    file = SturdyFile(write)
    file.begin_aside()
    for _ in range(100):
        file.write(bytes(100_000))
    assert len(file._backlog) <= 1 << 20
    os.close(read)
    file.end_aside()
    assert file.lost is None
    file.write(b"and now")
    assert file.lost is not None


def test_descriptors_that_the_shell_closed_are_nobodys_file(tmp_path: Path) -> None:
    text = f"""
import os
from mpca.streams import closed, sturdy_streams
import sys
with sturdy_streams() as files:
    fd = os.open({str(tmp_path / "records")!r}, os.O_WRONLY | os.O_CREAT)
    assert fd > 2, fd
    os.system("echo from a child")
    print("said")
    assert closed(sys.stdout).errno == 9
    assert files[0].lost.errno == 9
    os.write(fd, b"records")
"""
    ended = program(text, "0<&- 1>&- 2>&-")
    assert ended.returncode == 0
    assert (tmp_path / "records").read_bytes() == b"records"


def test_a_terminal_without_the_letter_shows_the_rest() -> None:
    text = "from mpca.streams import sturdy_streams\nwith sturdy_streams():\n    print('tau \u03c4')\n"
    ended = program(text, "")
    assert ended.stdout == "tau \u03c4\n"
    ended = subprocess.run([sys.executable, "-c", text], env={"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "tau \\u03c4\n")


def test_streams_are_the_programs_own_again_afterwards() -> None:
    before = sys.stdout, sys.stderr
    ended = program("""
import sys
from mpca.streams import sturdy_streams
before = sys.stdout, sys.stderr
print("first")
with sturdy_streams():
    assert sys.stdout is not before[0]
    print("second")
assert (sys.stdout, sys.stderr) == before
print("third")
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "first\nsecond\nthird\n", "")
    assert (sys.stdout, sys.stderr) == before
