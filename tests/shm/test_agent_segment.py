from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpca.errors import EnvironmentRefused, RemoteProtocolError
from mpca.shm import AgentSegment, available_bytes
from mpca.wire.slots import HEADER_BYTES, MODES, PAGE, SlotHeader

BOUNDS = [0, 4, 8, 11]


@pytest.fixture
def segment():
    made = AgentSegment(BOUNDS, agent=3)
    yield made
    made.close()


def put(segment: AgentSegment, shard: int, header: SlotHeader, data: bytes = b"") -> None:
    """Write an arrival as the executor does: through the file."""
    os.pwrite(segment.fd, header.pack() + data, segment.slots[1 + shard])


def test_segment_is_allocated_whole_and_has_no_name(segment: AgentSegment) -> None:
    status = os.fstat(segment.fd)
    assert status.st_size == segment.size_bytes == 4 * PAGE
    assert status.st_blocks * 512 >= segment.size_bytes
    assert status.st_nlink == 0


def test_snapshot_is_read_through_the_file(segment: AgentSegment) -> None:
    segment.begin_snapshot(2, cycle=41, updates=12)[:] = [1.5, -2.0, 3.0]
    header = SlotHeader(shard=2, seq=1, version=41, updates=12, length=12, mode=MODES["snapshot"])
    assert SlotHeader.unpack(os.pread(segment.fd, HEADER_BYTES, 0)) == header, "odd while it is written"
    segment.end_snapshot()
    assert SlotHeader.unpack(os.pread(segment.fd, HEADER_BYTES, 0)) == replace(header, seq=2)
    assert np.frombuffer(os.pread(segment.fd, 12, HEADER_BYTES), "<f4").tolist() == [1.5, -2.0, 3.0]


def test_cycle_before_the_first_is_held_modulo_2_64(segment: AgentSegment) -> None:
    segment.begin_snapshot(0, cycle=-3, updates=0)
    assert SlotHeader.unpack(os.pread(segment.fd, HEADER_BYTES, 0)).version == (1 << 64) - 3


def test_arrival_is_read_from_its_own_slot(segment: AgentSegment) -> None:
    values = np.float32([4, 5, 6, 7])
    put(segment, 1, SlotHeader(1, 2, 9, 0, 16, MODES["replace"]), values.tobytes())
    np.testing.assert_array_equal(segment.read_arrival(1, 9, "replace"), values)


@pytest.mark.parametrize(
    "header",
    [
        SlotHeader(1, 3, 9, 0, 16, MODES["install"]),  # being written
        SlotHeader(1, 2, 8, 0, 16, MODES["install"]),  # another version
        SlotHeader(1, 2, 9, 0, 12, MODES["install"]),  # another length
        SlotHeader(2, 2, 9, 0, 16, MODES["install"]),  # another shard
        SlotHeader(1, 2, 9, 0, 16, MODES["replace"]),  # another mode
    ],
)
def test_arrival_that_is_not_what_was_named_is_refused(segment: AgentSegment, header: SlotHeader) -> None:
    put(segment, 1, header)
    with pytest.raises(RemoteProtocolError, match="arrival slot of shard 1 is not what Install said"):
        segment.read_arrival(1, 9, "install")


def test_foreign_bytes_are_refused(segment: AgentSegment) -> None:
    os.pwrite(segment.fd, bytes(HEADER_BYTES), segment.slots[1])
    with pytest.raises(RemoteProtocolError, match="not a slot of layout 1: magic=0x0"):
        segment.read_arrival(0, 1, "install")


def test_empty_shard_has_an_empty_view() -> None:
    segment = AgentSegment([0, 0, 2], agent=0)
    assert segment.begin_snapshot(0, 0, 0).size == segment.shard_view(0).size == 0
    segment.close()


def test_too_little_memory_is_refused_with_the_numbers() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EnvironmentRefused, match=r"need_bytes=16384, have_bytes=1000, agent=3"):
        AgentSegment(BOUNDS, agent=3, have_bytes=lambda: 1000)
    assert len(os.listdir("/proc/self/fd")) == before


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    1000 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 1000 * 1024),
        (  # version 2: the parent is tighter, and its page cache can be dropped
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "5000\n",
                "sys/fs/cgroup/a/memory.current": "4000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 300\n",
            },
            1300,
        ),
        (  # version 1 in a container: the path is the host's, the mount's root is ours
            {
                "proc/self/cgroup": "3:cpuset:/\n4:cpu,memory:/docker/abc\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "6500",
                "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
            },
            600,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "6500",
                "sys/fs/cgroup/memory/memory.stat": "",
            },
            1000 * 1024,
        ),
    ],
    ids=["machine", "cgroup 2", "cgroup 1", "unlimited"],
)
def test_available_memory_is_the_least_of_machine_and_containers(tmp_path: Path, files, expected: int) -> None:
    assert available_bytes(machine(tmp_path, files)) == expected


def test_this_machine_has_memory() -> None:
    assert available_bytes() > 0
