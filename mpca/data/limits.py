"""What decoding one image may cost a process of ours: processor time and memory, held by the kernel.

Headers are judged first (`decode.py`), so this is for what they do not tell: a decoder that loops, or allocates without
end, on damaged bytes. The kernel ends the process, and whoever waits for it names the image that it was at. For processes that
decode and do nothing else; never for the caller's own.
"""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from mpca.timeouts import DECODE_CPU_S

__all__ = ["MEMORY_BYTES", "limit_cpu", "limit_memory"]

#: Above what is held before the first image: torch, which scales, is 860 MB; the largest picture 150 MB, copied thrice.
MEMORY_BYTES = 3 << 30


def limit_memory(extra: int = MEMORY_BYTES) -> None:
    """So much more than now, from now on; what exceeds it is a MemoryError. Leaves no core files."""
    data_pages = int(Path("/proc/self/statm").read_text().split()[5])
    _lower(resource.RLIMIT_DATA, data_pages * os.sysconf("SC_PAGESIZE") + extra)
    _lower(resource.RLIMIT_CORE, 0)


def limit_cpu(seconds: float = DECODE_CPU_S) -> None:
    """So much more from now on: called before each image (1 us). What exceeds it ends this process by SIGPROF.

    A timer and not RLIMIT_CPU: that counts ticks since the process's start, a tenth more than its clock told when tried.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _lower(what: int, soft: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
