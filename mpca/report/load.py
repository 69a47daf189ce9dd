"""Reads back what a run wrote about itself: also if it failed, was cut off in the middle of a line, or goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mpca.errors import ConfigError
from mpca.records import (
    AgentRecord,
    BackupRecord,
    CycleRecord,
    EndRecord,
    EvaluationRecord,
    PauseRecord,
    Record,
    RunFolder,
    RunRecord,
    read_records,
)

__all__ = ["RunRecords", "load_run"]

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of one run by kind, each in the order it was written, and the summary if the run has ended."""

    name: str
    attempts: list[RunRecord] = field(default_factory=list)
    agents: list[AgentRecord] = field(default_factory=list)
    cycles: list[CycleRecord] = field(default_factory=list)
    evaluations: list[EvaluationRecord] = field(default_factory=list)
    pauses: list[PauseRecord] = field(default_factory=list)
    backups: list[BackupRecord] = field(default_factory=list)
    end: EndRecord | None = None  # of the last attempt
    summary: dict[str, Any] = field(default_factory=dict)
    last_t: float = 0.0
    torn: bool = False  # the last line was cut off


def load_run(run_dir: Path) -> RunRecords:
    """Read ``records.jsonl`` and, if it is there, ``summary.json`` of a run folder.

    Raises:
        ConfigError: the folder has no records, or what is there are none.
    """
    folder = RunFolder(run_dir)
    if not folder.records.is_file():
        raise ConfigError(f"not a run folder: {run_dir} has no records.jsonl; give the folder that `mpca train` printed")
    try:
        file = read_records(folder.records)
    except ValueError as error:
        raise ConfigError(f"damaged run folder: {error}") from None
    attempts = _of(RunRecord, file.records)
    # an end that a later attempt has taken up again is none
    newest = file.records[max((n for n, one in enumerate(file.records) if isinstance(one, RunRecord)), default=0) :]
    ends = _of(EndRecord, newest)
    return RunRecords(
        name=attempts[0].name if attempts else run_dir.resolve().name,
        attempts=attempts,
        agents=_of(AgentRecord, file.records),
        cycles=_of(CycleRecord, file.records),
        evaluations=_of(EvaluationRecord, file.records),
        # a pause is written when it begins and again when it ends
        pauses=list({one.start: one for one in _of(PauseRecord, file.records)}.values()),
        backups=_of(BackupRecord, file.records),
        end=ends[-1] if ends else None,
        summary=json.loads(folder.summary.read_text(encoding="utf-8")) if folder.summary.is_file() else {},
        last_t=max((one.t for one in file.records), default=0.0),
        torn=file.torn is not None,
    )


def _of(kind: type[R], records: list[Record]) -> list[R]:
    return [one for one in records if isinstance(one, kind)]
