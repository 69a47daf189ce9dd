"""Losses at an exact point of a cycle, on YARN's executors and under all the security that Spark has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpca.cli.dev.hadoop import Hadoop
from tests.hadoop.support import SECURED, application, end_applications, nothing_lives, only, program, records

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
THREE = ("cluster.agents=3", "spark.kryo.registrationRequired=true")


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


def test_what_is_killed_between_materialising_and_summing_costs_that_cycle_its_part_and_nothing_else(
    hadoop: Hadoop, tmp_path: Path
) -> None:
    """Sums to the bit by both ways of summing and sending first; then an executor is killed, and an agent."""
    run = program(tmp_path, "lossy.py", str(tmp_path), sets=(*SECURED, *THREE))
    try:
        assert run.ended() == 0, run.text()[-4000:]
    finally:
        run.close()
    told = json.loads(next(line for line in run.said().splitlines() if line.startswith("told ")).removeprefix("told "))
    assert {key: told["conf"][key] for key in (one.partition("=")[0] for one in SECURED)} == dict(
        one.split("=") for one in SECURED
    )
    for way in ("ranges", "tree"):
        assert told[way] == {"same_bytes": True, "acknowledged": [0, 1]}

    lines = records((tmp_path / "run" / "records.jsonl").read_text())
    cycles = {one["cycle"]: one for one in lines if one["kind"] == "cycle"}
    assert list(cycles) == list(range(len(cycles))), "every cycle was committed, each once"
    lost, lost_later = agents(lines, "lost")
    replaced, replaced_later = agents(lines, "replaced")

    # The executor: its agent's part of that cycle is lost with it, on all ranges, and the sum is made without it.
    cut = cycles[told["executor"]]
    assert set(cut["contributors"]) == {"0", "2"}
    assert cut["left_out"] == {"1": f"executor {lost['executor_id']} lost"}
    assert cut["submissions"] >= 2, "the sum had been asked for with it"
    assert (lost["index"], lost["incarnation"], replaced["index"], replaced["incarnation"]) == (1, 0, 1, 1)
    assert replaced["executor_id"] != lost["executor_id"]

    # The agent: what it had materialised lies with its executor and counts; then it is left out.
    assert set(cycles[told["agent"]]["contributors"]) == {"0", "1", "2"}
    assert set(cycles[told["agent"] + 1]["contributors"]) == {"0", "1"}
    assert "2" in cycles[told["agent"] + 1]["left_out"]
    assert (lost_later["index"], lost_later["reason"].split(":")[0]) == (2, "exit code 137")
    assert (replaced_later["index"], replaced_later["executor_id"]) == (2, lost_later["executor_id"])

    # Nothing accepted was lost, nothing counted twice: what executors answered is what the ledger says, byte for byte.
    crc = {(cycle, agent, incarnation): value for cycle, agent, incarnation, value in told["crc"]}
    accepted = {tuple(key) for key in told["accepted"]}
    ledger = {
        (cycle, int(agent), part["incarnation"]): part["crc"]
        for cycle, one in cycles.items()
        for agent, part in one["contributors"].items()
    }
    assert len(told["accepted"]) == len(accepted)
    assert set(ledger) == accepted
    assert ledger == {key: crc[key] for key in accepted}
    assert {part[2] for part in ledger if part[1] == 0} == {0}, "agent 0 never noticed"
    assert {part[2] for part in ledger if part[1] in (1, 2)} == {0, 1}, "the next incarnations take part"

    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["agents_lost"], summary["agents_replaced"]) == (2, 2)
    id = only(run.text())
    assert application(hadoop, id)["finalStatus"] == "SUCCEEDED"
    nothing_lives(id)


def agents(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [one for one in lines if one["kind"] == "agent" and one["event"] == event]
