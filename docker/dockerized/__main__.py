"""``docker/up`` and ``docker/down``."""

from __future__ import annotations

import shlex

import click

from dockerized.cluster import Cluster
from dockerized.engine import Engine
from mpca.cli.dev.realm import Lives
from mpca.errors import MpcaError

_name = click.option("--name", default="mpca", show_default=True, help="Of the cluster; its containers begin with it.")


@click.group()
def main() -> None:
    """A Hadoop of six containers on this machine."""


@main.command()
@_name
@click.option("--compose", is_flag=True, help="Start the containers by compose.yaml.")
@click.option("--secure", is_flag=True, help="Make it with Kerberos: a KDC on this machine, and users alice, bob and mallory.")
def up(name: str, compose: bool, secure: bool) -> None:
    """Start it, or what of it does not run; ready when this returns."""
    engine = Engine.ready(click.echo)
    cluster = Cluster(name, engine, say=click.echo)
    cluster.up(compose, Lives() if secure else None)
    if engine.folder:
        click.echo(f"export DOCKER_HOST={shlex.quote(engine.env['DOCKER_HOST'])}   makes docker find it")
    realm = cluster.realm
    if realm is not None:
        click.echo(f"kinit -k -t {realm.keytab('alice')} alice   in a container, makes you alice; bob and mallory likewise")
    click.echo(f"YARN http://{cluster.address('resourcemanager')}:8088   HDFS http://{cluster.address('namenode')}:9870")
    click.echo(f"docker exec -it {cluster.container('client')} bash   a shell there; {cluster.work} is shared with it")


@main.command()
@_name
def down(name: str) -> None:
    """Take it away, and the engine if it is ours and no other cluster is on it."""
    engine = Engine.running()
    if engine is None:
        Engine.own().stop(click.echo)  # what a killed one has left
        click.echo("no docker engine runs: nothing to take down")
        return
    Cluster(name, engine, say=click.echo).down()
    engine.stop(click.echo)


try:
    main()
except MpcaError as error:
    click.echo(f"docker: {error}", err=True)
    raise SystemExit(error.exit_code) from None
