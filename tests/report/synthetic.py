"""Records of a run that never was, in the form that README tells: four agents, three shards, one agent killed and replaced."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

__all__ = ["KILLED_AT", "synthetic_records", "write_run"]

KILLED_AT = 9.3
_CYCLE_S = 0.21
_HOST = "127.0.0.1"


def _agent(t: float, event: str, index: int, incarnation: int, **more: Any) -> dict[str, Any]:
    place = {"host": _HOST, "executor_id": str(index), "pid": 4000 + 10 * index + incarnation}
    return {"kind": "agent", "t": t, "event": event, "index": index, "incarnation": incarnation, **place, **more}


def synthetic_records(cycles: int = 90, data: dict[str, int] | None = None) -> list[dict[str, Any]]:
    """Oldest first. Agent 2 dies at KILLED_AT and comes again 2.4 s later on executor 5.

    `data` is what each cycle's `bytes` say of the data set.
    """
    records: list[dict[str, Any]] = [
        {
            "kind": "run",
            "t": 0.0,
            "name": "synthetic",
            "method": "mpca",
            "num_agents": 4,
            "seed": 0,
            "shards": 3,
            "phases": 3,
            "target_error": 0.025,
            "format": 1,
        }
    ]
    records += [_agent(6.0 + 0.1 * i, "started", i, 0) for i in range(4)]
    for n in range(cycles):
        start = 6.5 + n * _CYCLE_S
        alive = dict.fromkeys(range(4), 0)
        left_out = {}
        if KILLED_AT <= start < KILLED_AT + 2.4:
            del alive[2]
            left_out = {"2": "agent died: exit_code=137"} if start < KILLED_AT + _CYCLE_S else {}
        elif start >= KILLED_AT + 2.4:
            alive[2] = 1
        stages = {"reduce": {"shard": n % 3, "start": start, "end": start + 0.13 + 0.02 * math.sin(n)}}
        if n >= 1:
            stages["prepare"] = {"shard": (n - 1) % 3, "start": start + 0.01, "end": start + 0.03}
        if n >= 2:
            stages["broadcast"] = {"shard": (n - 2) % 3, "start": start + 0.03, "end": start + 0.19}
        records.append(
            {
                "kind": "cycle",
                "t": start + _CYCLE_S - 0.005,
                "cycle": n,
                "shard": n % 3,
                "contributors": {
                    str(i): {"incarnation": e, "tau": 60 + (7 * n + 13 * i) % 24, "crc": 1000 * n + i} for i, e in alive.items()
                },
                "left_out": left_out,
                "alpha": 0.05,
                "beta": 0.95,
                "gamma": 0.3,
                "stages": stages,
                "pauses": {str(i): [start, start + 0.0008 + 0.0002 * ((n + i) % 5)] for i in alive},
                "bytes": {"driver_in": 80_000, "driver_out": 82_000, "in": 310_000, "out": 309_000, **(data or {})},
            }
        )
    for k in range(12):
        t = 7.0 + 1.6 * k
        error = 0.9 * math.exp(-0.35 * k) + 0.015
        cycle = int((t - 6.5) / _CYCLE_S)
        records.append({"kind": "evaluation", "t": t, "cycle": cycle, "seconds": 0.02, "error": error, "loss": 4 * error})
    records.append(_agent(KILLED_AT, "lost", 2, 0, reason="killed by signal 9"))
    records.append({**_agent(KILLED_AT + 2.4, "replaced", 2, 1), "executor_id": "5"})
    records.append({"kind": "pause", "t": 17.0, "start": 17.0, "end": None, "reason": "2/4 agents, min_agents=3"})
    records.append({"kind": "pause", "t": 18.5, "start": 17.0, "end": 18.5, "reason": "2/4 agents, min_agents=3"})
    records.append(
        {"kind": "backup", "t": 20.0, "path": "backups/cycle-60", "cycle": 60, "bytes": 240_000, "seconds": 0.04, "ok": True}
    )
    records.sort(key=lambda record: record["t"])
    end = {"kind": "end", "t": 26.0, "status": "reached", "reason": "error 0.0250 <= target 0.0250"}
    return [*records, end]


def write_run(folder: Path, records: list[dict[str, Any]], summary: dict[str, Any] | None = None, tail: str = "") -> Path:
    """A run folder with these records; `tail` is what a run that was cut off left behind them."""
    folder.mkdir(parents=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "records.jsonl").write_text(lines + tail, encoding="utf-8")
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder
