"""What one image may cost, held by the kernel; in processes of their own, since a limit stays."""

from __future__ import annotations

import signal
import subprocess
import sys

from mpca.data.child import Child
from mpca.data.limits import MEMORY_BYTES
from mpca.timeouts import DECODE_CPU_S


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_each_image_has_its_seconds_and_one_that_takes_more_ends_the_process() -> None:
    done = run(
        """
import time
from mpca.data.child import Child
from mpca.data.limits import limit_cpu

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

for _ in range(3):
    limit_cpu(1)
    work(0.5)
print("three", flush=True)
limit_cpu(1)
work(8)
print("never")
"""
    )
    assert (done.returncode, done.stdout) == (-signal.SIGPROF, "three\n")


def test_a_parent_hears_why_its_child_ended() -> None:
    child = Child("tests.data.burning")
    assert child.connection.poll(30)  # the end of it
    assert child.reap() == "more than 20 s of processor time"


def test_memory_beyond_the_limit_is_an_error_and_what_is_below_is_not() -> None:
    done = run(
        """
from mpca.data.child import Child
from mpca.data.limits import limit_memory
limit_memory(64 << 20)
print(len(bytearray(32 << 20)))
try:
    bytearray(128 << 20)
except MemoryError:
    print("refused")
"""
    )
    assert done.stdout == f"{32 << 20}\nrefused\n"


def test_a_limit_of_the_machines_own_is_never_raised() -> None:
    done = run(
        """
import resource
from mpca.data.child import Child
from mpca.data.limits import limit_memory
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
limit_memory(2 << 30)
print(resource.getrlimit(resource.RLIMIT_DATA))
"""
    )
    assert done.stdout == f"({1 << 30}, {1 << 30})\n"


def test_the_limits_are_above_what_the_largest_image_takes() -> None:
    assert DECODE_CPU_S >= 4 * 4  # four seconds were measured
    assert MEMORY_BYTES >= (860 + 3 * 150) << 20
