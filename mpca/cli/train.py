"""`mpca train CONF`: one run on executors that are started on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from mpca.errors import MpcaError
from mpca.units import format_duration

if TYPE_CHECKING:
    from mpca.api.launch import Ended, Job

__all__ = ["show_run", "train"]


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
                print(json.dumps({"status": status, "reason": str(error)}), file=out)
            raise
        if out is not None:
            print(json.dumps({"run_dir": str(ended.run_dir), **ended.summary}), file=out)
        return ended.exit_code


def _job(conf: Path, sets: tuple[str, ...], run_dir: str | None, resume: str | None) -> Job:
    from mpca.api import builtin
    from mpca.api.launch import Job, resolve
    from mpca.api.shipping import ship
    from mpca.driver.objectives import Evaluate

    resolved = resolve(conf, sets)
    tables = resolved.to_dict()
    builtin.check(tables)
    evaluate = Evaluate(partial(builtin.evaluate, tables), every=resolved.objectives.evaluate_every or "1ms")
    return Job(resolved, ship(builtin.train, (tables,), {}), evaluate, run_dir, resume)


def show_run(job: Job) -> Ended:
    """Launch, with its progress on stdout and what came of it at the end."""
    from mpca.api.launch import launch
    from mpca.report import ProgressLine

    with ProgressLine(sys.stdout) as progress:
        ended = launch(job, on_status=progress.update, on_output=progress.output, on_stage=progress.say)
    _tell(ended)
    return ended


def _tell(ended: Ended) -> None:
    """The last lines of a run: what came of it and where it lies; the root cause of a failed one is the last on stderr."""
    summary = ended.summary
    parts = [f"{summary['cycles']} cycles", f"{format_duration(summary['seconds'])} of training"]
    if summary["final_error"] is not None:
        parts.insert(0, f"error {100 * summary['final_error']:.2f} %")
    if summary["agents_lost"]:
        parts.append(f"{summary['agents_lost']} agents lost, {summary['agents_replaced']} replaced")
    print(f"{summary['status']}: {', '.join(parts)}")
    for name in ("report.html", "model.safetensors"):
        if isinstance(ended.run_dir, str) or (ended.run_dir / name).exists():
            print(f"{name.split('.')[0]:7}{ended.run_dir}/{name}")
    sys.stdout.flush()
    if ended.exit_code:
        lines = ended.reason.strip().splitlines() or [""]
        if len(lines) > 1:
            print(ended.reason.strip(), file=sys.stderr)
        print(f"mpca: {lines[0]}", file=sys.stderr)


@contextmanager
def _json_stdout(wanted: bool) -> Iterator[IO[str] | None]:
    """With --json, keep the real stdout for the one object and turn descriptor 1 to stderr, for children too."""
    if not wanted:
        yield None
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding="utf-8", closefd=False) as out:
            yield out
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
