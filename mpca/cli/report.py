"""`mpca report RUN_DIR...`: draws a report again, or for a run that could not draw it; or several runs on one page."""

from __future__ import annotations

from pathlib import Path

import click

from mpca.checks import refused
from mpca.cli.options import check_out

__all__ = ["report"]

_TOGETHER = Path("runs.html")


@click.command()
@click.argument("run_dirs", metavar="RUN_DIR...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help=f"The page of several runs; by default {_TOGETHER}."
)
def report(run_dirs: tuple[Path, ...], out: Path | None) -> None:
    """Draw report.html from the records of a run, also while the run goes on or after it was killed.

    Of several runs, as of a sweep: one page with their settings that differ, their results, and their curves side by side.
    """
    from mpca.report import write_report
    from mpca.report.several import write_several

    run_dirs = tuple(dict.fromkeys(run_dirs))  # patterns of a shell may name a run twice
    if len(run_dirs) == 1 and out is not None:
        raise click.UsageError("--out is for several runs; the report of one lies in its folder")
    for one in run_dirs:
        if str(one).startswith(("hdfs:/", "webhdfs:/")):
            raise refused("RUN_DIR", str(one), "is on HDFS; copy it to this machine first: hdfs dfs -get")
    try:
        if len(run_dirs) == 1:
            out = write_report(run_dirs[0])
        else:
            out = out or _TOGETHER
            check_out("--out", out)
            write_several(run_dirs, out)
    except OSError as error:
        raise refused("RUN_DIR", ", ".join(map(str, run_dirs)), f"its report cannot be drawn: {error.strerror}") from None
    click.echo(out)
