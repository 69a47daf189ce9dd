"""`mpca submit CONF`: a run on YARN: checks, the spark-submit line, its output, the run's exit code."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class _Asked:
    """What the command was asked to do."""

    config: Resolved
    conf: Path
    sets: tuple[str, ...]  # with those of --name and --run-dir
    words: tuple[str, ...]
    script: Path | None
    resume: str | None
    deploy_mode: str
    queue: str | None
    proxy_user: str | None
    archives: str | None
    py_files: str | None
    jars_on_nodes: bool

    @property
    def in_cluster(self) -> bool:
        """Whether the driver runs in a container, which has none of this machine's files."""
        return self.deploy_mode == "cluster"

    @property
    def streams_from_hdfs(self) -> bool:
        """Whether the data set is looked at through a JVM, which has a login where this process may have no ticket."""
        return self.config.places()["data.path"].startswith("hdfs:")


@click.command()
@click.argument("conf", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1)
@click.option("--master", type=click.Choice(["yarn"]), default="yarn", show_default=True, expose_value=False)
@click.option("--deploy-mode", type=click.Choice(["client", "cluster"]), default="client", show_default=True)
@click.option("--set", "sets", multiple=True, metavar="SECTION.KEY=VALUE", help="Replace one key of the configuration.")
@click.option("--name", help="The run's name: --set run.name=NAME.")
@click.option("--run-dir", help="The run's folder itself, also as hdfs://...: --set run.dir=DIR.")
@click.option("--queue", help="YARN's queue; the cluster's default if not given.")
@click.option("--proxy-user", metavar="USER", help="Submit for this user, as a service that the cluster lets act for others.")
@click.option("--archives", metavar="FILE#NAME", help="An environment made by `mpca pack`, for every container.")
@click.option("--py-files", metavar="FILES", help="Your own modules, .py or .zip, with commas between them.")
@click.option("--train", "script", type=click.Path(path_type=Path), help="The agents run this script, with WORDS.")
@click.option("--resume", metavar="auto|BACKUP", help="Go on from the newest backup of run.dir, or from this one.")
@click.option("--jars-on-nodes", is_flag=True, help="Spark lies at the same path on every node: bring no jars to HDFS.")
@click.option("--dry-run", is_flag=True, help="Check and print the line, and submit nothing.")
def submit(conf: Path, sets: tuple[str, ...], name: str | None, run_dir: str | None, dry_run: bool, **options: Any) -> int:
    """Train what CONF says on a cluster: run spark-submit, after checks that would otherwise fail in containers.

    Without --archives the interpreter that runs this command must exist at the same path on every node.
    """
    from mpca.api.job import resolve
    from mpca.spark.jvm.hadoop import configuration_folder, spark_home
    from mpca.spark.jvm.jar import line_of
    from mpca.spark.jvm.login import check_proxy_user, login_of
    from mpca.spark.yarn.packing import check_archive
    from mpca.spark.yarn.submitted import cluster_run_folder

    for option in ("archives", "py_files", "resume"):
        refuse_password(f"--{option.replace('_', '-')}", options[option])
    sets = (*sets, *([f"run.name={name}"] if name else []), *([f"run.dir={run_dir}"] if run_dir else []))
    config = resolve(conf, sets)
    asked = _Asked(config, conf, sets, **options)
    _check_options(asked)
    configuration_folder()
    home = spark_home()
    line_of(home.core_jar)
    home = replace(home, login=login_of({**home.defaults(), **config.spark}), proxy_user=asked.proxy_user or "")
    if asked.proxy_user:
        check_proxy_user(asked.proxy_user, home.login)
    if asked.archives:
        check_archive(asked.archives)
    submission, own = _submission(asked, home)
    if asked.in_cluster and not config.run.dir:
        _check_folder("run.dir is not set, and your folder, by fs.defaultFS", own)
    _show(submission, home)
    if home.login is not None and home.login.readers():
        click.echo(f"warning: {home.login.readers()}")
    if dry_run:
        return 0

    def run_folder(application: str) -> str:
        return config.run.dir or cluster_run_folder(own, config.run.name, application)

    from mpca.cli.follow import follow

    with _secrets_file(submission, home) as secrets:
        return follow(submission.command(str(home.submit), secrets), asked.deploy_mode, _PROGRAM.name, home, run_folder)


def _check_options(asked: _Asked) -> None:
    from mpca.cli.driver import check_job
    from mpca.spark.jvm.login import refuse_webhdfs
    from mpca.spark.run.checks import check_driver_host
    from mpca.spark.yarn.submit import not_shared

    for key, value in (("run.dir", asked.config.run.dir), ("backup.path", asked.config.backup.path)):
        if value:
            _check_folder(key, value)
    refuse_webhdfs(asked.proxy_user or "", {**asked.config.places(), "--resume": asked.resume or ""})
    if asked.in_cluster:
        not_shared(asked.config)
    else:
        check_driver_host(asked.config.spark)
    if asked.words and asked.script is None:
        raise ConfigError(f"words without a script: {' '.join(asked.words)}; they are for --train SCRIPT")
    if asked.resume == "auto" and not (asked.config.run.dir or asked.config.backup.path):
        raise ConfigError("--resume auto: the newest backup of which run? name its folder by --run-dir")
    if not asked.streams_from_hdfs:
        check_job(asked.config, asked.script)


def _check_folder(named: str, url: str) -> None:
    """Refuse a folder on a file system to which no run can be written; `named` says who named it."""
    from mpca.storage import Location

    try:
        Location.parse(url)
    except ConfigError as error:
        raise ConfigError(f"{named}: {error}") from None


def _show(submission: Submission, home: SparkHome) -> None:
    """Print the containers, the settings that may surprise, and the line."""
    from mpca.spark.yarn.submit import AUTHENTICATE, in_the_clear, no_way_back, not_shared

    for one in submission.containers:
        click.echo(one.line())
    if submission.deploy_mode == "cluster":
        conf = {**submission.defaults, **submission.settings()}
        for warning in (*no_way_back(submission.config, conf), *not_shared(submission.config)):
            click.echo(warning)
    if submission.authenticates_by_default():
        click.echo(f"{AUTHENTICATE} is on for this application; --set {AUTHENTICATE}=false leaves it off")
    for line in in_the_clear({**submission.defaults, **submission.settings()}):
        click.echo(line)
    click.echo(submission.printable(str(home.submit)))
    sys.stdout.flush()


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
        saves=config.backup.optimizers,
        preload=cluster.preload,
        asked=memory_setting(spark, "spark.executor.memoryOverhead"),
    )
    driver = driver_container(
        memory_setting(spark, "spark.driver.memory") or 1 << 30,
        model,
        config.method,
        torch=False,
        evaluates=script is None,
        asked=memory_setting(spark, "spark.driver.memoryOverhead"),
    )
    return executor, driver


def _check_cluster(
    config: Resolved, conf: dict[str, str], yarn: Yarn, files: ClusterFiles, queue: str | None, containers: list[Container]
) -> None:
    """Refuse what YARN or HDFS would refuse minutes later, or never: an application that is too large waits for ever."""
    from mpca.spark.yarn.sizing import check_containers

    largest = yarn.largest()
    found = yarn.check_queue(queue or "default")
    for key in ("spark.yarn.executor.nodeLabelExpression", "spark.yarn.am.nodeLabelExpression"):
        yarn.check_label(key, conf.get(key, "").strip(), found)
    check_containers(containers, largest.memory, largest.cores, f"YARN ({largest.why})")
    for key, value in (("run.dir", config.run.dir), ("backup.path", config.backup.path)):
        if value.startswith("hdfs://"):
            files.check_writable(value, key)
    files.check_writable(f"{files.home()}/.sparkStaging", "Spark's staging folder")
    if config.cluster.device == "cuda" and "yarn.io/gpu" not in yarn.resource_types():
        raise ConfigError(
            "cluster.device = 'cuda': YARN here counts no yarn.io/gpu, so agents would get no device; see `mpca doctor`"
        )
    wanted = conf.get("spark.executor.resource.gpu.amount", "")
    if wanted.isdigit() and int(wanted) > (most := yarn.gpus()):
        raise ConfigError(
            f"executor container of {wanted} GPUs is more than any node has ({most}): it would wait for ever; "
            "set cluster.agents_per_executor lower"
        )


def _check_backup(asked: _Asked, resume: str, files: ClusterFiles) -> None:
    """Refuse a backup of another model, as far as the model is known here. With `auto` it is the newest whole one."""
    from mpca.api import builtin
    from mpca.api.resume import other_model, refuse_weights
    from mpca.storage import Location
    from mpca.storage.manifest import parse

    refuse_weights(resume)

    named = resume != "auto"
    for at in [Location.parse(resume)] if named else _newest(asked, files):
        if at.is_local and asked.in_cluster:
            raise ConfigError(f"--resume {resume}: the driver's container has none of this machine's files; name one on HDFS")
        text = files.read(_address(at / "manifest.json"))
        if text is None and named:
            raise ConfigError(
                f"no such backup: --resume {resume}; name the folder of a backup, or auto for the newest of run.dir"
            )
        try:
            theirs = [row for row in parse((text or "").encode())["layout"]["tensors"] if row[2] != "updater"]
        except ValueError as error:
            if not named:
                continue  # the driver passes over it too
            raise ConfigError(f"not a backup: --resume {resume}: {error}; see `mpca backups verify`") from None
        mine = builtin.layout(asked.config.to_dict()) if asked.script is None else theirs
        if mine != theirs:
            raise other_model(at.text, theirs, mine)
        return


def _newest(asked: _Asked, files: ClusterFiles) -> list[Location]:
    """Backups among which `auto` chooses, newest first. If there is none, the driver says so: one may still be on its way."""
    from mpca.storage import Location

    config = asked.config
    folder = Location.parse(config.backup.path) if config.backup.path else Location.parse(config.run.dir) / "backups"
    if folder.is_local and asked.in_cluster:  # this folder may be shared with the driver's machine
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


def _submission(asked: _Asked, home: SparkHome) -> tuple[Submission, str]:
    """The application that the cluster would take, after asking the cluster; and the user's folder on HDFS."""
    from mpca.agent.files import ExecutorFiles
    from mpca.cli.driver import check_job
    from mpca.environment import environment
    from mpca.spark.hdfs.files import ClusterFiles
    from mpca.spark.jvm.hadoop import hadoop_jvm
    from mpca.spark.jvm.jar import line_of
    from mpca.spark.jvm.login import said_name
    from mpca.spark.yarn.client import Yarn
    from mpca.spark.yarn.submit import Submission, check_file_systems
    from mpca.storage import opening

    executor, driver = containers(asked.config, asked.script)
    files, words = _files_and_words(asked)
    cuda = asked.config.cluster.device == "cuda"
    submission = Submission(
        config=asked.config,
        sets=asked.sets,
        program=str(_PROGRAM),
        words=words,
        deploy_mode=asked.deploy_mode,
        executor=executor,
        driver=driver,
        python=sys.executable,
        jar=str(line_of(home.core_jar).jar),
        queue=asked.queue,
        proxy_user=asked.proxy_user or "",
        archive=asked.archives,
        py_files=[one for one in (asked.py_files or "").split(",") if one],
        files=[*files, *([str(_GPUS)] if cuda else [])],
        discovery=f"./{_GPUS.name}" if cuda else "",
        local_ip=environment("SPARK_LOCAL_IP"),
        defaults=home.defaults(),
    )
    with hadoop_jvm(home) as jvm, closing(Yarn(jvm)) as yarn:
        there = ClusterFiles(jvm, yarn.configuration)
        if name := said_name(jvm):
            click.echo(f"warning: {name}")
        if jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled():
            check_file_systems(asked.config.places(), there.default, {**submission.defaults, **submission.settings()})
        if asked.streams_from_hdfs:
            opening.use(lambda location: ExecutorFiles(there, location))
            try:
                check_job(asked.config, asked.script)
            finally:
                opening.use(None)
        if asked.resume:
            _check_backup(asked, asked.resume, there)
        _check_cluster(
            asked.config, {**home.defaults(), **submission.settings()}, yarn, there, asked.queue, submission.containers
        )
        return replace(submission, spark_jars=find_spark_jars(asked.config, home, there, asked.jars_on_nodes)), there.home()


def _files_and_words(asked: _Asked) -> tuple[list[str], list[str]]:
    """The files that the driver's container gets, and the words of the driver's program."""
    files = [path.resolve() for path in (asked.conf, asked.script) if path is not None]
    shown = [path.name if asked.in_cluster else str(path) for path in files]  # a container has them in its work folder
    words = [shown[0], *(["--train", shown[1]] if asked.script else []), *(["--resume", asked.resume] if asked.resume else [])]
    if asked.words:
        words += ["--", *asked.words]
    return [str(path) for path in files if asked.in_cluster], words
