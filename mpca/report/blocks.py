"""The parts of the page: sections, tables, legends. HTML as text; inputs are escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

__all__ = ["axis_seconds", "document", "legend", "section", "table"]


def document(title: str, sections: Iterable[str], data: Any) -> str:
    """A whole page, which needs no network and no script. `data` is embedded as JSON, for programs."""
    embedded = json.dumps(data, separators=(",", ":"), default=str).replace("<", "\\u003c")
    style = resources.files("mpca.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>mpca: {escape(title)}</title><style>{style}</style></head>\n<body><main>\n"
        + "\n".join(section for section in sections if section)
        + f'\n</main><script type="application/json" id="mpca-data">{embedded}</script></body></html>\n'
    )


def axis_seconds(value: float) -> str:
    """A tick of an axis in time."""
    return f"{value:g} s" if value < 120 or value % 60 else f"{value / 60:g} min"


def section(title: str, note: str, *body: str) -> str:
    """A heading, a sentence below it, and the content."""
    return f'<section><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{"".join(body)}</section>'


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], numeric: frozenset[str] = frozenset()) -> str:
    """Rows of cells. Columns in `numeric` are aligned to the right."""
    css = [' class="n"' if head in numeric else ' class="wide"' for head in heads]
    top = "".join(f"<th{c}>{escape(head)}</th>" for head, c in zip(heads, css, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{c}>{escape(str(cell))}</td>" for cell, c in zip(row, css, strict=True)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Names of lines or bars, each with the CSS class of its colour."""
    return (
        '<div class="legend">'
        + "".join(f'<span><i class="{css}"></i>{escape(name)}</span>' for css, name in entries)
        + "</div>"
    )
