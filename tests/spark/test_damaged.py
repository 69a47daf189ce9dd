"""A byte that is changed on the wire, under TCP's checksum, never comes into a sum or an agent.

What is kept back there is asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from mpca.cli.bench.net.network import Network
from tests.bench.support import needs_namespaces
from tests.spark.support import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.root, pytest.mark.quiet, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the cases of `damaged.py` said, run once, in a network namespace whose traffic passes a proxy."""
    needs_namespaces()
    work_dir = tmp_path_factory.mktemp("damaged")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Network(["wire"]) as net:
        command = net.command("wire", [sys.executable, "-m", "tests.spark.damaged", str(work_dir)])
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=360)
    assert done.returncode == 0, done.stderr[-4000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one.pop("case"): one for one in said}


def test_without_damage_the_sum_is_right(cases) -> None:
    assert cases["nothing"] == {"fired": 0, "right": True}


@pytest.mark.parametrize("case", ["part once", "sum once"])
def test_what_was_damaged_once_is_fetched_again_and_the_sum_is_right(cases, case: str) -> None:
    assert cases[case] == {"fired": 1, "right": True}


@pytest.mark.parametrize(("case", "what"), [("part always", "block "), ("sum always", "its sum came damaged to the driver")])
def test_an_order_fails_by_the_executor_whose_bytes_are_damaged_twice(cases, case: str, what: str) -> None:
    said, bad = cases[case], cases["end"]["bad"]
    assert said["fired"] >= 2
    assert (said["failed"], said["damages"]) == (bad, True)
    assert said["reason"].startswith(f"executor {bad} damages bytes: {what}")


def test_parts_that_an_executor_cannot_push_are_asked_for_and_are_not_waited_for_again(cases) -> None:
    said = cases["not pushed"]
    assert said["fired"] == 2, "the connections to both of the others were kept back"
    assert said["right"] == [True, True, True]
    waited, remembered, let_through = said["took"]
    assert remembered < waited / 2
    assert let_through < waited / 2


@pytest.mark.parametrize("case", ["piece once", "piece of the driver once", "torrent once"])
def test_a_piece_of_a_broadcast_that_was_damaged_once_is_fetched_again(cases, case: str) -> None:
    assert cases[case] == {"fired": 1, "same": [True, True, True], "told": []}


@pytest.mark.parametrize(("case", "fired"), [("exchange", 0), ("sent once", 1), ("answer once", 1)])
def test_what_an_agent_exchanges_is_fetched_again(cases, case: str, fired: int) -> None:
    assert cases[case] == {"fired": fired, "same": True, "told": ""}


def test_an_exchange_that_is_damaged_twice_is_told_and_asked_for_again(cases) -> None:
    said = cases["sent always"]
    assert said["fired"] >= 2
    assert (said["same"], said["told"]) == (True, cases["end"]["bad"])


def test_pieces_of_an_owner_that_damages_come_from_the_driver_which_is_told(cases) -> None:
    said = cases["piece always"]
    assert said["fired"] >= 2
    assert said["same"] == [True, True, True]
    assert said["told"] == [cases["end"]["bad"]]
