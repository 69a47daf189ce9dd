"""Answers that wait for copies: given once, in order, and by which thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from mpca.agent.deliveries import Deliveries
from tests.support.fake_executor import wait_until


class Copies:
    """Copies that end when a test says so, and the answers that were given, with the threads that gave them."""

    def __init__(self) -> None:
        self.access = threading.RLock()
        self.deliveries = Deliveries(self.access)
        self.done = [threading.Event() for _ in range(3)]
        self.answers: list[int] = []
        self.threads: list[str] = []

    def put(self, number: int, waits: bool = True) -> None:
        with self.access:
            self.deliveries.put([self.wait(number)] if waits else [], lambda: self.answer(number))

    def wait(self, number: int) -> Callable[[], None]:
        def wait() -> None:
            assert self.done[number].wait(30)

        return wait

    def answer(self, number: int) -> None:
        self.answers.append(number)
        self.threads.append(threading.current_thread().name)


@pytest.fixture
def copies() -> Copies:
    return Copies()


def test_what_waits_for_nothing_is_answered_here_and_needs_no_thread(copies: Copies) -> None:
    before = threading.active_count()
    copies.put(0, waits=False)
    assert (copies.answers, copies.threads) == ([0], ["MainThread"])
    assert threading.active_count() == before


def test_a_thread_answers_when_the_copy_is_done(copies: Copies) -> None:
    copies.put(0)
    copies.put(1)
    assert copies.answers == []
    copies.done[1].set()
    copies.done[0].set()
    wait_until(lambda: len(copies.answers) == 2, "both are answered")
    assert (copies.answers, set(copies.threads)) == ([0, 1], {"mpca-deliveries"})


def test_who_is_to_wait_for_messages_gives_the_answers_itself_and_none_is_given_twice(copies: Copies) -> None:
    with copies.access:
        for number in range(3):
            copies.put(number)
        copies.done[0].set()  # the other thread has seen it, and waits for the lock
        threading.Timer(0.05, copies.done[1].set).start()
        threading.Timer(0.1, copies.done[2].set).start()
        copies.deliveries.finish()
        assert (copies.answers, set(copies.threads)) == ([0, 1, 2], {"MainThread"})
    copies.done[0].clear()
    copies.put(0)
    copies.done[0].set()
    wait_until(lambda: len(copies.answers) == 4, "the other thread went past those that were answered")
    assert copies.answers == [0, 1, 2, 0]


def test_what_was_dropped_is_never_answered(copies: Copies) -> None:
    with copies.access:
        copies.put(0)
        copies.deliveries.drop()
    copies.done[0].set()
    copies.put(1)
    copies.done[1].set()
    wait_until(lambda: copies.answers, "the next one is answered")
    assert copies.answers == [1]


def test_what_the_thread_met_is_raised_where_the_training_is(copies: Copies) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    copies.deliveries.check()
    with copies.access:
        copies.deliveries.put([fail], lambda: None)

    def failed() -> bool:
        try:
            copies.deliveries.check()
        except RuntimeError:
            return True
        return False

    wait_until(failed, "the error has come")
    for ask in (copies.deliveries.check, copies.deliveries.finish):
        with pytest.raises(RuntimeError, match="illegal memory access"):
            ask()
