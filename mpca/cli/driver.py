"""`mpca driver`: a run on the session of the spark-submit that started this process. Users call `mpca submit`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpca.errors import EnvironmentRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.api.job import Job
    from mpca.config.resolved import Resolved

__all__ = ["check_job", "driver", "make_job"]


@click.command(hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("conf", type=click.Path(path_type=Path))
@click.option("--train", "script", type=click.Path(path_type=Path), help="The agents run this script.")
@click.option("--resume", metavar="auto|BACKUP")
@click.argument("words", nargs=-1)
def driver(conf: Path, script: Path | None, resume: str | None, words: tuple[str, ...]) -> int:
    """Train what CONF and the session's spark.mpca.* settings say."""
    from mpca.api.job import resolve
    from mpca.cli.train import show_run
    from mpca.spark.yarn.submitted import settings_of, submitted_session

    session = submitted_session()
    if session is None:
        raise EnvironmentRefused("spark-submit must start this command: use `mpca submit`, or `mpca train` on this machine")
    from mpca.spark.hdfs.store import HdfsStore
    from mpca.storage import opening

    opening.use(lambda location: HdfsStore(session, location))  # a container has no ticket; the session's JVM has a login
    try:
        resolved = resolve(conf, spark_conf=settings_of(session))
        return show_run(make_job(resolved, script, words, resume, session)).exit_code
    finally:
        opening.use(None)
        session.stop()


def check_job(config: Resolved, script: Path | None) -> None:
    """Refuse what cannot run, before a container is asked for.

    Raises:
        ConfigError: as `builtin.check`; a script is checked later.
    """
    from mpca.api import builtin

    if script is None:
        builtin.check(config.to_dict())


def make_job(config: Resolved, script: Path | None, words: tuple[str, ...], resume: str | None, session: SparkSession) -> Job:
    """The job of a configuration's own training, or of a script."""
    from mpca.api import builtin
    from mpca.api.job import Job
    from mpca.api.shipping import ship
    from mpca.driver.objectives import Evaluate

    check_job(config, script)
    if script is not None:
        return Job(config, ship(script, words, {}), None, None, resume, session)
    tables = config.to_dict()
    evaluate = Evaluate(partial(builtin.evaluate, tables), every=config.objectives.evaluate_every or "1ms")
    return Job(config, ship(builtin.train, (tables,), {}), evaluate, None, resume, session)
