"""A child and its parent; what children are used for is in the tests of ingest, generate and the decoders."""

from __future__ import annotations

import os
import signal

import pytest

from mpca.data.child import Child


def test_ctrl_c_while_a_child_starts_is_its_parents_affair(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child("tests.data.starting")
    while not child.connection.poll(0.01):
        os.kill(child.pid, signal.SIGINT)
    assert child.connection.recv() == "ready"
    assert child.reap() == "exit code 0"
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, []), "the parent hears it"
