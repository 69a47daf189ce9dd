"""Prints the result of a case: one JSON object, or a table with the goals beside the figures."""

from __future__ import annotations

import json
from typing import Any

import click

__all__ = ["GOALS", "show"]

#: Key -> (word, limit); K = 8 where K matters, float32 where a codec does.
GOALS: dict[str, tuple[str, float]] = {
    "kappa": ("<=", 3.3),
    "period_over_b": ("<=", 2.2),
    "fixed_s": ("<=", 0.05),
    "driver_in_over_m": ("<=", 1.10),
    "driver_out_over_m": ("<=", 1.10),
    "period_over_tcp": ("<=", 1.1),
    "driver_held_over_m": ("<=", 3),
    "driver_rss_over_m": ("<=", 5),
    "pause_share": ("<=", 0.01),
    "steps_ratio": (">=", 0.98),
    "attach_ratio": ("<=", 1.02),
    "pull_over_memory": ("<=", 1.2),
    "lost_share": ("<=", 0.01),
    "stream_ratio": (">=", 0.97),
    "imagefolder_ratio": (">=", 1.5),
    "warm_update_s": ("<=", 1.0),
    "replacement_s": ("<=", 3.0),
    "pss_bytes": ("<=", 0.8 * (1 << 30)),
    "submit_ratio": ("<=", 1.5),
    "cycle_rate_ratio": (">=", 0.95),
    "scale_cpu_s": ("<=", 3.0),
    "schedules_per_minute": (">=", 2000),
    "mlp_updates_per_s": (">=", 10_000),
    "convnet_updates_per_s": (">=", 2_000),
    "int8_updates_ratio": ("<=", 1.02),
}


def show(result: dict[str, Any], as_json: bool) -> None:
    """Print the result of one case."""
    click.echo(json.dumps(result) if as_json else "\n".join(_lines(result, "")))


def _lines(result: dict[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}", *_lines(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{indent}{key}", *("  " + indent + _row(one) for one in value)]
        else:
            word, limit = GOALS.get(key, ("", 0))
            goal = f"   goal {word} {limit:g}" if word else ""
            lines.append(f"{indent}{key:24} {_text(value)}{goal}")
    return lines


def _row(values: dict[str, Any]) -> str:
    return "  ".join(f"{key}={_text(value)}" for key, value in values.items())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return str(value)
