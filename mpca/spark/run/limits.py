"""Limits of this process (``ulimit``) that are too low for a session on this machine, refused before anything is started.

A JVM with too few descriptors fails while it loads classes, with a message about the class that it was loading. A JVM that may
start no more threads fails anywhere. Sessions with two executors and four agents (JDK 17, PySpark 3.5) were counted: 350
descriptors in the driver's JVM, 300 in an executor's; 115 threads in the driver's, 44 in an executor's. With 4, 8 and 16
executors, on two cores, the driver's JVM had 398, 494 and 686 descriptors: on one machine Spark's workers are in it, and take
24 an executor. On a cluster it is two connections an executor, there and in each executor's JVM.

Soft limits do not matter: a JVM raises its own to the hard one, and what it starts has that too.
"""

from __future__ import annotations

import os
import resource

import psutil

from mpca.errors import EnvironmentRefused

__all__ = ["check_connections", "check_limits"]

_FILES, _FILES_AN_EXECUTOR = 464, 24
#: No driver of a cluster goes with less. Executors say themselves what they may open: org.mpca.rdd.Descriptors.
_LEAST_FILES, _CONNECTIONS = 272, 3
_THREADS, _THREADS_AN_EXECUTOR, _THREADS_AN_AGENT = 160, 64, 16


def check_limits(executors: int, agents: int) -> None:
    """Refuse limits that are too low for so many executors and agents.

    Raises:
        EnvironmentRefused: names the limit, what is used of it, what is needed, and how to raise it.
    """
    _refuse("open files", "-Hn", _files(), 0, _FILES + _FILES_AN_EXECUTOR * executors)
    if os.geteuid() != 0:  # root may start as many as it likes
        processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        needed = _THREADS + _THREADS_AN_EXECUTOR * executors + _THREADS_AN_AGENT * agents
        if processes != resource.RLIM_INFINITY and processes < 1 << 16:  # a higher limit needs no count
            _refuse("processes and threads of a user", "-u", processes, _threads(os.getuid()), needed)


def check_connections(executors: int) -> None:
    """Refuse a limit with which a driver on a cluster is certain to fail. Its JVM has the limit of this process.

    Raises:
        EnvironmentRefused: as `check_limits`.
    """
    _refuse("open files", "-Hn", _files(), 0, _LEAST_FILES + _CONNECTIONS * executors)


def _files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def _refuse(what: str, option: str, limit: int, used: int, needed: int) -> None:
    if limit == resource.RLIM_INFINITY or limit - used >= needed:
        return
    raise EnvironmentRefused(
        f"too few {what}: limit={limit}, used={used}, needed={needed}; raise it with `ulimit {option}`, "
        "in /etc/security/limits.conf, or use fewer executors"
    )


def _threads(user: int) -> int:
    """Threads of all processes of a user, which the kernel counts against the limit."""
    count = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == user:
            count += process.info["num_threads"] or 0
    return count
