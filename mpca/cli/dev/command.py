"""`mpca dev hadoop up|env|status|down`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

__all__ = ["dev"]

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for all files of the cluster; default: a folder in the user's state folder.",
)


@click.group()
def dev() -> None:
    """Things to try mpca out on."""


@dev.group("hadoop")
def _hadoop() -> None:
    """A real Hadoop on this machine, to try mpca out on: HDFS with two DataNodes, YARN with two NodeManagers.

    It needs Java and no root. A checkout's `docker/`, the cluster of mpca's own tests, has the same configuration.
    """


@_hadoop.command("up")
@_folder
@click.option("--ha", is_flag=True, help="With two NameNodes, named hdfs://mpca, and two ResourceManagers.")
@click.option("--secure", is_flag=True, help="With Kerberos and HTTPS, and a KDC of its own.")
def _up(folder: Path | None, ha: bool, secure: bool) -> None:
    """Start it, or what of it does not run; ready when this returns."""
    from mpca.cli.dev.hadoop import Hadoop, default_folder
    from mpca.cli.dev.realm import OUTSIDER, USERS, Lives

    cluster = Hadoop(folder or default_folder(), click.echo)
    cluster.up(ha, Lives() if secure else None)
    click.echo(f"HDFS {cluster.hdfs_url}   YARN {cluster.resourcemanager_url}")
    click.echo(f'eval "$(mpca dev hadoop env{_again(folder)})"   makes this shell use it')
    realm = cluster.setup.realm
    if realm is not None:
        keytab = shlex.quote(str(realm.keytab(USERS[0])))
        click.echo(f"kinit -kt {keytab} {USERS[0]}   and then you are {USERS[0]}; or {' or '.join((*USERS[1:], OUTSIDER))}")


@_hadoop.command("env")
@_folder
def _env(folder: Path | None) -> None:
    """Print the exports that make a shell use it."""
    from mpca.cli.dev.hadoop import Hadoop, default_folder

    for name, value in Hadoop(folder or default_folder()).env().items():
        click.echo(f"export {name}={shlex.quote(value)}")


@_hadoop.command("status")
@_folder
def _status(folder: Path | None) -> int:
    """Say of every daemon whether it works; exit code 1 if one does not."""
    from mpca.cli.dev.hadoop import Hadoop, default_folder

    states = Hadoop(folder or default_folder()).status()
    for name, state in states.items():
        click.echo(f"{name:16} {state}")
    return 0 if set(states.values()) == {"ready"} else 1


@_hadoop.command("down")
@_folder
@click.option("--keep-data", is_flag=True, help="Keep the folder; the next `up` goes on with its files.")
def _down(folder: Path | None, keep_data: bool) -> None:
    """Stop the cluster, and remove all its files."""
    from mpca.cli.dev.hadoop import Hadoop, default_folder

    Hadoop(folder or default_folder()).down(keep_data)


def _again(folder: Path | None) -> str:
    return f" --dir {shlex.quote(str(folder.absolute()))}" if folder else ""
