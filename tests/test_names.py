"""A name that differs between processes is refused when tests are collected."""

from __future__ import annotations

import pytest

from tests.support.names import changing

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("value", [object(), {"I2", "fence"}, frozenset({1}), {object}], ids=["object", "set", "frozen", "<"])
def test_addresses_and_sets_are_found(value: object) -> None:
    assert changing(["test_a[1]", f"test_a[1-{value}-b]"]) == [f"test_a[1-{value}-b]"]


@pytest.mark.parametrize("inside", ["{'tau': 8}", '{"n": {"a": 0.5}}', "{hdfs}/run", "{}", "{", "0x1-0xffff"])
def test_dicts_places_in_texts_and_small_numbers_are_left_alone(inside: str) -> None:
    assert changing([f"test_a[{inside}]"]) == []


def test_a_file_with_such_a_name_is_not_collected_and_the_error_is_one_sentence(pytester: pytest.Pytester) -> None:
    """The hook of this folder's conftest, in a run of pytest of its own."""
    pytester.makeconftest("from tests.conftest import *  # noqa: F403")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("red", [{"I2", "fence"}], ids=str)
        def test_it(red):
            pass
        """
    )
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["other processes give these tests other names*ids=*:", "*::test_it[[]{*}[]]"])
