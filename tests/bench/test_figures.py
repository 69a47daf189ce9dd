"""The arithmetic of the figures, on marks that were made up so that each answer is known."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from mpca.cli.bench.figures import (
    KEYS,
    LAST_SMALL,
    LEAST_CYCLES,
    SKIP_BLOCKING,
    SKIP_OVERLAPPED,
    SKIP_SMALL,
    figures,
    overlap_share,
)
from mpca.cli.bench.run.windows import Window, step_times
from mpca.errors import MpcaError

M = 1000


def marks(count: int, every_s: float, received: int = 0, sent: int = 0, idle: int = 50) -> list[dict[str, Any]]:
    """Cycles at even distances, each with so many bytes of the driver's and so many idle ticks of 100."""
    stages = {"reduce": {"start": 0.0, "end": 2.0}, "broadcast": {"start": 1.0, "end": 2.5}}
    return [
        {
            "cycle": n,
            "at": 10.0 + n * every_s,
            "received": n * received,
            "sent": n * sent,
            "ticks": {"idle": n * idle, "total": n * 100},
            "cpu_s": {
                "executor": [3.0 + 2 * n, 7.0 + 4 * n],
                "driver_jvm": [n],
                "driver_python": [0.5 * n],
                "agent": [n / 4] * 2,
            },
            "fields": {"stages": stages},
        }
        for n in range(count)
    ]


def raw(idle: int = 50) -> dict[str, Any]:
    return {
        "small": {"marks": marks(SKIP_SMALL + 5, 0.04), "rss_peak": [1, 2], "rss_end": [200 * M, 600 * M], "jvm_held": 50},
        "blocking": {"marks": marks(SKIP_BLOCKING + 3, 6.0, idle=idle), "rss_peak": [206 * M, 603 * M], "rss_end": []},
        "overlapped": {
            "marks": marks(SKIP_OVERLAPPED + 7, 1.5, 400, 350, idle),
            "rss_peak": [203 * M, 601 * M],
            "rss_end": [],
            "jvm_held": 50 + M // 2,
            "jvms": [[20.0, 8.0], [30.0, 9.0]],
        },
        "jobs": {"wall_s": 0.02, "cpu_s": 0.03},
    }


LINKS = {
    "b_s": 2.0,
    "stream_mib_s": 1.0,
    "congestion": "cubic",
    "tcp_cycle_s": [1.4],
    "tcp_period_over_b": 2.1,
    "workers": ["w0"],
    "ports": [(t, {"driver": (0, 0), "w0": (int(t * (1 << 19)), 0)}) for t in (0.0, 17.5, 19.5, 26.5, 40.0)],
}


def test_every_figure_is_a_difference_between_cycles() -> None:
    result = figures(raw(), LINKS, M)
    assert result["valid"]
    assert result["kappa"] == pytest.approx(6.0 / 2.0)
    assert result["period_over_b"] == pytest.approx(3 * 1.5 / 2.0)
    assert result["period_over_tcp"] == pytest.approx(2.25 / 2.1)
    assert result["fixed_s"] == pytest.approx(0.04)
    assert result["driver_in_over_m"] == pytest.approx(3 * 400 / M)  # three cycles refresh the model once
    assert result["driver_out_over_m"] == pytest.approx(3 * 350 / M)
    assert result["driver_rss_over_m"] == pytest.approx(4.0)
    assert result["driver_held_over_m"] == pytest.approx(3.5)  # what Python's has grown by, and the JVM's without garbage
    assert result["driver_rss_parts_over_m"] == {"overlapped": [3.0, 1.0], "blocking": [6.0, 3.0]}  # Python, JVM
    assert result["fixed_cpu_s"] == pytest.approx(2 + 4 + 1 + 0.5 + 0.25 * 2)
    assert (result["job_s"], result["job_cpu_s"]) == (0.02, 0.03)
    assert result["compilers_share"] == pytest.approx(0.1)
    refresh_gb = 1 / 3 * M / 1e9  # by one cycle
    assert result["executor_cpu_s_per_gb"] == pytest.approx(3.0 / refresh_gb)  # the mean of two, which use 2 and 4 a cycle
    assert result["driver_jvm_cpu_s_per_gb"] == pytest.approx(1.0 / refresh_gb)
    assert result["driver_python_cpu_s_per_gb"] == pytest.approx(0.5 / refresh_gb)
    assert result["agent_cpu_s_per_gb"] == pytest.approx(0.25 / refresh_gb)
    assert result["links_busy"]["executors_in"] == pytest.approx(0.5)  # half a MiB/s of one


def test_only_the_last_cycles_of_30_kib_count_since_jvms_compile_before() -> None:
    slow, fast = marks(SKIP_SMALL + 2 * LAST_SMALL, 0.2), marks(LAST_SMALL + 1, 0.05)
    for one in fast:
        one["at"] += slow[-1]["at"]
        one["cpu_s"] = {role: [s / 2 for s in seconds] for role, seconds in one["cpu_s"].items()}
    result = figures(raw() | {"small": raw()["small"] | {"marks": slow + fast}}, {}, M)
    assert result["small_cycle_s"] == pytest.approx([0.05, 0.05, 0.05])
    assert result["fixed_cpu_s"] == pytest.approx((2 + 4 + 1 + 0.5 + 0.25 * 2) / 2)


def test_a_busy_machine_makes_the_figures_invalid_and_says_why() -> None:
    result = figures(raw(idle=10), LINKS, M)
    assert not result["valid"]
    assert result["reason"] == "CPU idle share 0.10 is below 0.20: the machine was the limit, not the exchange"


def test_loopback_has_all_keys_and_counts_for_nothing() -> None:
    result = figures(raw(), {}, M)
    assert set(KEYS) <= set(result)
    assert not result["valid"]
    assert result["kappa"] is None
    assert result["fixed_s"] == pytest.approx(0.04)


def test_a_run_that_was_too_short_is_no_figure() -> None:
    short = raw() | {"blocking": {"marks": marks(SKIP_BLOCKING + 1, 6.0), "rss_peak": [], "rss_end": []}}
    with pytest.raises(MpcaError, match="too few cycles"):
        figures(short, LINKS, M)


def test_the_fewest_cycles_that_may_be_asked_for_are_enough() -> None:
    for cycles, enough in ((LEAST_CYCLES, True), (LEAST_CYCLES - 2, False)):
        asked = raw() | {"overlapped": raw()["overlapped"] | {"marks": marks(cycles, 1.5)}}
        with contextlib.nullcontext() if enough else pytest.raises(MpcaError, match="too few cycles"):
            assert figures(asked, {}, M)["executor_cpu_s_per_gb"] > 0


@pytest.mark.parametrize(
    ("reduce", "broadcast", "share"),
    [((0, 2), (1, 2.5), 1 / 1.5), ((0, 2), (2, 3), 0.0), ((0, 4), (1, 2), 1.0), ((1, 2), (0, 4), 1.0), ((0, 1), (3, 4), 0.0)],
)
def test_overlap_is_a_share_of_the_shorter_stage(reduce: tuple, broadcast: tuple, share: float) -> None:
    stages = {name: {"start": start, "end": end} for name, (start, end) in {"reduce": reduce, "broadcast": broadcast}.items()}
    assert overlap_share(stages) == pytest.approx(share)


def test_only_steps_that_lie_in_a_window_as_a_whole_are_counted() -> None:
    steps = [(float(t), 0.5 * t) for t in range(8)]
    windows = [Window(True, 0.5, 3.0), Window(False, 3.5, 6.2)]
    assert step_times(steps, windows, True) == ([1.0, 1.0], [0.5, 0.5])
    assert step_times(steps, windows, False) == ([1.0, 1.0], [0.5, 0.5])
    with pytest.raises(MpcaError, match="no step lies"):
        step_times(steps[:1], windows, True)
