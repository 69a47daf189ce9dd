"""`mpca doctor`: says whether a cluster is ready for a run, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mpca.checks import refuse_password
from mpca.errors import EnvironmentRefused

if TYPE_CHECKING:
    from mpca.spark.yarn.examine import Finding

__all__ = ["doctor"]

_UNFIT = 1


@click.command()
@click.option("--master", type=click.Choice(["yarn"]), default="yarn", show_default=True)
@click.option("--queue", default="default", show_default=True, help="The queue for your runs.")
@click.option("--run-dir", metavar="hdfs://...", help="The folder for your runs; default: your folder on HDFS.")
@click.option("--principal", help="Log in as spark.kerberos.principal would, by the key in --keytab.")
@click.option(
    "--keytab", metavar="FILE", help="The file with the key; default: both as in spark-defaults.conf, else your ticket."
)
def doctor(master: str, queue: str, run_dir: str | None, principal: str | None, keytab: str | None) -> int:
    """Check a cluster without starting a container. The exit code is 1 if something would stop a run."""
    refuse_password("--run-dir", run_dir)
    stops = 0
    for one in _findings(queue, run_dir, principal, keytab):
        click.echo(f"{one.level:6} {one.what:18} {one.text}")
        stops += one.level == "stop"
    return _UNFIT if stops else 0


def _findings(queue: str, run_dir: str | None, principal: str | None, keytab: str | None) -> Iterator[Finding]:
    from mpca.spark.jvm.hadoop import configuration_folder, hadoop_jvm, spark_home

    configuration_folder()
    home = spark_home()

    from mpca.spark.jvm.login import login_of
    from mpca.spark.yarn.client import Yarn
    from mpca.spark.yarn.examine import Finding, examine, examine_here, judge_keytab

    yield from examine_here(home)
    named = {"spark.kerberos.principal": principal or "", "spark.kerberos.keytab": keytab or ""}
    home = replace(home, login=login_of(named if principal or keytab else home.defaults()))
    if home.login is not None:
        found = judge_keytab(home.login)
        yield found
        if found.level == "stop":
            return
    try:
        with hadoop_jvm(home) as jvm, closing(Yarn(jvm)) as yarn:
            yield from examine(home, jvm, yarn, queue, run_dir)
    except EnvironmentRefused as error:
        if home.login is None:
            raise
        yield Finding("login", "stop", str(error))
