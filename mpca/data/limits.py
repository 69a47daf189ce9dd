"""Limits of processor time and memory for decoding one image. The kernel enforces them.

Headers are checked first (`decode.py`). These limits are for a decoder that loops, or allocates without end, on damaged bytes.
The kernel then ends the process, and its parent reports the image. For processes that only decode; never for the caller's
own process.
"""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from mpca.timeouts import DECODE_CPU_S

__all__ = ["MEMORY_BYTES", "limit_cpu", "limit_memory"]

#: Bytes above those held before the first image. torch, which scales, takes 860 MB; the largest picture 150 MB, three times.
MEMORY_BYTES = 3 << 30


def limit_memory(extra: int = MEMORY_BYTES) -> None:
    """Limit this process's memory to `extra` bytes more than it holds now; more raises MemoryError. Core files are off."""
    data_pages = int(Path("/proc/self/statm").read_text().split()[5])
    _lower(resource.RLIMIT_DATA, data_pages * os.sysconf("SC_PAGESIZE") + extra)
    _lower(resource.RLIMIT_CORE, 0)


def limit_cpu(seconds: float = DECODE_CPU_S) -> None:
    """Limit this process's processor time to `seconds` from now on; SIGPROF then ends it. Call it before each image (1 us).

    It is a timer and not RLIMIT_CPU, which counts ticks since the process's start: a tenth more than its clock, as measured.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _lower(what: int, soft: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
