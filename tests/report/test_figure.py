"""A figure's page: its source, its drawings and its claims."""

from __future__ import annotations

import re
from pathlib import Path

from mpca.report.figure import render_figure, write_figure
from mpca.sim.compare.figure_types import Chart, Claim, Shown
from mpca.sim.compare.figures import FIGURES
from mpca.sim.sheet import Sheet
from tests.report.test_page import Page

SHOWN = Shown(
    [Sheet("a < b", ("x",), (("1",),), ("a note",))],
    [Chart("errors", "C", {"one": [(0, 0.9), (1, 0.1)], "two": [(0, 0.8)]}, percent=True)],
    [Claim("up", False, "down")],
)


def test_a_page_has_all_that_the_terminal_has(tmp_path: Path) -> None:
    write_figure("13", FIGURES["13"], SHOWN, path := tmp_path / "figure.html")
    page = path.read_text(encoding="utf-8")
    for words in ("section 7.1, figure 13", "a &lt; b", "a note", "BREAKS from the paper: up. Here: down.", "one", "two"):
        assert words in page
    assert page.count("<polyline") == 2
    data = Page(re.sub(r"<meta[^>]*>", "", page)).data
    assert data["figure"] == "13"
    assert data["claims"] == [{"said": "up", "holds": False, "found": "down"}]


def test_a_schedule_is_drawn_in_lanes() -> None:
    shown = FIGURES["9"].make(lambda conf: None)  # type: ignore[arg-type, return-value]
    page = render_figure("9", FIGURES["9"], shown)
    assert Page(re.sub(r"<meta[^>]*>", "", page)).bars == sum(len(one.bars) for one in shown.drawn)  # type: ignore[union-attr]
    assert "shard 2" in page
