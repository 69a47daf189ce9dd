"""`mpca pack OUTPUT`: packs the running environment into an archive that runs where no Python is."""

from __future__ import annotations

import time
from pathlib import Path

import click

from mpca.cli.options import check_out
from mpca.errors import ConfigError
from mpca.units import format_duration, format_size

__all__ = ["pack"]


@click.command()
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--without", multiple=True, metavar="PACKAGE", help="Leave out this package, and packages that only it needs.")
@click.option("--with", "also", multiple=True, metavar="PACKAGE", help="Add this package, and the packages that it needs.")
def pack(output: Path, without: tuple[str, ...], also: tuple[str, ...]) -> None:
    """Pack Python, mpca and the packages that it needs into OUTPUT (.tar.gz) for mpca submit --archives OUTPUT#environment."""
    from mpca.spark.yarn.packing import estimate, plan, write

    if not output.name.endswith((".tar.gz", ".tgz")):
        raise ConfigError(f"not an archive that Spark unpacks: {output}; name it *.tar.gz")
    check_out("OUTPUT", output)
    planned = plan(without, also)
    size, seconds = estimate(planned)
    click.echo(
        f"{len(planned.files)} files of {len(planned.packages)} packages, {format_size(planned.size)}: "
        f"an archive of about {format_size(size)}, in about {format_duration(seconds)}"
    )
    began = time.monotonic()
    write(planned, output)
    click.echo(f"{output}: {format_size(output.stat().st_size)} in {format_duration(time.monotonic() - began)}")
