"""`mpca compare`: which method reaches an error soonest, from simulated runs with real gradients; and the papers' figures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpca.cli.options import check_out, json_option
from mpca.cli.sheets import show
from mpca.errors import RunFailed

if TYPE_CHECKING:
    from mpca.sim.compare.plan import Progress

__all__ = ["compare"]


_NAMES = ("9", "10a", "10b", "10c", "13", "table1", "table2", "sparknet-3", "sparknet-4", "deepspark")


@click.command()
@click.argument("conf", type=click.Path(path_type=Path), required=False)
@click.option("--figure", "name", type=click.Choice(_NAMES), help="In place of CONF: a figure or table of a paper.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="With --figure: draw it into this HTML file.")
@click.option("--run-dir", type=click.Path(path_type=Path), help="The results' folder; runs/<CONF's name> if not given.")
@click.option("--quick", is_flag=True, help="With the file's [quick]: minutes, and less to be said.")
@click.option("--digits", is_flag=True, help="With the file's [digits]: another task, warped digits.")
@click.option("--processes", type=click.IntRange(1), help="As many as there are cores if not given.")
@json_option
def compare(
    conf: Path | None,
    name: str | None,
    out: Path | None,
    run_dir: Path | None,
    quick: bool,
    digits: bool,
    processes: int | None,
    as_json: bool,
) -> None:
    """Compare methods by their time to an error, in the simulator, with equal chances for each.

    A second start goes on where the first one was. docs/compare.md explains file, rules, table and the papers' figures.
    """
    if (conf is None) == (name is None):
        raise click.UsageError("nothing to compare: name a CONF, or one --figure")
    at_once = processes or len(os.sched_getaffinity(0))
    if conf is not None:
        if out is not None:
            raise click.UsageError("--out draws a --figure; of CONF, compare.html is drawn in the run folder")
        if quick and digits:
            raise click.UsageError("--quick and --digits are two comparisons: name one")
        _compare(conf, run_dir, "quick" if quick else "digits" if digits else "", at_once, as_json)
        return
    if quick or digits:
        raise click.UsageError(f"{'--quick' if quick else '--digits'} is for CONF: a --figure takes minutes at most")
    assert name is not None
    _figure(name, out, run_dir, at_once, as_json)


def _figure(name: str, out: Path | None, run_dir: Path | None, processes: int, as_json: bool) -> None:
    """Print a figure of a paper, and draw it."""
    from mpca.report.figure import write_figure
    from mpca.sim.compare.figures import FIGURES
    from mpca.sim.compare.running import compare as run

    figure = FIGURES[name]
    folder = run_dir or Path("runs") / f"figure-{figure.folder or name}"
    if out is not None:
        check_out("--out", out)
    with _keeping(folder), _bar(disable=not figure.folder) as tell:
        shown = figure.make(lambda conf: run(conf, folder, processes, tell, lambda text: click.echo(text, err=True)))
    if out is not None:
        with _keeping(out):
            write_figure(name, figure, shown, out)
    if as_json:
        sheets, claims = ([asdict(one) for one in some] for some in (shown.sheets, shown.claims))
        click.echo(json.dumps({"figure": name, "source": figure.source, "how": figure.how, "sheets": sheets, "claims": claims}))
        return
    click.echo(figure.line)
    for sheet in shown.sheets:
        show(sheet)
    click.echo()
    for claim in shown.claims:
        click.echo(claim.line())
    if out is not None:
        click.echo(f"\n{out}")


def _compare(conf: Path, run_dir: Path | None, part: str, processes: int, as_json: bool) -> None:
    from mpca.sim.compare.settings import load

    read = load(conf, part)  # before slow imports

    from mpca.private import replace_file
    from mpca.report.comparison import write_comparison
    from mpca.sim.compare.result import result_of
    from mpca.sim.compare.running import compare as run

    folder = run_dir or Path("runs") / f"{conf.stem}{part and f'-{part}'}"
    page, lines = folder / "compare.html", folder / "table.txt"
    for path in (page, lines):
        if folder.is_dir():
            check_out("--run-dir", path)
    with _keeping(folder):
        with _bar() as tell:
            done = run(read, folder, processes, tell, lambda text: click.echo(text, err=True))
        result = result_of(read, done)
        write_comparison(result, page)
        replace_file(lines, "".join(f"{line}\n" for line in result.lines()).encode())
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
def _keeping(path: Path) -> Iterator[None]:
    """Say in one line that a disk takes no more: results that it has taken are not simulated again."""
    try:
        yield
    except OSError as error:
        raise RunFailed(f"{path}: {error.strerror or error}; results so far are kept: go on by the same command") from error


@contextmanager
def _bar(disable: bool = False) -> Iterator[Callable[[int, int, Progress], None]]:
    """A progress bar, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(file=sys.stderr), disable=disable or not sys.stderr.isatty()) as shown:
        task = shown.add_task("simulating", total=None)

        def tell(done: int, known: int, progress: object) -> None:
            shown.update(task, completed=done, total=known)

        yield tell
