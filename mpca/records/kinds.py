"""One dataclass a kind of record. A record is a line of ``records.jsonl``: its fields, its `kind`, and `t`.

Every time is in seconds since the run began. Maps by agent have the agent's number as key, which JSON makes text. A float
that is not finite (a diverged loss) is written as null, since JSON has no such number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from mpca.formats import RECORDS, check_format
from mpca.records.shapes import misfit

__all__ = [
    "KINDS",
    "STAGES",
    "AgentRecord",
    "BackupRecord",
    "BeginRecord",
    "CycleRecord",
    "EndRecord",
    "EvaluationRecord",
    "EvaluatorRecord",
    "GapRecord",
    "PauseRecord",
    "Record",
    "RunRecord",
    "from_json",
    "make",
    "plain",
    "to_json",
]


@dataclass(frozen=True)
class Record:
    """Base of all records."""

    kind: ClassVar[str]
    _optional: ClassVar[tuple[str, ...]] = ()  # left out of the line when there is nothing to say

    t: float  # when it was written


@dataclass(frozen=True)
class RunRecord(Record):
    """An attempt of a run began; the first line of each attempt."""

    kind: ClassVar[str] = "run"

    name: str
    method: str
    num_agents: int
    seed: int
    shards: int
    phases: int
    target_error: float = 0.0  # 0: none was set
    attempt: int = 1
    resumed_from: str | None = None  # path of the backup
    versions: dict[str, str] = field(default_factory=dict)
    format: int = RECORDS


@dataclass(frozen=True)
class BeginRecord(Record):
    """Training began in this attempt: all agents of the start had taken their first update, or `start_timeout` was over.

    The zero of `max_time`, of the summary's seconds and of the report.
    """

    kind: ClassVar[str] = "begin"

    agents: int  # that trained
    trained: float = 0.0  # seconds of training of earlier attempts


@dataclass(frozen=True)
class AgentRecord(Record):
    """Something befell an agent. One `started` or `replaced` for each incarnation."""

    kind: ClassVar[str] = "agent"
    _optional: ClassVar[tuple[str, ...]] = ("reason",)

    event: str  # "started", "lost", "rediscovered", "replaced", "silent", "finished"
    index: int
    incarnation: int
    host: str
    executor_id: str  # Spark's id
    pid: int
    reason: str | None = None


@dataclass(frozen=True)
class CycleRecord(Record):
    """The ledger: one line a cycle, also the oracle of the tests."""

    kind: ClassVar[str] = "cycle"

    cycle: int
    shard: int  # the one that was reduced
    contributors: dict[int, dict[str, int]]  # agent -> {"incarnation", "tau", "crc"}
    left_out: dict[int, str]  # agent -> reason
    alpha: float  # that goes with the joint state that this exchange made; agents pull more at the beginning
    beta: float
    gamma: float
    stages: dict[str, dict[str, float]]  # "reduce", "prepare", "broadcast" -> {"shard", "start", "end"}
    # "driver_in", "driver_out"; "in", "out": sums over executors; of the data set, which agents read beside the exchange:
    # "data_read" from HDFS since the record before, and "data_remote", which of it came from another host.
    bytes: dict[str, int]
    submissions: int = 1  # jobs of this cycle; more than planned: resubmitted without a lost executor
    pauses: dict[int, list[float]] = field(default_factory=dict)  # agent -> [start, end] of its interruption


@dataclass(frozen=True)
class EvaluationRecord(Record):
    """The joint model of `cycle` was evaluated; never the extrapolated one."""

    kind: ClassVar[str] = "evaluation"

    cycle: int
    seconds: float  # that the evaluation took
    error: float | None  # share of wrong answers, 0 to 1
    loss: float | None


@dataclass(frozen=True)
class EvaluatorRecord(Record):
    """The evaluator's process ended: it was started again, or nothing is evaluated any more in this attempt."""

    kind: ClassVar[str] = "evaluator"

    event: str  # "restarted", "stopped"
    cycle: int | None  # whose evaluation was lost
    reason: str


@dataclass(frozen=True)
class BackupRecord(Record):
    """A backup was written, or could not be."""

    kind: ClassVar[str] = "backup"

    path: str
    cycle: int
    bytes: int
    seconds: float  # that writing it took
    ok: bool
    reason: str | None = None


@dataclass(frozen=True)
class PauseRecord(Record):
    """Fewer agents than `min_agents`: written when the pause begins (`end` null) and again when it ends."""

    kind: ClassVar[str] = "pause"

    start: float
    end: float | None
    reason: str


@dataclass(frozen=True)
class GapRecord(Record):
    """Records are missing here: the run folder took none for so long that they had to be dropped."""

    kind: ClassVar[str] = "gap"

    count: int
    start: float  # `t` of the first one that is missing
    end: float  # and of the last one
    reason: str


@dataclass(frozen=True)
class EndRecord(Record):
    """The last line of an attempt that could still write it."""

    kind: ClassVar[str] = "end"

    status: str  # one of summary.STATUSES
    reason: str


#: Value of `kind` -> class.
KINDS: dict[str, type[Record]] = {
    cls.kind: cls
    for cls in (
        RunRecord,
        BeginRecord,
        AgentRecord,
        CycleRecord,
        EvaluationRecord,
        EvaluatorRecord,
        BackupRecord,
        PauseRecord,
        GapRecord,
        EndRecord,
    )
}
#: Of a cycle, in the order of a refresh.
STAGES = ("reduce", "prepare", "broadcast")
_BY_AGENT = ("contributors", "left_out", "pauses")


def make(kind: str, t: float, values: Mapping[str, Any]) -> Record:
    """A record of that kind from its fields.

    Raises:
        ValueError: no such kind.
        TypeError: the fields are not those of the kind.

    Example:
        >>> make("end", 12.5, {"status": "reached", "reason": "error 0.024 <= 0.025"})
        EndRecord(t=12.5, status='reached', reason='error 0.024 <= 0.025')
    """
    if kind not in KINDS:
        raise ValueError(f"no such kind of record: {kind!r}, known: {', '.join(KINDS)}")
    return KINDS[kind](t=t, **values)


def to_json(record: Record) -> dict[str, Any]:
    """What the record's line says: `kind`, `t`, then the fields in the order of the class."""
    line: dict[str, Any] = {"kind": record.kind}
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name not in record._optional or value not in (None, ""):
            line[one.name] = plain(value)
    return line


def from_json(line: Mapping[str, Any]) -> Record:
    """The record that a line says; fields of a later version are passed over.

    Raises:
        ConfigError: it begins an attempt whose records have another format.
        ValueError: it is no map, there is no such kind, or a field is missing or of another type.
    """
    if not isinstance(line, Mapping):
        raise ValueError("it is not a map")
    values = dict(line)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"no such kind of record: {kind!r}, known: {', '.join(KINDS)}")
    if kind == RunRecord.kind:
        check_format("the run's records.jsonl", values.get("format"), RECORDS)
    if type(values.get("t")) not in (int, float):
        raise ValueError(f"not a time: t={values.get('t')!r}")
    known = {one.name for one in fields(KINDS[kind])}
    for name in _BY_AGENT:
        if isinstance(values.get(name), dict):
            values[name] = {int(agent): value for agent, value in values[name].items()}
    if isinstance(values.get("stages"), dict):  # a stage that a cycle has not: older versions wrote it as null
        values["stages"] = {name: stage for name, stage in values["stages"].items() if stage}
    wrong = misfit(KINDS[kind], values) or (_odd_cycle(values) if kind == CycleRecord.kind else None)
    if wrong:
        raise ValueError(f"not a {kind} record: {wrong}")
    try:
        return KINDS[kind](**{name: value for name, value in values.items() if name in known})
    except TypeError as error:
        raise ValueError(f"not a whole {kind} record: {error}") from None


def _odd_cycle(values: Mapping[str, Any]) -> str | None:
    """What of the maps within a cycle's record lacks what those who read it take from there."""
    inner = [("contributors", ("incarnation", "tau")), ("stages", ("shard", "start", "end"))]
    for name, keys in inner:
        for of, given in values.get(name, {}).items():
            if any(key not in given for key in keys) or (name == "stages" and of not in STAGES):
                return f"{name}: {of}: {given}"[:100]
    return next((f"pauses: {of}: {pair}" for of, pair in values.get("pauses", {}).items() if len(pair) != 2), None)


def plain(value: Any) -> Any:
    """A value as JSON can say it: keys as text, floats that are not finite as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value
