"""Signals: raised while nobody looks, noted when somebody does, and the handlers before come back."""

from __future__ import annotations

import os
import signal

import pytest

from mpca.api.signals import Interrupted, Signals


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_during_the_start_it_raises_with_its_exit_code(signum: int, code: int) -> None:
    with Signals() as signals, pytest.raises(Interrupted) as raised:
        os.kill(os.getpid(), signum)
    assert raised.value.exit_code == code
    assert str(raised.value) == signal.Signals(signum).name
    assert signals.caught == signum


def test_a_loop_that_looks_is_not_torn_off_in_the_middle() -> None:
    with Signals() as signals:
        signals.looked_at = True
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.caught == signal.SIGTERM, "the first one says how the run ends"
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handlers_before_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals() as signals:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a starting SparkContext does with a handler of its own
        signals.again()
        assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) == before
