"""The parts of a page: sections, tables, legends. HTML as text; inputs are escaped.

A page is one file. Its Content-Security-Policy lets the browser load nothing, and run and apply only what is in the file by its
hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

__all__ = ["axis_seconds", "document", "embedded", "folded", "legend", "link", "policy", "section", "table"]

_SCRIPTS, _STYLES = ("uplot/uPlot.iife.min.js", "page.js"), ("uplot/uPlot.min.css", "page.css")
_WIDE = 24  # characters of a cell that may have several lines
_ROWS = 500  # of a table at its beginning, and as many at its end


def document(title: str, sections: Iterable[str], data: Any = None, live: bool = False) -> str:
    """A whole page, which needs no network.

    Args:
        title: of the window.
        sections: an HTML element each, or nothing.
        data: embedded as JSON, for programs; None: nothing is.
        live: whether the page follows a run, by what `watch` sends.
    """
    main = "\n".join(section for section in sections if section)
    scripts = f"<script>{_files(_SCRIPTS)}</script>" if live or "<figure" in main else ""
    kept = "" if data is None else embedded(json.dumps(data, separators=(",", ":"), default=str))
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(live)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>mpca: {escape(title)}</title><style>{_files(_STYLES)}</style></head>\n"
        + ('<body data-live="events"><p class="said" role="status">connecting</p><main>\n' if live else "<body><main>\n")
        + f"{main}\n</main>"
        + (f'<script type="application/json" id="mpca-data">{kept}</script>' if kept else "")
        + f"{scripts}</body></html>\n"
    )
    # A file's name that is no UTF-8, as in the error of an agent, has half a surrogate pair, which no file takes.
    return page.encode(errors="backslashreplace").decode()


def policy(live: bool) -> str:
    """The page's Content-Security-Policy."""
    script, style = (
        "'sha256-" + base64.b64encode(hashlib.sha256(_files(names).encode()).digest()).decode() + "'"
        for names in (_SCRIPTS, _STYLES)
    )
    connect = "; connect-src 'self'" if live else ""
    return f"default-src 'none'; script-src {script}; style-src {style}; base-uri 'none'; form-action 'none'{connect}"


@functools.cache
def _files(names: tuple[str, ...]) -> str:
    folder = resources.files("mpca.report")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def embedded(text: str) -> str:
    """JSON that no HTML parser takes for an end of its element."""
    return text.replace("<", "\\u003c")


def axis_seconds(value: float) -> str:
    """A tick of an axis in time."""
    return f"{value:g} s" if value < 120 or value % 60 else f"{value / 60:g} min"


def link(url: str) -> str:
    """The URL as text; a page of the web can be opened by it, and nothing else."""
    shown = escape(url)
    return f'<a href="{shown}" rel="noreferrer">{shown}</a>' if url.startswith(("http://", "https://")) else shown


def section(title: str, note: str, *body: str) -> str:
    """A heading, a sentence below it, and the content."""
    return f'<section><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{"".join(body)}</section>'


def folded(title: str, sections: Iterable[str]) -> str:
    """Sections below a line that opens them."""
    return f"<details><summary>{escape(title)}</summary>{''.join(sections)}</details>"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], numeric: frozenset[str] = frozenset()) -> str:
    """Rows of cells. Columns in `numeric` are aligned to the right. Of very many rows, those in the middle are left out."""
    css = ["n" if head in numeric else "" for head in heads]
    top = "".join(_cell("th", one, head) for head, one in zip(heads, css, strict=True))
    rows = list(rows)
    if (left_out := len(rows) - 2 * _ROWS) > 0:
        rows[_ROWS:-_ROWS] = [(f"{left_out:,} more", *[""] * (len(heads) - 1))]
    body = "".join(
        f"<tr>{''.join(_cell('td', one, str(cell)) for cell, one in zip(row, css, strict=True))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(tag: str, css: str, text: str) -> str:
    css = css or ("wide" if tag == "td" and len(text) > _WIDE else "")
    return f'<{tag} class="{css}">{escape(text)}</{tag}>' if css else f"<{tag}>{escape(text)}</{tag}>"


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Names of lines or bars, each with the CSS class of its colour."""
    return (
        '<div class="legend">'
        + "".join(f'<span><i class="{css}"></i>{escape(name)}</span>' for css, name in entries)
        + "</div>"
    )
