"""Signals: raised while nobody looks, noted when somebody does, and the handlers before come back."""

from __future__ import annotations

import os
import signal

import pytest

from mpca.api.signals import Interrupted, Signals


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
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


def test_one_terminal_that_is_gone_is_said_three_times_and_meant_once() -> None:
    with Signals() as signals:
        signals.looked_at = True
        for _ in range(4):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signals.caught == signal.SIGHUP
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_terminal_that_goes_while_the_start_is_broken_off_changes_nothing() -> None:
    with Signals():
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)  # while what was started is ended


def test_a_hangup_that_was_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            signals.again()
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.caught is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_before_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals() as signals:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a starting SparkContext does with a handler of its own
        signals.again()
        assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) == before
