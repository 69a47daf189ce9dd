"""`mpca ingest` writes images in the form that training streams; `mpca generate` makes images to try that."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from mpca.cli.options import SIZE, check_out, json_option
from mpca.units import format_size

__all__ = ["generate", "ingest"]

_processes = click.option("--processes", type=click.IntRange(1), help="Processes to use; default: one for each core.")


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target")
@click.option("--withheld", default=0, help="Images of each class that go into the validation split (ImageNet: 25).")
@click.option("--shorter-edge", default=0, help="Encode again, with so many pixels on the shorter edge (ImageNet: 256).")
@click.option("--seed", default=0, show_default=True, help="Seed of the shuffle, and of the choice of images for validation.")
@click.option("--shard-size", default="120MiB", show_default=True, type=SIZE, help="Largest size of a shard.")
@click.option("--test", type=click.Path(path_type=Path), help="Images for evaluation only, in any of these forms.")
@_processes
@json_option
def ingest(
    source: Path,
    target: str,
    withheld: int,
    shorter_edge: int,
    seed: int,
    shard_size: int,
    test: Path | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Write the images of SOURCE as shards into the folder TARGET, which `data.path` of a configuration can then name.

    SOURCE is ImageNet's tar of tars, a folder with a folder a class, or a CSV with the columns path and label. The same
    command goes on with an ingest that was broken off.
    """
    from mpca.data.ingest import Options, ingest
    from mpca.data.manifest import BAD_FILE, store_at

    options = Options(seed, shorter_edge, withheld, shard_size)
    with _bar("images") as advance:
        done = ingest(source, target, options, processes or _cores(), advance, test)
    manifest = done.manifest
    records = {split: of.records for split, of in manifest.splits.items()}
    if as_json:
        print(json.dumps({"target": target, "found": done.found, "records": records, "bad": manifest.bad}))
        return
    uses = {"train": "train on", "validation": "evaluate on", "test": "test on"}
    words = ", ".join(f"{count:,} to {uses[split]}" for split, count in records.items())
    begin = {"finished": "already ingested", "resumed": "finished what was begun", "new": "ingested"}[done.found]
    print(f"{begin}: {len(manifest.classes)} classes, {words}")
    if manifest.bad:
        print(f"{manifest.bad} files could not be read; they are named in {store_at(target).describe(BAD_FILE)}")


@click.command()
@click.argument("images", type=click.IntRange(1))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--classes", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
@_processes
def generate(images: int, target: Path, classes: int, seed: int, processes: int | None) -> None:
    """Make IMAGES photographs to try things with, as a tar of tars TARGET like ImageNet's.

    20,000 of them are 1.3 GB. They are cut, warped, blended and coloured from two photographs that scikit-learn bundles.
    """
    from mpca.data.generate import generate

    check_out("TARGET", target)
    written = 0
    with _bar("images") as advance:

        def on_class(count: int) -> None:
            nonlocal written
            written += count
            advance(written, images)

        size = generate(target, images, classes, seed, processes or _cores(), on_class)
    print(f"{images:,} images of {classes} classes, {format_size(size)}: {target}")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@contextmanager
def _bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal; it writes nothing to stdout."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
