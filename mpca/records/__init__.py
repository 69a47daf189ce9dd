"""The files that a run writes about itself: ``records.jsonl`` line by line, ``summary.json`` at its end, and their folder.

Their format is an interface for people's scripts; it changes only with a note in the README.
"""

from __future__ import annotations

from mpca.records.backlog import Backlog
from mpca.records.bad_file import BadFile
from mpca.records.folder import RunFolder
from mpca.records.kinds import (
    KINDS,
    STAGES,
    AgentRecord,
    BackupRecord,
    BeginRecord,
    CycleRecord,
    EndRecord,
    EvaluationRecord,
    EvaluatorRecord,
    ExchangeRecord,
    GapRecord,
    MetricsRecord,
    PauseRecord,
    Record,
    RunRecord,
    TrackerRecord,
    from_json,
    make,
    to_json,
)
from mpca.records.lines import LineWriter, MemorySink, RecordFile, Sink, read_records
from mpca.records.summary import STATUSES, Summary, parse_summary, read_summary, write_summary

__all__ = [
    "KINDS",
    "STAGES",
    "STATUSES",
    "AgentRecord",
    "Backlog",
    "BackupRecord",
    "BadFile",
    "BeginRecord",
    "CycleRecord",
    "EndRecord",
    "EvaluationRecord",
    "EvaluatorRecord",
    "ExchangeRecord",
    "GapRecord",
    "LineWriter",
    "MemorySink",
    "MetricsRecord",
    "PauseRecord",
    "Record",
    "RecordFile",
    "RunFolder",
    "RunRecord",
    "Sink",
    "Summary",
    "TrackerRecord",
    "from_json",
    "make",
    "parse_summary",
    "read_records",
    "read_summary",
    "to_json",
    "write_summary",
]
