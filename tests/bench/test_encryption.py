"""What is made of the turns of `bench encryption`; the half of HDFS: tests/hadoop/full_secure.py."""

from __future__ import annotations

import pytest

from mpca.cli.bench.cases.encryption import measure, ratios
from mpca.errors import ConfigError


def test_each_way_is_compared_with_the_first_in_the_same_turn() -> None:
    plain = [{"cpu": 1.0}, {"cpu": 10.0}, {"cpu": 2.0}]  # of a machine that has other work in the second turn
    gcm = [{"cpu": 1.5}, {"cpu": 16.0}, {"cpu": 2.8}]
    told = ratios("exchange", {"plain": plain, "gcm": gcm})
    assert told["exchange"] == {"plain": {"cpu": 2.0}, "gcm": {"cpu": 2.8}}
    assert told["exchange_ratios"] == {"gcm": {"cpu": 1.5}}


def test_a_folder_that_is_not_on_hdfs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--at /tmp: must be a folder of HDFS"):
        measure(at="/tmp")
