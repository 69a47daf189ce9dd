"""Reads the records of a run, even if it failed, was killed in the middle of a line, or still runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from mpca import strict_json
from mpca.errors import ConfigError
from mpca.records import (
    AgentRecord,
    BackupRecord,
    BeginRecord,
    CycleRecord,
    EndRecord,
    EvaluationRecord,
    EvaluatorRecord,
    ExchangeRecord,
    MetricsRecord,
    PauseRecord,
    Record,
    RunFolder,
    RunRecord,
    Summary,
    TrackerRecord,
    read_records,
)
from mpca.records.shapes import misfit
from mpca.report.follow import Follower
from mpca.storage.local import LocalStore

__all__ = ["RunRecords", "gather", "load_run"]

_log = logging.getLogger("mpca.report")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of one run by kind, in the order of writing, and the summary if the run has ended.

    Times are seconds of training over all attempts, as in `summary.json`. Times before an attempt's training are smaller.
    """

    name: str
    attempts: list[RunRecord] = field(default_factory=list)
    begins: list[BeginRecord] = field(default_factory=list)  # of attempts that trained
    agents: list[AgentRecord] = field(default_factory=list)
    cycles: list[CycleRecord] = field(default_factory=list)
    exchanges: list[ExchangeRecord] = field(default_factory=list)  # of agents that ask by themselves, in place of cycles
    evaluations: list[EvaluationRecord] = field(default_factory=list)
    metrics: list[MetricsRecord] = field(default_factory=list)
    evaluators: list[EvaluatorRecord] = field(default_factory=list)
    pauses: list[PauseRecord] = field(default_factory=list)
    backups: list[BackupRecord] = field(default_factory=list)
    trackers: list[TrackerRecord] = field(default_factory=list)  # one of each tracker, the newest
    end: EndRecord | None = None  # end of the last attempt
    summary: dict[str, Any] = field(default_factory=dict)
    last_t: float = 0.0
    torn: bool = False  # the last line was cut off


def load_run(run_dir: Path) -> RunRecords:
    """Read ``records.jsonl`` of a run folder, and ``summary.json`` if it exists.

    A folder that was copied from HDFS has its records in parts while its run goes on, and after it was killed.

    Raises:
        ConfigError: the folder has no records, or what is there are none, or of another format.
    """
    folder = RunFolder(run_dir)
    follower = Follower(LocalStore(run_dir, links=True))
    if folder.records.with_suffix("").is_dir() and follower.look():
        return gather(follower.records, run_dir.resolve().name, _summary(folder.summary))
    if not folder.records.is_file():
        raise ConfigError(f"not a run folder: {run_dir} has no records.jsonl; give the folder that `mpca train` printed")
    try:
        file = read_records(folder.records)
    except ConfigError as error:
        raise ConfigError(f"{run_dir}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"damaged run folder: {error}") from None
    return gather(file.records, run_dir.resolve().name, _summary(folder.summary), file.torn is not None)


def gather(found: list[Record], name: str, summary: dict[str, Any] | None = None, torn: bool = False) -> RunRecords:
    """The records of a run by kind.

    Args:
        found: in the order of writing.
        name: of the run, where no record has it.
        summary: of the run, if it has ended; that of an earlier attempt does not count.
        torn: whether the last line was cut off.
    """
    records = _of_training(found)
    attempts = _of(RunRecord, records)
    # The end of an attempt does not count when a later attempt has resumed the run.
    newest = records[max((n for n, one in enumerate(records) if isinstance(one, RunRecord)), default=0) :]
    ends = _of(EndRecord, newest)
    if summary and attempts and summary.get("attempts", 1) < attempts[-1].attempt:
        summary = None  # of an attempt before this one, which has not ended or was killed
    return RunRecords(
        name=attempts[0].name if attempts else name,
        attempts=attempts,
        begins=_of(BeginRecord, records),
        agents=_of(AgentRecord, records),
        cycles=_of(CycleRecord, records),
        exchanges=_of(ExchangeRecord, records),
        evaluations=_of(EvaluationRecord, records),
        metrics=_of(MetricsRecord, records),
        evaluators=_of(EvaluatorRecord, records),
        # A pause has two records, at its beginning and its end.
        pauses=list({one.start: one for one in _of(PauseRecord, records)}.values()),
        backups=_of(BackupRecord, records),
        trackers=list({one.tracker: one for one in _of(TrackerRecord, records)}.values()),
        end=ends[-1] if ends else None,
        summary=summary or {},
        last_t=max((one.t for one in records), default=0.0),
        torn=torn,
    )


def _summary(path: Path) -> dict[str, Any]:
    """The summary; empty when the run has not ended or the file is damaged. The page is then drawn from the records alone."""
    if not path.is_file():
        return {}
    try:
        summary = strict_json.loads(path.read_bytes())
        if not isinstance(summary, dict):
            raise ValueError("it is not a map")
        wrong = misfit(Summary, summary)
        if wrong:
            raise ValueError(f"not a summary: {wrong}")
    except ValueError as error:
        _log.warning("summary left out: path=%s: %s", path, error)
        return {}
    return summary


def _of_training(records: list[Record]) -> list[Record]:
    """The records with times as seconds of training. An attempt without training keeps seconds since the run began."""
    out: list[Record] = []
    starts = [n for n, one in enumerate(records) if isinstance(one, RunRecord)]
    for start, end in pairwise([0, *starts, len(records)]):
        attempt = records[start:end]
        begin = next((one for one in attempt if isinstance(one, BeginRecord)), None)
        shift = 0.0 if begin is None else begin.trained - begin.t
        shifted = [_shifted(one, shift) for one in attempt]
        if end < len(records):  # another attempt came, and a pause of this one does not go on in it
            until = shifted[-1].t if shifted else 0.0
            shifted = [replace(one, end=until) if isinstance(one, PauseRecord) and one.end is None else one for one in shifted]
        out += shifted
    return out


def _shifted(one: Record, by: float) -> Record:
    moved: dict[str, Any] = {"t": one.t + by}
    if isinstance(one, CycleRecord):
        moved["stages"] = {
            name: {**stage, "start": stage["start"] + by, "end": stage["end"] + by} if stage else stage
            for name, stage in one.stages.items()
        }
    elif isinstance(one, PauseRecord):
        moved |= {"start": one.start + by, "end": None if one.end is None else one.end + by}
    return replace(one, **moved)


def _of(kind: type[R], records: list[Record]) -> list[R]:
    return [one for one in records if isinstance(one, kind)]
