"""Draws a table of the simulator (`sim.sheet.Sheet`) on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpca.sim.sheet import Sheet

__all__ = ["show"]

_WIDEST = 1000
_WORDS = ("method", "transport", "tuned", "row")


def show(sheet: Sheet) -> None:
    """Draw a sheet as a table."""
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(title=sheet.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in sheet.columns:
        table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=True)
    for row in sheet.rows:
        table.add_row(*row)
    whole = Console(width=_WIDEST)  # the terminal may wrap a line, but nothing is cut
    width = max(Measurement.get(whole, whole.options, table).maximum, len(sheet.title))
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False)
    console.print(table)
    for note in sheet.notes:
        console.print(note, soft_wrap=True)
