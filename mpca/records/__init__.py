"""What a run writes about itself: ``records.jsonl`` line by line, ``summary.json`` at its end, the folder of both.

The form is an interface (people script against it); it changes only with a note in the README.
"""

from __future__ import annotations

from mpca.records.folder import RunFolder
from mpca.records.kinds import (
    KINDS,
    AgentRecord,
    BackupRecord,
    CycleRecord,
    EndRecord,
    EvaluationRecord,
    PauseRecord,
    Record,
    RunRecord,
    from_json,
    make,
    to_json,
)
from mpca.records.lines import LineWriter, MemorySink, RecordFile, Sink, read_records
from mpca.records.summary import STATUSES, Summary, read_summary, write_summary

__all__ = [
    "KINDS",
    "STATUSES",
    "AgentRecord",
    "BackupRecord",
    "CycleRecord",
    "EndRecord",
    "EvaluationRecord",
    "LineWriter",
    "MemorySink",
    "PauseRecord",
    "Record",
    "RecordFile",
    "RunFolder",
    "RunRecord",
    "Sink",
    "Summary",
    "from_json",
    "make",
    "read_records",
    "read_summary",
    "to_json",
    "write_summary",
]
