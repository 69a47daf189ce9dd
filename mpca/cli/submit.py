"""`mpca submit CONF`: a run on YARN: checks, the spark-submit line, its output, the run's exit code."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpca.checks import refuse_password
from mpca.errors import ConfigError

if TYPE_CHECKING:
    from mpca.config.resolved import Resolved
    from mpca.spark.hdfs.files import ClusterFiles
    from mpca.spark.jvm.hadoop import SparkHome
    from mpca.spark.yarn.client import Yarn
    from mpca.spark.yarn.sizing import Container
    from mpca.spark.yarn.submit import Submission
    from mpca.storage import Location

__all__ = ["containers", "find_spark_jars", "submit"]

_PROGRAM = Path(__file__).with_name("program") / "mpca_run.py"
_GPUS = Path(__file__).with_name("program") / "mpca_gpus.sh"
_NO_JARS = "Spark's jars are not in its folder: SPARK_HOME={home}; name the cluster's Spark, or unset it"


@click.command()
@click.argument("conf", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1)
@click.option("--master", type=click.Choice(["yarn"]), default="yarn", show_default=True)
@click.option("--deploy-mode", type=click.Choice(["client", "cluster"]), default="client", show_default=True)
@click.option("--set", "sets", multiple=True, metavar="SECTION.KEY=VALUE", help="Replace one key of the configuration.")
@click.option("--name", help="The run's name: --set run.name=NAME.")
@click.option("--run-dir", help="The run's folder itself, also as hdfs://...: --set run.dir=DIR.")
@click.option("--queue", help="YARN's queue; the cluster's default if not given.")
@click.option("--archives", metavar="FILE#NAME", help="An environment made by `mpca pack`, for every container.")
@click.option("--py-files", metavar="FILES", help="Your own modules, .py or .zip, with commas between them.")
@click.option("--train", "script", type=click.Path(path_type=Path), help="The agents run this script, with WORDS.")
@click.option("--resume", metavar="auto|BACKUP", help="Go on from the newest backup of run.dir, or from this one.")
@click.option("--jars-on-nodes", is_flag=True, help="Spark lies at the same path on every node: bring no jars to HDFS.")
@click.option("--dry-run", is_flag=True, help="Check and print the line, and submit nothing.")
def submit(
    conf: Path,
    words: tuple[str, ...],
    master: str,
    deploy_mode: str,
    sets: tuple[str, ...],
    name: str | None,
    run_dir: str | None,
    queue: str | None,
    archives: str | None,
    py_files: str | None,
    script: Path | None,
    resume: str | None,
    jars_on_nodes: bool,
    dry_run: bool,
) -> int:
    """Train what CONF says on a cluster: run spark-submit, after checks that would otherwise fail in containers.

    Without --archives the interpreter that runs this command must exist at the same path on every node.
    """
    from mpca.api.launch import resolve
    from mpca.cli.driver import check_job
    from mpca.cli.follow import follow
    from mpca.spark.hdfs.files import ClusterFiles
    from mpca.spark.jvm.hadoop import configuration_folder, hadoop_jvm, spark_home
    from mpca.spark.yarn.client import Yarn
    from mpca.spark.yarn.packing import check_archive
    from mpca.spark.yarn.submit import AUTHENTICATE, check_scala, no_way_back
    from mpca.spark.yarn.submitted import cluster_run_folder

    for option, value in (("--archives", archives), ("--py-files", py_files), ("--resume", resume)):
        refuse_password(option, value)
    if name:
        sets = (*sets, f"run.name={name}")
    if run_dir:
        sets = (*sets, f"run.dir={run_dir}")
    config = resolve(conf, sets)
    if words and script is None:
        raise ConfigError(f"words without a script: {' '.join(words)}; they are for --train SCRIPT")
    if resume == "auto" and not (config.run.dir or config.backup.path):
        raise ConfigError("--resume auto: the newest backup of which run? name its folder by --run-dir")
    check_job(config, script)
    configuration_folder()
    home = spark_home()
    check_scala(home.core_jar)
    if archives:
        check_archive(archives)
    executor, driver = containers(config, script)
    with hadoop_jvm(home) as jvm, closing(Yarn(jvm)) as yarn:
        files = ClusterFiles(jvm, yarn.configuration)
        if resume:
            _check_backup(config, resume, script, deploy_mode, files)
        _check_cluster(config, yarn, files, queue, [executor, driver] if deploy_mode == "cluster" else [executor])
        spark_jars = find_spark_jars(config, home, files, jars_on_nodes)
        own = files.home()
    submission = _submission(
        config, conf, sets, words, script, resume, deploy_mode, executor, driver, spark_jars, queue, archives, py_files, home
    )
    for one in (executor, driver) if deploy_mode == "cluster" else (executor,):
        click.echo(one.line())
    for warning in no_way_back(config, {**submission.defaults, **submission.settings()}) if deploy_mode == "cluster" else ():
        click.echo(warning)
    if submission.authenticates_by_default():
        click.echo(f"{AUTHENTICATE} is on for this application; --set {AUTHENTICATE}=false leaves it off")
    click.echo(submission.printable(str(home.submit)))
    sys.stdout.flush()
    if dry_run:
        return 0

    def run_folder(application: str) -> str:
        return config.run.dir or cluster_run_folder(own, config.run.name, application)

    with _secrets_file(submission, home) as secrets:
        return follow(submission.command(str(home.submit), secrets), deploy_mode, _PROGRAM.name, home, run_folder)


@contextmanager
def _secrets_file(submission: Submission, home: SparkHome) -> Iterator[str]:
    """A file that only this user can read, with the settings that must not be arguments of spark-submit, while that runs.

    Returns:
        Its path; empty: there are no such settings.
    """
    own = submission.properties()
    if not own:
        yield ""
        return
    with tempfile.NamedTemporaryFile("w", prefix="mpca-", suffix=".conf", encoding="utf-8") as file:  # 0600
        file.write(f"{home.defaults_text()}\n\n{own}")  # spark-submit reads one file; of two values the last counts
        file.flush()
        yield file.name


def containers(config: Resolved, script: Path | None) -> tuple[Container, Container]:
    """The containers of an executor, and of the driver in cluster mode."""
    from mpca.api import builtin
    from mpca.spark.yarn.sizing import driver_container, executor_container, memory_setting

    cluster, spark = config.cluster, config.spark
    agents = min(cluster.agents_per_executor, config.method.agents(cluster.agents))
    model = builtin.model_bytes(config.to_dict()) if script is None else 0
    executor = executor_container(
        memory_setting(spark, "spark.executor.memory") or cluster.executor_memory,
        agents,
        model,
        config.method.shards,
        cuda=cluster.device == "cuda",
        agent_memory=cluster.agent_memory,
        asked=memory_setting(spark, "spark.executor.memoryOverhead"),
    )
    driver = driver_container(
        memory_setting(spark, "spark.driver.memory") or 1 << 30,
        model,
        evaluates=script is None,
        asked=memory_setting(spark, "spark.driver.memoryOverhead"),
    )
    return executor, driver


def _check_cluster(config: Resolved, yarn: Yarn, files: ClusterFiles, queue: str | None, containers: list[Container]) -> None:
    """Refuse what YARN or HDFS would refuse minutes later, or never: an application that is too large waits for ever."""
    from mpca.spark.yarn.sizing import check_containers

    largest = yarn.largest()
    yarn.check_queue(queue or "default")
    check_containers(containers, largest.memory, largest.cores, f"YARN ({largest.why})")
    for key, value in (("run.dir", config.run.dir), ("backup.path", config.backup.path)):
        if value.startswith("hdfs://"):
            files.check_writable(value, key)
    files.check_writable(f"{files.home()}/.sparkStaging", "Spark's staging folder")
    if config.cluster.device == "cuda" and "yarn.io/gpu" not in yarn.resource_types():
        raise ConfigError(
            "cluster.device = 'cuda': YARN here counts no yarn.io/gpu, so agents would get no device; see `mpca doctor`"
        )


def _check_backup(config: Resolved, resume: str, script: Path | None, deploy_mode: str, files: ClusterFiles) -> None:
    """Refuse a backup of another model, as far as the model is known here. With `auto` it is the newest whole one."""
    from mpca.api import builtin
    from mpca.api.resume import other_model
    from mpca.storage import Location
    from mpca.storage.manifest import parse

    named = resume != "auto"
    for at in [Location.parse(resume)] if named else _newest(config, deploy_mode, files):
        if at.is_local and deploy_mode == "cluster":
            raise ConfigError(f"--resume {resume}: the driver's container has none of this machine's files; name one on HDFS")
        text = files.read(_address(at / "manifest.json"))
        if text is None and named:
            raise ConfigError(
                f"no such backup: --resume {resume}; name the folder of a backup, or auto for the newest of run.dir"
            )
        try:
            theirs = parse((text or "").encode())["layout"]["tensors"]
        except ValueError as error:
            if not named:
                continue  # the driver passes over it too
            raise ConfigError(f"not a backup: --resume {resume}: {error}; see `mpca backups verify`") from None
        mine = builtin.layout(config.to_dict()) if script is None else theirs
        if mine != theirs:
            raise other_model(at.text, theirs, mine)
        return


def _newest(config: Resolved, deploy_mode: str, files: ClusterFiles) -> list[Location]:
    """Backups among which `auto` chooses, newest first. If there is none, the driver says so: one may still be on its way."""
    from mpca.storage import Location

    folder = Location.parse(config.backup.path) if config.backup.path else Location.parse(config.run.dir) / "backups"
    if folder.is_local and deploy_mode == "cluster":  # this folder may be shared with the driver's machine
        return []
    return [folder / name for name in reversed(files.names(_address(folder))) if name.startswith("term-")]


def _address(at: Location) -> str:
    """The form in which the JVM's client takes a location."""
    return f"file://{at.text}" if at.is_local else at.text


def find_spark_jars(config: Resolved, home: SparkHome, files: ClusterFiles, on_nodes: bool) -> dict[str, str]:
    """Settings by which containers find Spark's jars. By default spark-submit would upload 300 MiB for every application.

    Args:
        config: of the run.
        home: the Spark that submits.
        files: of the cluster.
        on_nodes: whether Spark lies at the same path on every node.
    """
    own = {**home.defaults(), **config.spark}
    if "spark.yarn.archive" in own or "spark.yarn.jars" in own:
        return {}
    if on_nodes:
        return {"spark.yarn.jars": f"local:{home.path}/jars/*"}
    return {"spark.yarn.archive": files.bring(home.jars(), click.echo)}


def _submission(
    config: Resolved,
    conf: Path,
    sets: tuple[str, ...],
    words: tuple[str, ...],
    script: Path | None,
    resume: str | None,
    deploy_mode: str,
    executor: Container,
    driver: Container,
    spark_jars: dict[str, str],
    queue: str | None,
    archive: str | None,
    py_files: str | None,
    home: SparkHome,
) -> Submission:
    from mpca.environment import environment
    from mpca.spark.yarn.submit import Submission

    loopback = environment("SPARK_LOCAL_IP")
    there = deploy_mode == "cluster"  # the driver's container has the files in its work folder
    files = [path.resolve() for path in (conf, script) if path is not None]
    shown = [path.name if there else str(path) for path in files]
    program_words = [shown[0], *(["--train", shown[1]] if script else []), *(["--resume", resume] if resume else [])]
    if words:
        program_words += ["--", *words]
    cuda = config.cluster.device == "cuda"
    return Submission(
        config=config,
        sets=sets,
        program=str(_PROGRAM),
        words=program_words,
        deploy_mode=deploy_mode,
        executor=executor,
        driver=driver,
        python=sys.executable,
        spark_jars=spark_jars,
        queue=queue,
        archive=archive,
        py_files=[one for one in (py_files or "").split(",") if one],
        files=[*(str(path) for path in files if there), *([str(_GPUS)] if cuda else [])],
        discovery=f"./{_GPUS.name}" if cuda else "",
        loopback=loopback if loopback.startswith("127.") else "",
        defaults=home.defaults(),
    )
