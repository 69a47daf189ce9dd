"""What `mpca doctor` makes of what it is told; asking is for tests/hadoop."""

from __future__ import annotations

import pytest

from mpca.spark.jvm.jar import LINES
from mpca.spark.yarn.examine import judge_clock, judge_expiry, judge_java, judge_space


@pytest.mark.parametrize(
    ("version", "levels"),
    [
        ("1.8.0_402", ["ok", "change"]),
        ("11.0.2", ["ok", "change"]),
        ("17.0.15", ["ok", "ok"]),
        ("17", ["ok", "ok"]),
        ("21.0.1", ["change", "ok"]),
    ],
)
def test_java(version: str, levels: list[str]) -> None:
    assert [judge_java(version, line).level for line in LINES] == levels


@pytest.mark.parametrize(("seconds", "level"), [(0.2, "ok"), (-59, "ok"), (61, "change"), (-299, "change"), (301, "stop")])
def test_clocks(seconds: float, level: str) -> None:
    found = judge_clock(seconds)
    assert found.level == level
    assert ("ahead" if seconds > 0 else "behind") in found.text


def test_node_expiry_against_the_time_outs_that_we_set() -> None:
    assert judge_expiry("600000").level == "ok"  # YARN's default, noticed after up to 800 s
    late = judge_expiry("1200000")
    assert late.level == "change"
    assert "spark.rpc.askTimeout" in late.text
    assert "1600 s" in late.text


def test_space() -> None:
    assert judge_space(11 << 30).level == "ok"
    assert judge_space(1 << 30).level == "change"
