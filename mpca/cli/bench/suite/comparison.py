"""Compares two runs of `make bench`: pure arithmetic on their JSON. A figure is worse when it changed by more than its noise.

Seconds and rates are compared in yardsticks, so a machine that is slower today makes nothing worse. Noise is the range of a
figure's repeated measurements, the larger one of both runs. What was measured once has no noise, and is not judged; nor is what
was measured while the machine had other work, since no yardstick makes up for that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpca.cli.bench.suite.rows import Figure, Row
from mpca.cli.bench.suite.yardstick import seconds
from mpca.strict_json import loads

__all__ = [
    "FORMAT",
    "QUIET_IDLE",
    "Change",
    "Comparison",
    "attempts",
    "changes",
    "compared",
    "counts",
    "figures",
    "lines",
    "loaded",
    "read",
]

FORMAT = 1
#: With less of the CPU idle before or after a measurement, the machine had other work.
QUIET_IDLE = 0.8
#: A result whose `reason` is one of these has figures that count, though none of a network.
_COUNTS = ("", "loopback")
#: What makes two machines the same.
_MACHINE = ("cpu", "cores", "memory_gib")


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both runs, in yardsticks where it has a unit."""

    row: str
    key: str
    verdict: str  # worse, better, same, once, loaded, new, missing
    before: float | None = None
    now: float | None = None
    noise: float | None = None  # in the figure's own unit

    @property
    def ratio(self) -> float | None:
        """Now over before; None where one of them is missing or zero."""
        return self.now / self.before if self.now is not None and self.before else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All changes, and whether they count."""

    changes: tuple[Change, ...]
    other_machine: str = ""  # how the machines differ; empty: they do not

    @property
    def worse(self) -> tuple[Change, ...]:
        """What counts as worse: nothing when the machine is another one."""
        return () if self.other_machine else tuple(one for one in self.changes if one.verdict == "worse")


def figures(row: Row, attempts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The figures of one row by key, in yardsticks: `values`, `median`, and `noise`, which is their range.

    Args:
        row: says which figures, and their units.
        attempts: what was measured: `yardstick`, and the `result` of the case.
    """
    found = {}
    for figure in row.figures:
        values = [
            _scaled(figure, value, seconds(one["yardstick"]))
            for one in attempts
            if counts(one) and isinstance(value := _at(one["result"], figure.key), int | float)
        ]
        if values:
            found[figure.key] = {
                "better": figure.better,
                "unit": figure.unit,
                "values": values,
                "median": statistics.median(values),
                "noise": max(values) - min(values),
                "loaded": any(map(loaded, attempts)),
            }
    return found


def loaded(attempt: Mapping[str, Any]) -> bool:
    """Whether the machine had other work before a measurement, or after it."""
    return any(one["idle"] < QUIET_IDLE for one in attempt.get("at_rest", ()))


def attempts(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All measurements of a run."""
    for row in run["rows"].values():
        yield from row["attempts"]


def counts(attempt: Mapping[str, Any]) -> bool:
    """Whether a measurement was valid, or had no network and so says nothing of one."""
    return (attempt["result"].get("reason") or "") in _COUNTS


def _at(result: Any, key: str) -> Any:
    """What lies under a dotted key, in which numbers are places of a list; None: nothing."""
    for word in key.split("."):
        if isinstance(result, list):
            result = result[int(word)] if int(word) < len(result) else None
        else:
            result = result.get(word) if isinstance(result, dict) else None
    return result


def _scaled(figure: Figure, value: float, yardstick_s: float) -> float:
    return {"1": value, "s": value / yardstick_s, "1/s": value * yardstick_s}[figure.unit]


def read(text: str | bytes) -> dict[str, Any]:
    """A committed run.

    Raises:
        ValueError: this is no run of `make bench`, or it is damaged.
    """
    value = loads(text)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(f"not a run of make bench with format {FORMAT}")
    if not isinstance(value.get("machine"), dict) or not isinstance(value.get("rows"), dict):
        raise ValueError("machine or rows are missing")
    for name, row in value["rows"].items():
        if not isinstance(row, dict) or not _attempts_whole(row.get("attempts")) or not _figures_whole(row.get("figures")):
            raise ValueError(f"damaged: row={name!r}")
    return value


def _attempts_whole(attempts: Any) -> bool:
    return isinstance(attempts, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("result"), dict)
        and _yardstick_whole(one.get("yardstick"))
        and _rest_whole(one.get("at_rest", []))
        for one in attempts
    )


def _rest_whole(looks: Any) -> bool:
    return isinstance(looks, list) and all(isinstance(one, dict) and isinstance(one.get("idle"), int | float) for one in looks)


def _yardstick_whole(parts: Any) -> bool:
    return isinstance(parts, dict) and bool(parts) and all(isinstance(one, float) and one > 0 for one in parts.values())


def _figures_whole(figures: Any) -> bool:
    return isinstance(figures, dict) and all(isinstance(one, dict) and _whole(one) for one in figures.values())


def _whole(one: dict[str, Any]) -> bool:
    values = one.get("values")
    return (
        one.get("better") in ("lower", "higher")
        and isinstance(values, list)
        and all(isinstance(number, int | float) for number in (*values, one.get("median"), one.get("noise")))
        and len(values) > 0
    )


def compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> Comparison:
    """Compare two runs as `read` returns them."""
    rows: dict[str, tuple[Any, Any]] = {name: (before["rows"].get(name, {}), row) for name, row in now["rows"].items()}
    rows |= {name: (row, {}) for name, row in before["rows"].items() if name not in rows}
    found = [one for name, (old, new) in rows.items() for one in changes(name, old.get("figures", {}), new.get("figures", {}))]
    differs = [key for key in _MACHINE if before["machine"].get(key) != now["machine"].get(key)]
    words = [f"{key}={before['machine'].get(key)} then, {now['machine'].get(key)} now" for key in differs]
    return Comparison(tuple(found), "; ".join(words))


def changes(row: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """The changes of one row's figures."""
    found = []
    for key in (*now, *(key for key in before if key not in now)):
        old, new = before.get(key), now.get(key)
        if old is None or new is None:
            found.append(Change(row, key, "new" if old is None else "missing", old and old["median"], new and new["median"]))
            continue
        noise = max(old["noise"], new["noise"])
        growth = new["median"] - old["median"]
        loss = growth if new["better"] == "lower" else -growth
        if min(len(old["values"]), len(new["values"])) < 2:
            verdict = "once"
        elif old.get("loaded") or new.get("loaded"):
            verdict = "loaded"
        else:
            verdict = "worse" if loss > noise else "better" if -loss > noise else "same"
        found.append(Change(row, key, verdict, old["median"], new["median"], noise))
    return found


def lines(comparison: Comparison, *, told_missing: bool = True) -> list[str]:
    """What is printed: worse first, then better, then what is not judged or has no counterpart, and how many are the same.

    Args:
        comparison: of two runs.
        told_missing: whether figures that are in the run before alone are told; a short run lacks most of them.
    """
    said = []
    if comparison.other_machine:
        said.append(f"another machine, so nothing counts as worse: {comparison.other_machine}")
    words = {"worse": "WORSE  ", "better": "better ", "once": "once   ", "loaded": "BUSY   ", "new": "new    "}
    if told_missing:
        words["missing"] = "missing"
    for verdict, word in words.items():
        said += [f"{word} {_text(one)}" for one in comparison.changes if one.verdict == verdict]
    if any(one.verdict == "loaded" for one in comparison.changes):
        said.append(f"BUSY: less than {QUIET_IDLE:.0%} of the CPU was idle before or after a measurement; it is not judged")
    said.append(f"same    {sum(one.verdict == 'same' for one in comparison.changes)} figures, within their noise")
    return said


def _text(one: Change) -> str:
    numbers = {"before": one.before, "now": one.now, "noise": one.noise, "ratio": one.ratio}
    shown = "  ".join(f"{name}={number:.4g}" for name, number in numbers.items() if number is not None)
    return f"{one.row}: {one.key:28} {shown}"
