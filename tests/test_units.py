"""Quantities as people write them; sizes and durations are held by `test_config.py`."""

from __future__ import annotations

import pytest

from mpca.units import format_rate, parse_rate


@pytest.mark.parametrize(("text", "bits"), [("30mbit", 30e6), ("1.5 Gbit", 1.5e9), ("64kbit", 64e3)])
def test_a_rate_is_read_in_the_words_of_tc(text: str, bits: float) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["30", "mbit", "30MiB", "30mbit/s", "-1mbit"])
def test_another_word_for_a_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a rate: .*30mbit"):
        parse_rate(text)


@pytest.mark.parametrize(("bits", "text"), [(2.5e9, "2.5 Gbit/s"), (30e6, "30 Mbit/s"), (64e3, "64 kbit/s")])
def test_a_rate_is_shown_in_its_largest_unit(bits: float, text: str) -> None:
    assert format_rate(bits) == text
