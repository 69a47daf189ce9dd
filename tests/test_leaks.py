"""The leak check finds what it is for."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.leaks import Held, wait_until_gone


def test_an_open_descriptor_is_found() -> None:
    before = Held.now()
    fd = os.memfd_create("mpca-leak")
    try:
        assert wait_until_gone(before, seconds=0.1) == [f"descriptor {fd} -> /memfd:mpca-leak (deleted)"]
    finally:
        os.close(fd)
    assert wait_until_gone(before, seconds=0.1) == []


def test_a_child_is_found_until_it_is_reaped() -> None:
    before = Held.now()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        left = wait_until_gone(before, seconds=0.1)
        assert any(one.startswith(f"process {child.pid} (") for one in left)
    finally:
        child.communicate(b"\n")
    assert wait_until_gone(before, seconds=5) == []
