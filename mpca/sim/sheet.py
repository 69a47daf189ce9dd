"""A table of text: what a figure or a plan prints. `mpca.cli` draws it; tests and files take its lines."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Sheet"]


@dataclass(frozen=True)
class Sheet:
    """A table with a title above it and sentences below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """As lines of text: the first column to the left, the others to the right.

        Example:
            >>> Sheet("two", ("name", "n"), (("a", "1"), ("bc", "20"))).lines()
            ['two', 'name   n', 'a      1', 'bc    20']
        """
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]

        def line(row: tuple[str, ...]) -> str:
            first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            return "  ".join((first.strip().ljust(widths[0]), *others))

        return [self.title, *map(line, (self.columns, *self.rows)), *self.notes]
