"""`mpca report RUN_DIR`: draws the report of a run again, or for a run that could not draw it."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["report"]


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
def report(run_dir: Path) -> None:
    """Draw report.html of a run folder from its records, also while it runs or after it was cut off."""
    from mpca.report import write_report

    click.echo(write_report(run_dir))
