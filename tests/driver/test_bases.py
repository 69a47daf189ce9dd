"""Which base the driver names, and who is sent it in full."""

from __future__ import annotations

import pytest

from mpca.algorithm.bases import Base
from mpca.driver.bases import Bases

ALL = ["1", "2", "3"]


def base(version: int, shard: int = 0) -> Base:
    return Base(1, shard, version, 100 + version)


def held(*versions: str) -> Bases:
    """Versions 0, 1, ... and who has acknowledged each, such as "12"."""
    bases = Bases()
    for version, executors in enumerate(versions):
        bases.made(base(version))
        for executor in executors:
            bases.acknowledged(executor, base(version))
    return bases


def test_the_newest_that_all_have_is_named() -> None:
    assert held("123", "123").named(0, ALL) == base(1)
    assert held("123", "12").named(0, ALL) == base(0)
    assert held("123", "12").named(0, ["1", "2"]) == base(1)  # the third has no agent that is asked
    assert Bases().named(0, ALL) is None
    assert held("123").named(1, ALL) is None


def test_a_joiner_is_not_expected_and_gets_the_base_in_full() -> None:
    bases = held("12", "12")
    assert bases.named(0, ALL) == base(1)
    assert bases.without(base(1), ALL) == ["3"]
    bases.acknowledged("3", base(1))
    assert bases.without(base(1), ALL) == []


def test_one_that_is_late_holds_the_others_back_for_one_exchange() -> None:
    bases = held("123", "12")
    assert bases.named(0, ALL) == base(0)
    assert bases.without(base(0), ALL) == []
    bases.made(base(2))
    for executor in ("1", "2"):
        bases.acknowledged(executor, base(2))
    assert bases.named(0, ALL) == base(2)
    assert bases.without(base(2), ALL) == ["3"]
    bases.acknowledged("3", base(1))  # too late: it is needed no more, and is still held
    assert bases.named(0, ALL) == base(1)
    bases.acknowledged("3", base(0))  # forgotten
    assert bases.without(base(0), ALL) == ALL


def test_of_two_halves_without_a_common_base_the_larger_one_goes_on() -> None:
    bases = held("3", "12")
    assert bases.named(0, ALL) == base(1)
    assert bases.without(base(1), ALL) == ["3"]
    assert held("12", "3").named(0, ALL) == base(0)
    assert held("1", "3").named(0, ["1", "3"]) == base(1)


def test_nobody_has_one_after_a_resume() -> None:
    bases = held("", "")
    assert bases.named(0, ALL) == base(1)
    assert bases.without(base(1), ALL) == ALL


def test_what_a_lost_executor_held_is_gone_with_it() -> None:
    bases = held("123", "123")
    bases.lost("2")
    assert bases.without(base(1), ALL) == ["2"]
    bases.clear()
    assert bases.named(0, ALL) is None


def test_who_has_none_and_what_is_kept_and_held() -> None:
    bases = held("1", "12", "")
    assert bases.without_any(0, [*ALL, "4"]) == {"3", "4"}
    assert bases.without_any(1, ALL) == set(ALL)
    assert [bases.keeps(base(version)) for version in range(3)] == [False, True, True]
    assert [bases.held(base(version)) for version in range(3)] == [False, True, False]


def test_versions_grow() -> None:
    bases = held("1", "1")
    with pytest.raises(ValueError, match="must be newer"):
        bases.made(base(1))
