"""Sizes, durations and rates as people write them ("64 MiB", "500 ms", "1 Gbit"), to and from plain numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

__all__ = ["format_duration", "format_rate", "format_size", "parse_duration", "parse_rate", "parse_size"]

_SIZES = {
    "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
    "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,  # Spark's letters, which are binary
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_RATES = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*\Z")


def _parse(text: str, table: Mapping[str, float], example: str, what: str) -> float:
    match = _QUANTITY.match(text)
    if match is None or match[2].lower() not in table:
        raise ValueError(f"not a {what}: {text!r}; write a number with its unit, such as {example}")
    value = float(match[1]) * table[match[2].lower()]
    if not math.isfinite(value):
        raise ValueError(f"not a {what}: {text[:40]!r}: too large a number")
    return value


def parse_size(text: str | int) -> int:
    """Bytes of a size such as ``"16MiB"``, ``"1.5 GiB"`` or ``"900m"``; an int is bytes already.

    Raises:
        ValueError: no number, no unit, an unknown unit, or a number that a float cannot hold.
    """
    if isinstance(text, int):
        return text
    return int(_parse(text, _SIZES, "64MiB", "size"))


def parse_duration(text: str | int | float) -> float:
    """Seconds of a duration such as ``"75s"``, ``"500 ms"`` or ``"2h"``; a number is seconds already.

    Raises:
        ValueError: no number, no unit, an unknown unit, or a number that a float cannot hold.
    """
    if isinstance(text, (int, float)):
        return float(text)
    return _parse(text, _DURATIONS, "90s", "duration")


def parse_rate(text: str) -> float:
    """Bits a second of a rate in tc's form, such as ``"30mbit"``.

    Raises:
        ValueError: not a number with kbit, mbit or gbit behind it.
    """
    return _parse(text, _RATES, "30mbit", "rate")


def format_size(size_bytes: int) -> str:
    """``1536 -> "1.5 KiB"``."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_duration(seconds: float) -> str:
    """``75 -> "1m15s"``, ``0.25 -> "250ms"``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def format_rate(bits_per_s: float) -> str:
    """``2.5e9 -> "2.5 Gbit/s"``."""
    for name, unit in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits_per_s >= unit:
            return f"{bits_per_s / unit:g} {name}"
    return f"{bits_per_s / 1e3:g} kbit/s"
