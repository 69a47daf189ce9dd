"""Computes the figures of `mpca bench exchange` from marks: pure arithmetic on the numbers of driver, plain TCP and switch.

Every figure is a difference between two marks of one run, so it has no start and no end of a run in it. b = M/B, where M is the
model's size and B the rate of one TCP stream on the same links. Bytes are all that an interface counted, with control messages
and headers.
"""

from __future__ import annotations

import os
import statistics
from itertools import pairwise
from typing import Any

from mpca.cli.bench.load import LEAST_IDLE, Ticks, cpu_idle_share, invalid_reason
from mpca.errors import MpcaError

__all__ = ["KEYS", "LAST_SMALL", "LEAST_CYCLES", "SKIP_BLOCKING", "SKIP_OVERLAPPED", "SKIP_SMALL", "figures", "overlap_share"]

#: Cycles before the first mark of a figure: the pipeline fills, and with a codec each shard goes out in full once.
SKIP_SMALL, SKIP_BLOCKING, SKIP_OVERLAPPED = 30, 1, 6
#: Of the overlapped run: the second half of what counts is a cycle at least.
LEAST_CYCLES = SKIP_OVERLAPPED + 3
#: Cycles at the end of the small run that count: before, the JVMs compile.
LAST_SMALL = 300
#: Shards of the overlapped run.
SHARDS = 3
#: Keys of every result, whatever the options; null if loopback has no such figure.
KEYS = (
    "kappa",
    "period_over_b",
    "fixed_s",
    "fixed_cpu_s",
    "job_s",
    "job_cpu_s",
    "compilers_share",
    "driver_in_over_m",
    "driver_out_over_m",
    "period_over_tcp",
    "driver_rss_over_m",
    "driver_held_over_m",
    "executor_cpu_s_per_gb",
    "driver_jvm_cpu_s_per_gb",
    "driver_python_cpu_s_per_gb",
    "agent_cpu_s_per_gb",
)


def figures(raw: dict[str, Any], links: dict[str, Any], size_bytes: int) -> dict[str, Any]:
    """All figures of one call.

    Args:
        raw: what `exchange_driver` measured, by case: marks of its cycles, and memory in bytes; of `jobs` seconds.
        links: what plain TCP and the switch measured; empty on loopback.
        size_bytes: M.
    """
    small, blocking, overlapped = (
        raw[name]["marks"][skip:]
        for name, skip in (("small", SKIP_SMALL), ("blocking", SKIP_BLOCKING), ("overlapped", SKIP_OVERLAPPED))
    )
    small = small[-1 - LAST_SMALL :]
    small_s, blocking_s, cycle_s = _durations(small), _durations(blocking), _durations(overlapped)
    period_s = SHARDS * statistics.fmean(cycle_s)
    refreshes = len(cycle_s) / SHARDS
    idle = {"blocking": _idle(blocking), "overlapped": _idle(overlapped)}
    reason = invalid_reason(min(idle.values()))
    b_s = links.get("b_s")
    grown = {
        name: [peak - start for peak, start in zip(raw[name]["rss_peak"], raw["small"]["rss_end"], strict=True)]
        for name in ("overlapped", "blocking")
    }
    moved = {way: overlapped[-1][way] - overlapped[0][way] for way in ("received", "sent")}
    return {
        "valid": not reason and b_s is not None,
        "reason": reason if b_s is not None else "loopback",
        "kappa": b_s and statistics.median(blocking_s) / b_s,
        "period_over_b": b_s and period_s / b_s,
        "fixed_s": statistics.median(small_s),
        "driver_in_over_m": b_s and moved["received"] / refreshes / size_bytes,
        "driver_out_over_m": b_s and moved["sent"] / refreshes / size_bytes,
        "period_over_tcp": b_s and period_s / b_s / links["tcp_period_over_b"],
        "driver_rss_over_m": sum(grown["overlapped"]) / size_bytes,
        "driver_held_over_m": (grown["overlapped"][0] + raw["overlapped"]["jvm_held"] - raw["small"]["jvm_held"]) / size_bytes,
        **_cpu_per_gb(overlapped[len(overlapped) // 2 :], size_bytes),
        "fixed_cpu_s": sum(sum(seconds) for seconds in _cpu_s(small).values()) / len(small_s),
        "job_s": raw["jobs"]["wall_s"],
        "job_cpu_s": raw["jobs"]["cpu_s"],
        "compilers_share": _compilers_share(raw["overlapped"]["jvms"]),
        "tcp_period_over_b": links.get("tcp_period_over_b"),
        "b_s": b_s,
        "stream_mib_s": links.get("stream_mib_s"),
        "congestion": links.get("congestion"),
        "blocking_s": blocking_s,
        "cycle_s": cycle_s,
        "small_cycle_s": [min(small_s), statistics.median(small_s), max(small_s)],
        "tcp_cycle_s": links.get("tcp_cycle_s"),
        "driver_rss_parts_over_m": {name: [part / size_bytes for part in parts] for name, parts in grown.items()},
        "overlap_share": statistics.median(overlap_share(mark["fields"]["stages"]) for mark in overlapped[1:]),
        "stages_s": _stages(overlapped[1:]),
        "cpu_idle_share": idle,
        "links_busy": _busy(links, overlapped) if links else None,
        "least_idle": LEAST_IDLE,
        "cores": os.cpu_count(),
    }


def overlap_share(stages: dict[str, dict[str, float]]) -> float:
    """How much of one cycle's reduce and broadcast overlaps, as a share of the shorter of the two, in [0, 1]."""
    reduce, broadcast = stages.get("reduce"), stages.get("broadcast")
    if reduce is None or broadcast is None:
        return 0.0
    common = min(reduce["end"], broadcast["end"]) - max(reduce["start"], broadcast["start"])
    shorter = min(one["end"] - one["start"] for one in (reduce, broadcast))
    return max(0.0, common) / shorter if shorter > 0 else 0.0


def _durations(marks: list[dict[str, Any]]) -> list[float]:
    if len(marks) < 2:
        raise MpcaError("too few cycles ended for a figure")
    return [b["at"] - a["at"] for a, b in pairwise(marks)]


def _idle(marks: list[dict[str, Any]]) -> float:
    return cpu_idle_share(Ticks(**marks[0]["ticks"]), Ticks(**marks[-1]["ticks"]))


def _cpu_s(marks: list[dict[str, Any]]) -> dict[str, list[float]]:
    """CPU seconds of each process, by role, between the first mark and the last one."""
    first, last = marks[0]["cpu_s"], marks[-1]["cpu_s"]
    return {role: [b - a for a, b in zip(first[role], last[role], strict=True)] for role in last if last[role]}


def _cpu_per_gb(marks: list[dict[str, Any]], size_bytes: int) -> dict[str, float]:
    """CPU seconds of one process of each role, for each GB of the model that is refreshed."""
    gb = (len(marks) - 1) / SHARDS * size_bytes / 1e9
    return {f"{role}_cpu_s_per_gb": statistics.fmean(seconds) / gb for role, seconds in _cpu_s(marks).items()}


def _compilers_share(jvms: list[list[float]]) -> float:
    """What of the CPU of all JVMs their compilers took, as they do no more once a run has lasted for minutes."""
    used, compiled = (end - start for start, end in zip(*jvms, strict=True))
    return max(0.0, compiled / used) if used > 0 else 0.0  # compilers that have ended in between are not counted


def _stages(marks: list[dict[str, Any]]) -> dict[str, float]:
    """Median seconds of each stage, which show the stage that a cycle waits for."""
    seconds: dict[str, list[float]] = {}
    for mark in marks:
        for name, stage in mark["fields"]["stages"].items():
            seconds.setdefault(name, []).append(stage["end"] - stage["start"])
    return {name: statistics.median(values) for name, values in seconds.items()}


def _busy(links: dict[str, Any], marks: list[dict[str, Any]]) -> dict[str, float]:
    """Average share of B that links carried while the overlapped run was steady, counted at the switch."""
    inside = [one for one in links["ports"] if marks[0]["at"] <= one[0] <= marks[-1]["at"]]
    if len(inside) < 2:
        return {}
    (t0, first), (t1, last) = inside[0], inside[-1]
    room = (t1 - t0) * links["stream_mib_s"] * (1 << 20)
    workers = links["workers"]
    return {
        "driver_in": (last["driver"][0] - first["driver"][0]) / room,
        "driver_out": (last["driver"][1] - first["driver"][1]) / room,
        "executors_in": statistics.fmean((last[one][0] - first[one][0]) / room for one in workers),
        "executors_out": statistics.fmean((last[one][1] - first[one][1]) / room for one in workers),
    }
