"""Whose step ends an update: sequences of steps in, as letters; a bar after each that ended one out."""

from __future__ import annotations

import pytest

from mpca.agent.rounds import RESTS_AFTER, Rounds


def play(steps: str, optimizers: str | None = None) -> str:
    rounds = Rounds()
    for one in optimizers or sorted(set(steps)):
        rounds.add(one)
    return "".join(one + "|" * rounds.stepped(one) for one in steps)


@pytest.mark.parametrize(
    "told",
    [
        "a|a|a|",
        "dg|dg|dg|",
        "gd|gd|gd|",
        "abc|abc|abc|",
        "dddddg|dddddg|",
        "dg|dddg|dg|ddg|",
        "gd|ddddgd|ddddgd|",  # generator first: once a batch, after the critic's first step
        "aab|aab|",  # b steps every second batch
        "dg|d" + "dg|dg|",  # a step that the gradient scaler skipped
    ],
)
def test_a_round_ends_with_the_optimiser_that_was_last_to_take_its_first_step(told: str) -> None:
    assert play(told.replace("|", "")) == told


def test_an_optimiser_that_waits_for_a_warm_up_holds_nobody_up_and_ends_rounds_once_it_steps() -> None:
    assert RESTS_AFTER == 32
    assert play("d" * 40 + "dgdgdg", "dg") == "d" * 31 + "d|" * 9 + "d|gdg|dg|"


def test_one_that_another_has_taken_the_place_of_rests() -> None:
    rounds = Rounds()
    rounds.add("a")
    assert [rounds.stepped("a") for _ in range(3)] == [True] * 3
    rounds.add("b")
    assert [rounds.stepped("b") for _ in range(40)] == [False] * 31 + [True] * 9


def test_one_that_is_known_to_be_replaced_holds_nobody_up_until_it_steps_again() -> None:
    rounds = Rounds()
    rounds.add("a")
    assert rounds.stepped("a")
    rounds.add("b")
    rounds.rest("a")
    assert [rounds.stepped("b") for _ in range(3)] == [True] * 3
    assert [rounds.stepped(one) for one in "ababa"] == [False, False, True, False, True]


def test_two_that_step_together_and_one_that_has_stopped() -> None:
    assert play("abc" * 2 + "ab" * 20) == "abc|" * 2 + "ab" * 15 + "ab|" + "ab|" * 4
