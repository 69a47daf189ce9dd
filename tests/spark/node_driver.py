"""A driver that is a process on a node of a bench's network, and waits until the test has made the network what it tries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpca.cli.bench.net.network import Network

__all__ = ["ready_driver"]


@contextmanager
def ready_driver(net: Network, module: str, arguments: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """``python -m module arguments`` on the node called "driver", when it has said "ready": a line on its stdin lets it go on.

    What it says on stderr goes into `log`.
    """
    command = net.command("driver", [sys.executable, "-m", module, *arguments])
    with (
        log.open("w") as sink,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True) as driver,
    ):
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n", log.read_text()
        yield driver
