"""One dataclass for each kind of record. A record is a line of ``records.jsonl``: its `kind`, `t`, and its fields.

All times are in seconds since the run began. Maps by agent have the agent's number as key, which becomes text in JSON. A
non-finite float (a diverged loss) is written as null, since JSON has no such number.
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
    "ExchangeRecord",
    "GapRecord",
    "MetricsRecord",
    "PauseRecord",
    "Record",
    "RunRecord",
    "TrackerRecord",
    "from_json",
    "make",
    "plain",
    "to_json",
]


@dataclass(frozen=True)
class Record:
    """Base of all records."""

    kind: ClassVar[str]
    _optional: ClassVar[tuple[str, ...]] = ()  # fields that the line omits when they are empty

    t: float  # when the record was written


@dataclass(frozen=True)
class RunRecord(Record):
    """An attempt of a run began; the first line of each attempt."""

    kind: ClassVar[str] = "run"
    _optional: ClassVar[tuple[str, ...]] = ("targets",)

    name: str
    method: str
    num_agents: int
    seed: int
    shards: int  # that it begins with; `BeginRecord` has those that it decided on
    phases: int
    target_error: float = 0.0  # 0: none was set
    targets: list[str] = field(default_factory=list)  # by other metrics, such as "accuracy >= 0.97"
    attempt: int = 1
    resumed_from: str | None = None  # path of the backup
    versions: dict[str, str] = field(default_factory=dict)
    format: int = RECORDS


@dataclass(frozen=True)
class BeginRecord(Record):
    """Training began in this attempt: all first agents had made their first update, or `start_timeout` was over.

    `max_time`, the summary's seconds and the report count from here.
    """

    kind: ClassVar[str] = "begin"

    _optional: ClassVar[tuple[str, ...]] = ("shards", "period_s", "fixed_s", "wire_s")

    agents: int  # number of agents that trained
    trained: float = 0.0  # seconds of training of earlier attempts
    # Of a run that has decided its number of shards, seconds as measured when x_0 was read:
    shards: int | None = None
    period_s: float | None = None  # of the whole model: shards x fixed_s + wire_s
    fixed_s: float | None = None  # of a cycle that moves nothing
    wire_s: float | None = None  # of the whole model on the wire


@dataclass(frozen=True)
class AgentRecord(Record):
    """An event of an agent. Each incarnation has one `started` or `replaced`."""

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
    """One cycle. Tests compare these records too."""

    kind: ClassVar[str] = "cycle"

    cycle: int
    shard: int  # the shard that was reduced
    contributors: dict[int, dict[str, int]]  # agent -> {"incarnation", "tau", "crc"}
    left_out: dict[int, str]  # agent -> reason
    alpha: float  # for the joint state that this exchange made; agents pull more at the beginning
    beta: float
    gamma: float
    stages: dict[str, dict[str, float]]  # "reduce", "prepare", "broadcast" -> {"shard", "start", "end"}
    # "driver_in", "driver_out"; "in", "out": sums over executors. Bytes of the data set, beside the exchange: "data_read" from
    # HDFS since the last record, and "data_remote", its part from other hosts.
    bytes: dict[str, int]
    submissions: int = 1  # jobs of this cycle; more than planned: submitted again without a lost executor
    pauses: dict[int, list[float]] = field(default_factory=dict)  # agent -> [start, end] of its interruption


@dataclass(frozen=True)
class ExchangeRecord(Record):
    """One exchange of one agent that asked for it by itself.

    A run has these in place of cycles, and `cycle` in its other records is a number of exchanges.
    """

    kind: ClassVar[str] = "exchange"
    _optional: ClassVar[tuple[str, ...]] = ("reason",)

    cycle: int  # number of the exchange, over all agents
    shard: int
    agent: int
    incarnation: int
    number: int  # exchange of this incarnation, from 1
    tau: int  # updates of the agent since its last exchange of this shard
    staleness: int  # exchanges of the shard since the joint state that the agent had taken before
    version: int  # of the joint state after it
    share: float  # of the way that agent and joint model moved towards each other, or by which what came was scaled
    wait: float  # seconds: from the question to the arrival of what the agent sent
    served: float  # seconds: from then to the answer
    bytes: dict[str, int]  # "driver_in", "driver_out"; "data_read" and "data_remote" as in a cycle
    reason: str = ""  # why nothing was taken in; then no exchange was counted


@dataclass(frozen=True)
class EvaluationRecord(Record):
    """The joint model of `cycle` was evaluated; never the extrapolated one."""

    kind: ClassVar[str] = "evaluation"
    _optional: ClassVar[tuple[str, ...]] = ("metrics",)

    cycle: int
    seconds: float  # duration of the evaluation
    error: float | None  # share of wrong answers, 0 to 1
    loss: float | None
    metrics: dict[str, float | None] = field(default_factory=dict)  # the other numbers that the evaluation returned


@dataclass(frozen=True)
class MetricsRecord(Record):
    """What an agent gave to `mpca.log`; at most one a second and agent, and one more at its end."""

    kind: ClassVar[str] = "metrics"
    _optional: ClassVar[tuple[str, ...]] = ("samples",)

    agent: int
    incarnation: int
    steps: int  # optimiser updates of this incarnation
    metrics: dict[str, float | None]  # means since its record before
    samples: int | None = None  # of this incarnation, where they are counted


@dataclass(frozen=True)
class EvaluatorRecord(Record):
    """The evaluator's process ended. It was started again, or this attempt makes no more evaluations."""

    kind: ClassVar[str] = "evaluator"

    event: str  # "restarted", "stopped"
    cycle: int | None  # cycle whose evaluation was lost
    reason: str


@dataclass(frozen=True)
class TrackerRecord(Record):
    """A tracker of experiments has taken the run in. A later attempt goes on there."""

    kind: ClassVar[str] = "tracker"
    _optional: ClassVar[tuple[str, ...]] = ("url",)

    tracker: str  # "mlflow"
    run: str  # what the run is called there
    url: str = ""


@dataclass(frozen=True)
class BackupRecord(Record):
    """A backup was written, or could not be written."""

    kind: ClassVar[str] = "backup"

    path: str
    cycle: int
    bytes: int
    seconds: float  # duration of the writing
    ok: bool
    reason: str | None = None
    agents_s: float | None = None  # until the slowest executor had written what is its agent's own; None: it has none


@dataclass(frozen=True)
class PauseRecord(Record):
    """Fewer agents than `min_agents` live. Written when the pause begins (`end` null), and again when it ends."""

    kind: ClassVar[str] = "pause"

    start: float
    end: float | None
    reason: str


@dataclass(frozen=True)
class GapRecord(Record):
    """Records are missing here: the run folder could not be written for so long that they were dropped."""

    kind: ClassVar[str] = "gap"

    count: int
    start: float  # `t` of the first missing record
    end: float  # `t` of the last missing record
    reason: str


@dataclass(frozen=True)
class EndRecord(Record):
    """The end of an attempt; its last line, unless the attempt was killed."""

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
        ExchangeRecord,
        EvaluationRecord,
        MetricsRecord,
        EvaluatorRecord,
        TrackerRecord,
        BackupRecord,
        PauseRecord,
        GapRecord,
        EndRecord,
    )
}
#: The stages of a cycle, in the order in which one shard passes them.
STAGES = ("reduce", "prepare", "broadcast")
_BY_AGENT = ("contributors", "left_out", "pauses")


def make(kind: str, t: float, values: Mapping[str, Any]) -> Record:
    """Make a record of a kind.

    Args:
        kind: a key of `KINDS`.
        t: seconds since the run began.
        values: the other fields.

    Raises:
        ValueError: no such kind.
        TypeError: the kind has other fields.

    Example:
        >>> make("end", 12.5, {"status": "reached", "reason": "error 0.024 <= 0.025"})
        EndRecord(t=12.5, status='reached', reason='error 0.024 <= 0.025')
    """
    if kind not in KINDS:
        raise ValueError(f"no such kind of record: {kind!r}, known: {', '.join(KINDS)}")
    return KINDS[kind](t=t, **values)


def to_json(record: Record) -> dict[str, Any]:
    """The map of a record's line: `kind`, `t`, then the fields in the order of the class."""
    line: dict[str, Any] = {"kind": record.kind}
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name not in record._optional or value not in (None, "", [], {}):
            line[one.name] = plain(value)
    return line


def from_json(line: Mapping[str, Any]) -> Record:
    """The record of a line; fields of a later version are ignored.

    Raises:
        ConfigError: the line begins an attempt whose records have another format.
        ValueError: the line is no map, has an unknown kind, or a field is missing or of another type.
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
    if isinstance(values.get("stages"), dict):  # older versions wrote null for a stage that the cycle did not have
        values["stages"] = {name: stage for name, stage in values["stages"].items() if stage}
    wrong = misfit(KINDS[kind], values) or (_odd_cycle(values) if kind == CycleRecord.kind else None)
    if wrong:
        raise ValueError(f"not a {kind} record: {wrong}")
    try:
        return KINDS[kind](**{name: value for name, value in values.items() if name in known})
    except TypeError as error:
        raise ValueError(f"not a whole {kind} record: {error}") from None


def _odd_cycle(values: Mapping[str, Any]) -> str | None:
    """The first entry of a cycle's maps that lacks a key that readers need; None when all are complete."""
    inner = [("contributors", ("incarnation", "tau")), ("stages", ("shard", "start", "end"))]
    for name, keys in inner:
        for of, given in values.get(name, {}).items():
            if any(key not in given for key in keys) or (name == "stages" and of not in STAGES):
                return f"{name}: {of}: {given}"[:100]
    return next((f"pauses: {of}: {pair}" for of, pair in values.get("pauses", {}).items() if len(pair) != 2), None)


def plain(value: Any) -> Any:
    """A value for JSON: keys as text, non-finite floats as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value
