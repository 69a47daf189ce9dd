"""``summary.json``: the results of a run in one object, written at the end of every run, even a failed one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mpca import strict_json
from mpca.private import replace_file
from mpca.records.kinds import plain
from mpca.records.shapes import misfit

__all__ = ["STATUSES", "Summary", "parse_summary", "read_summary", "write_summary"]

#: How a run can end.
STATUSES = ("reached", "early_stopping", "max_time", "max_cycles", "interrupted", "failed")


@dataclass(frozen=True)
class Summary:
    """The keys of ``summary.json``, in their order. Errors are shares of wrong answers, 0 to 1; null: not evaluated."""

    status: str  # one of STATUSES
    reason: str
    method: str
    num_agents: int
    seed: int
    seconds: float  # from the beginning of training (`records.BeginRecord`) to the stop, over all attempts
    seconds_to_first_step: float | None  # from the start of this attempt; null: no step was taken
    submit_seconds: dict[str, float] = field(default_factory=dict)  # by stage of the start
    cycles: int = 0
    counts: str = "cycle"  # what `cycles` counts; "exchange": agents ask by themselves, and there are no cycles
    steps: list[int] = field(default_factory=list)  # optimiser updates by agent, over incarnations
    samples: int | None = 0  # null: not counted (the user's own loader, without `mpca.samples`)
    final_error: float | None = None  # error of the saved model
    final_metrics: dict[str, float | None] = field(default_factory=dict)  # all that the evaluation of the saved model returned
    best_error: float | None = None
    target_error: float = 0.0  # 0: none was set
    seconds_to_target: float | None = None
    evaluations: int = 0
    pause_share: float = 0.0  # share of the agents' training time that snapshots and installs took
    model_bytes: int = 0
    bytes_in_driver: int = 0
    bytes_out_driver: int = 0
    bytes_data_remote: int = 0  # bytes of the data set that agents read on HDFS from other hosts
    bad_records: int = 0  # records of the data that could not be used, in all attempts; named in bad.jsonl
    agents_lost: int = 0
    agents_replaced: int = 0
    cut_off: dict[str, str] = field(default_factory=dict)  # agent -> why its train function did not return after Stop
    backups: int = 0
    attempts: int = 1
    resumed_from: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    final: bool = False  # no other attempt may repeat the run: it ended by the user's own error, or cut work off at the end

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"no such status of a run: {self.status!r}, known: {', '.join(STATUSES)}")


def write_summary(path: str | os.PathLike[str], summary: Summary) -> None:
    """Replace the file atomically: a reader sees the old file or the whole new one.

    Raises:
        OSError: the file cannot be written.
    """
    replace_file(Path(path), (json.dumps(plain(asdict(summary)), indent=2, allow_nan=False) + "\n").encode())


def read_summary(path: str | os.PathLike[str]) -> Summary:
    """Read a summary; keys of a later version are ignored.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a summary.
    """
    return parse_summary(Path(path).read_bytes(), path)


def parse_summary(data: bytes | str, path: str | os.PathLike[str]) -> Summary:
    """Parse a summary.

    Args:
        data: the file's text.
        path: the file's name in an error.

    Raises:
        ValueError: the text is not a summary.
    """
    values: Any = strict_json.loads(data)
    if not isinstance(values, dict):
        raise ValueError(f"not a summary: path={path}: it is not a map")
    known = {one.name for one in fields(Summary)}
    wrong = misfit(Summary, values)
    if wrong:
        raise ValueError(f"not a summary: path={path}: {wrong}")
    try:
        return Summary(**{name: value for name, value in values.items() if name in known})
    except TypeError as error:
        raise ValueError(f"not a summary: path={path}: {error}") from None
