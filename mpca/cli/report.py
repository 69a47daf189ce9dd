"""`mpca report RUN_DIR`: draws the report of a run again, or for a run that could not draw it."""

from __future__ import annotations

from pathlib import Path

import click

from mpca.checks import refused

__all__ = ["report"]


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
def report(run_dir: Path) -> None:
    """Draw report.html from the records of a run, also while the run goes on or after it was killed."""
    from mpca.report import write_report

    try:
        path = write_report(run_dir)
    except OSError as error:
        raise refused("RUN_DIR", str(run_dir), f"its report cannot be drawn: {error.strerror}") from None
    click.echo(path)
