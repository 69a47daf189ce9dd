"""What `make bench` runs: a line of `mpca bench` each, and the figures of its result that are compared.

Sizes and turns are such that everything ends in an hour and a quarter; what takes minutes is measured twice. The short form has
lines that end within fourteen minutes together, twice each. A case that needs root, HDFS or YARN refuses without it, in its own
words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["ROWS", "SHORT_REPEATS", "Figure", "Row", "on_gpu", "short"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a result."""

    key: str  # in the result's JSON; dots lead into it, and numbers are places of a list
    better: str  # lower, higher
    unit: str = "1"  # s: seconds, divided by the yardstick; 1/s: a rate, multiplied by it; 1: a ratio, which is left as it is


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `mpca bench`, measured `repeats` times."""

    name: str
    words: tuple[str, ...]
    figures: tuple[Figure, ...]
    expected_s: float  # of one measurement, on a quiet machine of two cores
    repeats: int = 3
    limit_s: float = 1800.0  # of one measurement
    in_short: bool = False  # whether the short form has it


def _lower(*keys: str, unit: str = "1") -> tuple[Figure, ...]:
    return tuple(Figure(key, "lower", unit) for key in keys)


def _higher(*keys: str, unit: str = "1") -> tuple[Figure, ...]:
    return tuple(Figure(key, "higher", unit) for key in keys)


_CPU = _lower(
    *(f"{role}_cpu_s_per_gb" for role in ("executor", "driver_jvm", "driver_python", "agent")),
    unit="s",
)
_SHAPED = ("kappa", "period_over_b", "driver_in_over_m", "driver_out_over_m", "period_over_tcp")

ROWS = (
    Row(
        "exchange on loopback",
        ("exchange", "--agents", "4", "--size", "16MiB", "--cycles", "90"),
        (*_CPU, *_lower("fixed_s", "fixed_cpu_s", unit="s"), *_lower("driver_held_over_m", "driver_rss_over_m")),
        repeats=2,
        expected_s=160.0,
        in_short=True,
    ),
    Row(
        "encryption",
        ("encryption", "--turns", "1"),
        _lower(*(f"exchange_ratios.gcm.{key}" for key in ("executor_cpu_s_per_gb", "driver_jvm_cpu_s_per_gb", "period_s"))),
        repeats=2,
        expected_s=285.0,
    ),
    Row(
        "exchange",
        ("exchange", "--agents", "4", "--size", "16MiB", "--shape", "100mbit"),
        _lower(*_SHAPED),
        repeats=2,
        expected_s=200.0,
    ),
    Row("tcp", ("tcp", "--agents", "4", "--shape", "100mbit"), _lower("tcp_period_over_b"), expected_s=7.0),
    Row(
        "pause",
        ("pause",),
        (
            *_lower("pause_share", "jvm_cpu_cores"),
            *_higher("sizes.0.steps_ratio", "sizes.1.steps_ratio", "sizes.2.steps_ratio"),
        ),
        repeats=2,
        expected_s=300.0,
    ),
    Row(
        "start",
        ("start",),
        (*_lower("fresh_update_s", "warm_update_s", "replacement_s", unit="s"), *_lower("start_ratio", "pss_bytes")),
        expected_s=15.0,
        in_short=True,
    ),
    Row(
        "scale",
        ("scale",),
        (*_lower("scale_cpu_s", unit="s"), *_lower("sizes.2.messages_to_driver", "sizes.2.closure_bytes")),
        repeats=2,
        expected_s=210.0,
    ),
    Row("step", ("step",), _lower("attach_ratio", "pull_over_memory"), repeats=2, expected_s=175.0, in_short=True),
    Row(
        "step on a GPU",
        ("step", "--device", "cuda", "--bf16", "--seconds", "10"),
        _lower("attach_ratio", "pull_over_memory"),
        expected_s=45.0,
    ),
    Row(
        "pause on a GPU",
        ("pause", "--device", "cuda", "--bf16", "--turns", "8"),
        _lower("nets.0.lost_share", "nets.1.pause_share", "nets.2.lost_share"),
        expected_s=190.0,
    ),
    *(
        Row(
            f"pause, {agents} agents on a GPU",
            ("pause", "--device", "cuda", "--bf16", "--turns", "3", "--model", "resnet34", "--agents", str(agents)),
            (*_lower("lost_share"), *_higher("steps_ratio")),
            expected_s=50.0,
        )
        for agents in (2, 4)
    ),
    Row(
        "data",
        ("data",),
        (
            *_higher("stream_ratio", "imagefolder_ratio"),
            *_higher("stream_images_s", "memory_images_s", unit="1/s"),
            *_lower("peak_over_data"),
        ),
        repeats=2,
        expected_s=120.0,
    ),
    Row(
        "sim",
        ("sim",),
        (*_higher("schedules_per_minute", unit="1/s"), *_lower("cpu_ms_per_schedule", unit="s")),
        expected_s=31.0,
        in_short=True,
    ),
    Row(
        "compare",
        ("compare",),
        _higher("mlp_updates_per_s", "convnet_updates_per_s", "simulated_updates_per_s", unit="1/s"),
        repeats=2,
        expected_s=28.0,
        in_short=True,
    ),
    Row(  # one measurement: equal code and torch give equal figures
        "codec",
        ("codec",),
        _lower("bf16_updates_ratio", "int8_updates_ratio", "int4_updates_ratio"),
        repeats=1,
        limit_s=3600.0,
        expected_s=140.0,
    ),
    Row("reads", ("reads",), _higher("reads_ratio"), expected_s=12.0),
    Row(
        "backup",
        ("backup",),
        (*_lower("backup_s_per_100mib", unit="s"), *_higher("cycle_rate_ratio")),
        repeats=2,
        expected_s=53.0,
    ),
    Row("submit", ("submit",), (*_lower("submit_ratio"), *_lower("first_step_s", unit="s")), repeats=2, expected_s=120.0),
    Row(
        "peers",
        (
            "peers",
            "--shape",
            "100mbit",
            "--ratio",
            "0.59",
            "--updates",
            "500",
            "--lr",
            "0.002",
            "--seeds",
            "1",
            "--peer",
            "ddp",
            "--peer",
            "default",
        ),
        _higher("table.1.faster_than_ddp"),
        repeats=2,
        limit_s=3600.0,
        expected_s=300.0,
    ),
)

SHORT_REPEATS = 2


def on_gpu() -> tuple[Row, ...]:
    """What a GPU and a Python with torch are enough for, once: such machines are lent by the minute."""
    return tuple(replace(row, repeats=1) for row in ROWS if "cuda" in row.words)


def short() -> tuple[Row, ...]:
    """The short form: the same lines, so that they compare with those of a whole run, and fewer of them."""
    return tuple(replace(row, repeats=SHORT_REPEATS) for row in ROWS if row.in_short)
