"""The last lines of a run on a terminal: how it went and where it lies, and after them the root cause if it failed.

`follow.py`, which follows a driver from another process, finds these lines in the driver's output and prints them last.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from mpca.records.summary import STATUSES
from mpca.streams import aside
from mpca.units import format_duration

__all__ = ["cause_lines", "is_result", "result_lines", "say_last"]

_FILES = ("report.html", "model.safetensors")
_RESULT = re.compile(
    rf"({'|'.join(STATUSES)}): .*\d+ (?:cycle|exchange)s, .* of training|"
    r"report \S.*/report\.html$|model  \S.*/model\.safetensors$"
)


def result_lines(summary: Mapping[str, Any], run_dir: Path | str, saved: Container[str]) -> list[str]:
    """How a run went, by its summary.

    Args:
        summary: as in summary.json.
        run_dir: where the run lies.
        saved: names of the files there.
    """
    parts = [f"{summary['cycles']} {summary['counts']}s", f"{format_duration(summary['seconds'])} of training"]
    if summary["final_error"] is not None:
        parts.insert(0, f"error {100 * summary['final_error']:.2f} %")
    if summary["agents_lost"]:
        parts.append(f"{summary['agents_lost']} agents lost, {summary['agents_replaced']} replaced")
    if summary["cut_off"]:
        parts.append(f"train functions that did not return: agents {', '.join(summary['cut_off'])}")
    lines = [f"{summary['status']}: {', '.join(parts)}"]
    return [*lines, *(f"{name.split('.')[0]:7}{run_dir}/{name}" for name in _FILES if name in saved)]


def is_result(line: str) -> bool:
    """Whether a line is one of `result_lines`. A line that an agent prints begins with the agent's number."""
    return _RESULT.match(line) is not None


def cause_lines(reason: str) -> list[str]:
    """A root cause for stderr: the whole text if it has several lines, then its first line."""
    lines = reason.strip().splitlines() or [""]
    return [*(lines if len(lines) > 1 else ()), f"mpca: {lines[0]}"]


def say_last(result: Iterable[str], cause: Iterable[str]) -> None:
    """Print the result on stdout, and after that the cause on stderr: both may be one terminal, or one file."""
    for stream, lines in ((sys.stdout, result), (sys.stderr, cause)):
        with aside():
            for line in lines:
                print(line, file=stream)
