"""`mpca train CONF`: one run, on executors that it starts on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpca.cli.outcome import cause_lines, result_lines, say_last
from mpca.errors import MpcaError
from mpca.streams import SturdyFile, aside, closed

if TYPE_CHECKING:
    from mpca.api.job import Ended, Job

__all__ = ["show_run", "train"]

_UNWRITTEN = 1


@click.command()
@click.argument("conf", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Replace one key of the configuration, e.g. --set method.name=sync or --set objectives.max_time=75s.",
)
@click.option("--run-dir", help="The run's folder itself, also as hdfs://...; runs/<name>-<time> if not given.")
@click.option("--resume", metavar="auto|BACKUP", help="Go on from a backup: the newest one of --run-dir, or this one.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object on stdout, all else on stderr.")
def train(conf: Path, sets: tuple[str, ...], run_dir: str | None, resume: str | None, as_json: bool) -> int:
    """Train what CONF says (see conf/digits.toml), on executors started on this machine."""
    with _json_stdout(as_json) as out:
        try:
            ended = show_run(_job(conf, sets, run_dir, resume))
        except (MpcaError, KeyboardInterrupt) as error:
            if out is not None:
                status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
                _write(out, {"status": status, "reason": str(error)})
            raise
        if out is not None:
            lost = _write(out, {"run_dir": str(ended.run_dir), **ended.summary})
            if lost is not None:
                print(f"mpca: stdout: {lost.strerror}; the summary is in {ended.run_dir}/summary.json", file=sys.stderr)
                return ended.exit_code or _UNWRITTEN
        return ended.exit_code


def _job(conf: Path, sets: tuple[str, ...], run_dir: str | None, resume: str | None) -> Job:
    from mpca.api.job import Job, resolve

    resolved = resolve(conf, sets)

    from mpca.api import builtin  # these import what a refusal does not need
    from mpca.api.shipping import ship
    from mpca.driver.objectives import Evaluate

    tables = resolved.to_dict()
    builtin.check(tables)
    evaluate = Evaluate(partial(builtin.evaluate, tables), every=resolved.objectives.evaluate_every or "1ms")
    return Job(resolved, ship(builtin.train, (tables,), {}), evaluate, run_dir, resume)


def show_run(job: Job) -> Ended:
    """Launch a job; show its progress on stdout, and its result at the end."""
    from mpca.api.launch import launch
    from mpca.report import ProgressLine

    with aside(), ProgressLine(sys.stdout) as progress:
        ended = launch(job, on_status=progress.update, on_output=progress.output, on_stage=progress.say)
    say_last(result_lines(ended.summary, ended.run_dir, _saved(ended)), cause_lines(ended.reason) if ended.exit_code else ())
    return ended


def _saved(ended: Ended) -> set[str]:
    """Names of a run's files that exist."""
    if isinstance(ended.run_dir, Path):
        try:
            return set(os.listdir(ended.run_dir))
        except OSError:  # the disk is gone; the reason says where the files are instead
            return set()
    return {"report.html", "model.safetensors"} if ended.model_state else {"report.html"}


@contextmanager
def _json_stdout(wanted: bool) -> Iterator[SturdyFile | None]:
    """With --json, keep the real stdout for the one object and point descriptor 1 to stderr, for children too."""
    if not wanted:
        yield None
        return
    sys.stdout.flush()
    lost = closed(sys.stdout)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield SturdyFile(kept, lost)
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _write(out: SturdyFile, value: dict[str, Any]) -> OSError | None:
    """Write one JSON object.

    Returns:
        Why it was not written; None: it was.
    """
    out.write((json.dumps(value) + "\n").encode())
    return out.lost
