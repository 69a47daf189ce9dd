"""What an engine of docker leaves on a machine: bridges, packet rules, mounts, processes; seen, compared and taken away.

A stopped dockerd leaves its bridges, its rules, FORWARD at DROP and the mounts of its folders.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

__all__ = ["Machine", "processes", "take_away"]

_BRIDGE = re.compile(r"docker0|br-[0-9a-f]{12}|docker_gwbridge")
_OURS = re.compile(r"DOCKER|docker0|br-[0-9a-f]{12}")
_TABLES = ("filter", "nat", "raw", "mangle")
_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass(frozen=True)
class Machine:
    """One look at it. Of packet rules the lines of ``iptables -S``, each after its tool and table."""

    bridges: tuple[str, ...]
    rules: tuple[str, ...]
    mounts: tuple[str, ...]
    forwards: str  # net.ipv4.ip_forward

    @classmethod
    def now(cls) -> Machine:
        return cls(
            bridges=tuple(sorted(name for name in psutil.net_if_stats() if _BRIDGE.fullmatch(name))),
            rules=tuple(_rules()),
            mounts=tuple(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()),
            forwards=_FORWARD.read_text().strip(),
        )

    def beyond(self, before: Machine) -> list[str]:
        """What there is now and was not before."""
        return [
            *(f"bridge {one}" for one in self.bridges if one not in before.bridges),
            *(f"rule {one}" for one in self.rules if one not in before.rules and " -P " not in one),
            *(f"policy {one}" for one in self.rules if one not in before.rules and _closed(one)),
            *(f"mount {one}" for one in self.mounts if one not in before.mounts),
        ]

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, list[str] | str]) -> Machine:
        return cls(**{name: value if isinstance(value, str) else tuple(value) for name, value in values.items()})


def processes(folder: Path) -> list[psutil.Process]:
    """Those of an engine that keeps its things in that folder: dockerd, its containerd, its shims."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it ends between two questions
            lives = one.status() != psutil.STATUS_ZOMBIE and one.name().startswith(("dockerd", "containerd"))
            if lives and any(str(folder) in word for word in one.cmdline()[:12]):
                found.append(one)
    return found


def take_away(before: Machine, folder: Path) -> None:
    """Undo what the engine of that folder, which has ended, did to the machine since `before`."""
    for mount in sorted((one for one in Machine.now().mounts if one.startswith(f"{folder}/")), reverse=True):
        _run("umount", "--lazy", mount)
    for bridge in Machine.now().bridges:
        if bridge not in before.bridges:
            _run("ip", "link", "del", bridge)
    now = [one for one in Machine.now().rules if one not in before.rules]
    for one in now:  # rules before chains: a chain that is named somewhere cannot go
        tool, table, action, *words = one.split(" ")
        if action == "-A" and _OURS.search(one):
            _run(tool, "-t", table, "-D", *words)
    for action in ("-F", "-X"):
        for one in now:
            tool, table, made, chain, *_ = one.split(" ")
            if made == "-N" and chain.startswith("DOCKER"):
                _run(tool, "-t", table, action, chain)
    for one in now:
        if _closed(one):
            tool, table, _, chain, _ = one.split(" ")
            _run(tool, "-t", table, "-P", chain, "ACCEPT")
    if before.forwards == "0":
        _FORWARD.write_text("0")


def _closed(rule: str) -> bool:
    return rule.endswith(" -P FORWARD DROP")


def _rules() -> Iterator[str]:
    for tool in ("iptables", "ip6tables"):
        if shutil.which(tool) is None:
            continue
        for table in _TABLES:
            done = subprocess.run([tool, "-t", table, "-S"], capture_output=True, text=True, check=False)
            if done.returncode == 0:  # a kernel without that table has no rules in it
                yield from (f"{tool} {table} {line}" for line in done.stdout.splitlines())


def _run(*words: str) -> None:
    subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
