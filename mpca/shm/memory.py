"""The memory that this process may still take: what the machine or its container has left, whichever is less.

A memfd's pages count for the cgroup of the process that allocates them, and a container over its limit is killed without an
error. So the code asks before it allocates. Page cache that the kernel can drop counts as free.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_bytes"]

_UNLIMITED = 1 << 62  # cgroup v1 writes a number near 2^63 for "no limit"


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that can still be allocated. `root` holds /proc and /sys (tests make their own)."""
    return max(0, min([_machine(root), *_containers(root)]))


def _machine(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _UNLIMITED


def _containers(root: Path) -> list[int]:
    """Bytes left in each cgroup, from ours up to the mounted root; for both versions of cgroups.

    In a container the path in /proc/self/cgroup may be the host's, and the mount has our own group as its root. So missing
    folders are skipped, and the root is always read.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, limit, used, dropable = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            limit, used, dropable = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = base / path.lstrip("/")
        for folder in [group, *group.parents]:
            number = _left(folder, limit, used, dropable)
            if number is not None:
                left.append(number)
            if folder == base:
                break
    return left


def _left(folder: Path, limit: str, used: str, dropable: str) -> int | None:
    try:
        text = (folder / limit).read_text().strip()
        if text == "max" or int(text) >= _UNLIMITED:
            return None
        cache = 0
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == dropable:
                cache = int(value)
        return int(text) - int((folder / used).read_text()) + cache
    except (OSError, ValueError):
        return None
