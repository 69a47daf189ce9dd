"""`mpca simulate --plan` as a person calls it."""

from __future__ import annotations

import json
import re

import pytest

from mpca.sim.cost_table import ROWS
from tests.cli.test_main import ROOT, run

PLAN = ("simulate", "--plan", "--step", "95ms", "--size", "6.7MiB")


def test_one_k_prints_every_method_and_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, *PLAN)
    assert (code, err) == (0, [])
    lines = out.splitlines()
    assert "b/C = 0.59" in lines[0]
    for row in ROWS:
        assert any(line.strip().startswith(row.method) for line in lines)
    assert lines[-1].startswith("K = 8: worth a try")
    assert "…" not in out
    assert "Source:" not in out


def test_a_range_prints_doublings(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, *PLAN, "--agents", "2..1024")
    assert code == 0
    header = next(line for line in out.splitlines() if "method" in line)
    assert [word for word in header.split() if word.isdigit()] == [str(2**power) for power in range(1, 11)]
    assert out.splitlines()[-1].startswith("K = 1024: ")


def test_formulas_are_printed_with_their_sources(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, *PLAN, "--formulas", "--transport", "paper")
    assert code == 0
    assert "    Source: MPCA SGD, Table 1: the least squares line" in out
    assert "sync, dl4j-averaging, diloco (the paper's)" in out


def test_json_is_one_object_with_setting_rows_formulas_and_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capfd, *PLAN, "--agents", "4,8", "--bandwidth", "100mbit", "--driver-bandwidth", "10gbit", "--engine-rate", "1gbit",
        "--latency", "1ms", "--incast", "2", "--tau", "7", "--shards", "2", "--json",
    )  # fmt: skip
    result = json.loads(out)
    assert code == 0
    assert (result["setting"]["rate"], result["setting"]["driver_rate"], result["setting"]["engine_rate"]) == (
        12.5e6,
        1.25e9,
        125e6,
    )
    assert (result["setting"]["latency_s"], result["setting"]["incast"]) == (1e-3, 2.0)
    assert (result["choice"]["tau"], result["choice"]["shards"], result["choice"]["phases"]) == (7, 2, 2)
    assert len(result["rows"]) == 2 * len(ROWS)
    assert result["verdict"].startswith("K = 8: ")
    assert {"rows", "transport", "formula", "source"} == set(result["formulas"][0])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--agents", "many"), "not a number of agents: 'many'; write 8, or 2,4,8, or 2..1024"),
        (("--agents", "0"), "each must lie in 1..1048576"),
        (("--agents", "8..2"), "a range must rise"),
        (("--bandwidth", "10"), "not a rate: '10'; write a number with its unit, such as 30mbit"),
        (("--bandwidth", "0mbit"), "--bandwidth = 0.0: must be above 0"),
        (("--driver-bandwidth", "0mbit"), "--driver-bandwidth = 0.0: must be above 0"),
        (("--step", "0.1"), "not a duration: '0.1'; write a number with its unit"),
        (("--step", "0s"), "--step = 0.0: must be above 0"),
        (("--size", "7"), "not a size: '7'; write a number with its unit"),
        (("--size", "0MiB"), "--size = 0: must be above 0"),
        (("--incast", "0.5"), "--incast = 0.5: must be 1 or more"),
        (("--transport", "pigeon"), "'pigeon' is not one of"),
        (("--tau", "0"), "0 is not in the range"),
    ],
)
def test_a_wrong_value_is_refused_with_the_option_and_the_remedy(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    code, out, err = run(capfd, *PLAN, *words)
    assert (code, out) == (2, "")
    assert sentence in err[-1]


def test_without_plan_it_says_what_to_add(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "simulate", "--step", "95ms", "--size", "7MiB")
    assert code == 2
    assert err[-1] == "Error: nothing to simulate: add --plan"


_PAGE = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
_EXAMPLES = re.findall(r"^    mpca (simulate [^\n]*)\n\n```\n(.*?)\n```$", _PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "output"), _EXAMPLES, ids=[command for command, _ in _EXAMPLES])
def test_the_page_shows_what_the_command_prints(capfd: pytest.CaptureFixture[str], command: str, output: str) -> None:
    code, out, _ = run(capfd, *command.split())
    assert code == 0
    assert [line.rstrip() for line in out.splitlines()] == output.splitlines()


def test_the_page_has_both_examples() -> None:
    assert len(_EXAMPLES) == 2
