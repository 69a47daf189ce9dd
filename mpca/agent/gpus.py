"""Which GPU is this agent's: one of those that its executor was given, and no other agent's on this machine.

Spark hands addresses to an executor, not to an agent in it, and where YARN does not isolate GPUs two executors of a machine are
told the same ones. So an agent takes a lock a GPU: a name in the kernel's abstract namespace, which any user may take, which
is free again in the moment that the process ends, and which leaves no file. Imports nothing slow: torch comes after it.
"""

from __future__ import annotations

import errno
import socket
import subprocess
import time
from collections.abc import Callable, Sequence

from mpca.config import environment
from mpca.errors import EnvironmentRefused

__all__ = ["DEVICES", "candidates", "take", "uuids"]

#: Set by the executor for its agents: addresses of its GPUs, with commas between them.
DEVICES = "MPCA_DEVICES"
#: An agent that is being replaced may not be quite gone.
_PATIENCE_S = 10.0
_LOOK_S = 0.1


def candidates(device: str) -> list[str]:
    """GPUs that this agent may choose from; empty: none are needed, or nobody can tell which there are."""
    given = environment(DEVICES) or (environment("CUDA_VISIBLE_DEVICES") if device.startswith("cuda") else "")
    if given:
        return uuids(given.split(","))
    return uuids(None) if device == "cuda" else []


def uuids(addresses: Sequence[str] | None) -> list[str]:
    """The same GPUs by UUID, since numbers differ between containers; None: all of this machine or container."""
    if addresses is not None and not any(one.strip().isdigit() for one in addresses):
        return [one.strip() for one in addresses if one.strip()]
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return [one.strip() for one in addresses or () if one.strip()]
    if addresses is None:
        return said
    numbered = {str(number): uuid for number, uuid in enumerate(said)}
    return [numbered.get(one.strip(), one.strip()) for one in addresses if one.strip()]


def take(
    devices: Sequence[str], patience_s: float = _PATIENCE_S, now: Callable[[], float] = time.monotonic
) -> tuple[str, socket.socket]:
    """The first of these GPUs that no agent has, and its lock, which holds as long as the socket is open.

    Raises:
        EnvironmentRefused: every one is taken.
    """
    until = now() + patience_s
    while True:
        for one in devices:
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                lock.bind(f"\0mpca-gpu-{one}")
                return one, lock
            except OSError as error:
                lock.close()
                if error.errno != errno.EADDRINUSE:
                    raise
        if now() >= until:
            raise EnvironmentRefused(
                f"every GPU of this executor is another agent's: gpus={','.join(devices)}; ask for as many as there are "
                "agents in an executor (spark.executor.resource.gpu.amount), or run fewer agents on a host"
            )
        time.sleep(_LOOK_S)
