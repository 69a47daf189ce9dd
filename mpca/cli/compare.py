"""`mpca compare`: which method reaches an error soonest, from simulated runs with real gradients."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpca.cli.options import json_option
from mpca.cli.sheets import show

if TYPE_CHECKING:
    from mpca.sim.compare.plan import Progress

__all__ = ["compare"]


@click.command()
@click.argument("conf", type=click.Path(path_type=Path))
@click.option("--run-dir", type=click.Path(path_type=Path), help="The results' folder; runs/<CONF's name> if not given.")
@click.option("--quick", is_flag=True, help="With the file's [quick]: minutes, and less to be said.")
@click.option("--processes", type=click.IntRange(1), help="As many as there are cores if not given.")
@json_option
def compare(conf: Path, run_dir: Path | None, quick: bool, processes: int | None, as_json: bool) -> None:
    """Compare methods by their time to an error, in the simulator, with equal chances for each.

    A second start goes on where the first one was. docs/compare.md explains file, rules and table.
    """
    from mpca.private import replace_file
    from mpca.report.comparison import write_comparison
    from mpca.sim.compare.result import result_of
    from mpca.sim.compare.running import compare as run
    from mpca.sim.compare.settings import load

    read = load(conf, quick)
    folder = run_dir or Path("runs") / f"{conf.stem}{'-quick' if quick else ''}"
    with _bar() as tell:
        done = run(read, folder, processes or len(os.sched_getaffinity(0)), tell, lambda text: click.echo(text, err=True))
    result = result_of(read, done)
    page = folder / "compare.html"
    write_comparison(result, page)
    replace_file(folder / "table.txt", "".join(f"{line}\n" for line in result.lines()).encode())
    if as_json:
        click.echo(json.dumps(result.to_json(), allow_nan=False))
        return
    for sheet in result.sheets():
        show(sheet)
    click.echo("\nCost formulas in force:")
    for line in result.formula_lines():
        click.echo(line)
    click.echo(f"\n{page}")


@contextmanager
def _bar() -> Iterator[Callable[[int, int, Progress], None]]:
    """A progress bar, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task("simulating", total=None)

        def tell(done: int, known: int, progress: object) -> None:
            shown.update(task, completed=done, total=known)

        yield tell
