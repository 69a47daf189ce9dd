"""Turns records into plain lists of numbers, which the page draws and embeds, so that a program can read them.

All numbers come from the records; means are over the shown records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from mpca.records import STAGES, to_json
from mpca.report.curves import Curve, curves_of
from mpca.report.load import RunRecords

__all__ = ["STAGES", "AgentRow", "Bar", "Bytes", "Contribution", "Loss", "Point", "Series", "Wire", "extract"]

_BYTES = ("driver_in", "driver_out", "in", "out", "data_read", "data_remote")  # keys of a record, in the order of `Bytes`


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation of the joint model."""

    t: float  # seconds of training
    cycle: int
    error: float
    loss: float | None


@dataclass(frozen=True, slots=True)
class Bar:
    """One stage of one cycle, seconds of training."""

    cycle: int
    stage: str
    shard: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that one cycle moved; `fetched` and `sent` are sums over executors."""

    cycle: int
    seconds: float
    driver_in: int
    driver_out: int
    fetched: int
    sent: int
    data_read: int  # bytes of the data set that all agents read through HDFS since the last cycle
    data_remote: int  # the part of `data_read` from other hosts


@dataclass(frozen=True, slots=True)
class Wire:
    """Sums of `Bytes` after the first cycle: how exchange and data share the wire into the executors."""

    seconds: float  # from the first cycle's end to the last one's
    exchange: int
    data_remote: int
    data_read: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """One agent in one cycle: its tau, or why it was left out."""

    cycle: int
    shard: int
    agent: int
    incarnation: int | None
    tau: int | None
    pause_s: float | None  # seconds of the agent's interruption
    reason: str


@dataclass(frozen=True, slots=True)
class Loss:
    """An agent that was lost, and its replacement."""

    agent: int
    incarnation: int
    seconds: float
    host: str
    executor: str
    pid: int | None
    reason: str
    replaced_after_s: float | None
    replaced_on: str  # executor of the replacement; empty: none


@dataclass(frozen=True, slots=True)
class AgentRow:
    """All incarnations of one agent."""

    agent: int
    incarnations: int
    host: str
    executor: str
    exchanges: int
    left_out: int
    tau_mean: float | None
    tau_min: int | None
    tau_max: int | None
    pause_mean_s: float | None
    pause_max_s: float | None


@dataclass(frozen=True, slots=True)
class Series:
    curve: list[Point]
    metrics: list[Curve]
    bars: list[Bar]
    bytes: list[Bytes]
    wire: Wire | None  # None: fewer than two cycles
    contributions: list[Contribution]
    losses: list[Loss]
    agents: list[AgentRow]
    events: list[dict[str, Any]]
    evaluators: list[dict[str, Any]]  # ends of the process that evaluates
    pauses: list[dict[str, Any]]
    backups: list[dict[str, Any]]

    def to_dict(self, newest: int) -> dict[str, Any]:
        """For JSON. Of a longer list, the newest entries, and how many were ``left_out``."""
        held = {one.name: getattr(self, one.name) for one in fields(self) if isinstance(getattr(self, one.name), list)}
        long = {name: entries for name, entries in held.items() if len(entries) > newest}
        shown = replace(self, **{name: entries[-newest:] for name, entries in long.items()})
        return {**asdict(shown), "left_out": {name: len(entries) - newest for name, entries in long.items()}}


def extract(records: RunRecords) -> Series:
    """Everything that the page draws."""
    contributions = _contributions(records)
    moved = [Bytes(one.cycle, one.t, *(int(one.bytes.get(key, 0)) for key in _BYTES)) for one in records.cycles]
    return Series(
        curve=[Point(one.t, one.cycle, one.error, one.loss) for one in records.evaluations if one.error is not None],
        metrics=curves_of(records),
        bars=_bars(records),
        bytes=moved,
        wire=_wire(moved),
        contributions=contributions,
        losses=_losses(records),
        agents=_agents(records, contributions),
        events=[to_json(one) for one in records.agents],
        evaluators=[to_json(one) for one in records.evaluators],
        pauses=[to_json(one) for one in records.pauses],
        backups=[to_json(one) for one in records.backups],
    )


def _wire(moved: list[Bytes]) -> Wire | None:
    seconds = moved[-1].seconds - moved[0].seconds if moved else 0.0
    if seconds <= 0:
        return None
    later = moved[1:]
    sums = (sum(getattr(row, key) for row in later) for key in ("fetched", "data_remote", "data_read"))
    return Wire(seconds, *sums)


def _bars(records: RunRecords) -> list[Bar]:
    return [
        Bar(one.cycle, stage, int(spec["shard"]), spec["start"], spec["end"])
        for one in records.cycles
        for stage, spec in sorted(one.stages.items(), key=lambda item: STAGES.index(item[0]))
        # The first cycles of a run have no shard to prepare or to broadcast.
        if spec
    ]


def _contributions(records: RunRecords) -> list[Contribution]:
    rows = []
    for one in records.cycles:
        for agent, given in one.contributors.items():
            pause = one.pauses.get(agent)
            pause_s = pause[1] - pause[0] if pause else None
            rows.append(Contribution(one.cycle, one.shard, agent, given["incarnation"], given["tau"], pause_s, ""))
        for agent, reason in one.left_out.items():
            rows.append(Contribution(one.cycle, one.shard, agent, None, None, None, reason))
    return sorted(rows, key=lambda row: (row.cycle, row.agent))


def _losses(records: RunRecords) -> list[Loss]:
    losses = []
    for number, event in enumerate(records.agents):
        if event.event != "lost":
            continue
        successor = next(
            (
                later
                for later in records.agents[number + 1 :]
                if later.index == event.index and later.event in ("replaced", "started")
            ),
            None,
        )
        losses.append(
            Loss(
                agent=event.index,
                incarnation=event.incarnation,
                seconds=event.t,
                host=event.host,
                executor=event.executor_id,
                pid=event.pid,
                reason=event.reason or "",
                replaced_after_s=successor.t - event.t if successor else None,
                replaced_on=successor.executor_id if successor else "",
            )
        )
    return losses


def _agents(records: RunRecords, contributions: list[Contribution]) -> list[AgentRow]:
    rows = []
    given: dict[int, list[Contribution]] = {event.index: [] for event in records.agents}
    for row in contributions:
        given.setdefault(row.agent, []).append(row)
    for agent, mine in sorted(given.items()):
        events = [event for event in records.agents if event.index == agent]
        taus = [row.tau for row in mine if row.tau is not None]
        pauses = [row.pause_s for row in mine if row.pause_s is not None]
        rows.append(
            AgentRow(
                agent=agent,
                incarnations=len({event.incarnation for event in events}),
                host=events[-1].host if events else "",
                executor=events[-1].executor_id if events else "",
                exchanges=len(taus),
                left_out=len(mine) - len(taus),
                tau_mean=sum(taus) / len(taus) if taus else None,
                tau_min=min(taus, default=None),
                tau_max=max(taus, default=None),
                pause_mean_s=sum(pauses) / len(pauses) if pauses else None,
                pause_max_s=max(pauses, default=None),
            )
        )
    return rows
