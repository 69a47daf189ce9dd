"""A run whose disk fails under it (EIO): an ext4 file system in a file, which the kernel is told to shut down."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.spark.engine import run_engine
from tests.spark.jobs import quadratic

pytestmark = [pytest.mark.spark, pytest.mark.root, pytest.mark.timeout(400)]

_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32) of ext4 and xfs
_NO_FLUSH = 2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder, image = tmp_path / "disk", tmp_path / "disk.ext4"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fail(disk: Path) -> None:
    """From now on everything that goes to this disk is an error of its hardware, for whoever has it open too."""
    fd = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_FLUSH))
    finally:
        os.close(fd)


def test_a_disk_that_fails_costs_no_cycle_and_the_end_is_kept_elsewhere(
    spark: object, work_dir: Path, tmp_path: Path, disk: Path
) -> None:
    folder = disk / "run"
    written = []

    def story(run):
        yield lambda: run.reducing(4)
        fail(disk)
        with pytest.raises(OSError, match="error") as failure:
            (disk / "probe").write_bytes(b"x")
        written.append(failure.value.errno)
        yield lambda: run.reducing(20)
        run.end()

    told = run_engine(
        spark, work_dir, folder, quadratic, story=story, sets=("backup.interval=100ms",), files=tmp_path / "files"
    )
    assert written == [errno.EIO], "the fault"
    assert told.ended.summary["cycles"] >= 20, "the run went on"
    assert told.ended.exit_code == 1
    assert told.ended.reason.startswith(f"the end is not saved in {folder}: ")
    kept = Path(told.ended.reason.rpartition(" ")[2])
    try:
        saved = load_file(kept / "model.safetensors")
        assert saved.keys() == told.ended.model_state.keys()
        assert all(np.array_equal(saved[name], value) for name, value in told.ended.model_state.items())
    finally:
        shutil.rmtree(kept)
