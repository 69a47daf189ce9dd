"""Spark sessions for runs: the embedded session with several executor JVMs on this machine, and the settings of every session.

The embedded session is a ``local-cluster``: its executors are real JVMs that are killed and replaced like a cluster's. Spark
writes their files under SPARK_HOME, which for a pip installation lies inside site-packages. So the session gets a SPARK_HOME
of its own, a folder of links in the caller's work folder, and nothing is written anywhere else.

Other users of the machine are kept out: Spark's processes ask each other for a secret that is made for the session, its web
pages answer their owner alone, its folder is closed to others, and settings reach the JVM in a file and not as arguments.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from mpca.environment import child_environment
from mpca.errors import EnvironmentRefused, JvmError, RunFailed
from mpca.private import FOLDER, opener
from mpca.redaction import MASK, properties, secrets_of
from mpca.spark.jvm.classes import archive_options, class_path
from mpca.spark.jvm.jar import OWNER_FILTER, own_line
from mpca.spark.jvm.log import first_error
from mpca.spark.run.checks import check_driver_host, check_heaps, check_session
from mpca.spark.run.limits import check_connections, check_limits
from mpca.spark.settings import settings
from mpca.timeouts import EXECUTORS_END_S, LEFT_JVM_END_S, SESSION_END_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "check_executors", "check_session", "limit_reads", "session"]

#: Settings that any session needs for a run, also one that a user submits by hand.
SETTINGS: Mapping[str, str] = settings()
#: Many small JVMs share this machine with the agents: one collector thread each, no files in /tmp, and no optimizing
#: compiler, which took half of two cores for the first minute (the tests here need a fifth less CPU without it).
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
#: A file in ``spark/`` that says: mpca made this folder, and may remove it.
_MARK = ".made-by-mpca"
#: Variables by which pyspark refuses a driver beside a session of Spark Connect, and takes the JVM of a spark-submit that has
#: started this process in place of one of its own.
_OTHERS = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "PYSPARK_GATEWAY_PORT")
#: When every executor was started this often without success, the run gives up.
_STARTS = 4
_LOG_CONF = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.mpca.name = mpca
logger.mpca.level = INFO
"""


@contextmanager
def session(
    work_dir: str | os.PathLike[str] | None = None,
    *,
    executors: int,
    agents_per_executor: int = 1,
    executor_memory: int = 1 << 30,
    driver_memory: int = 1 << 30,
    conf: Mapping[str, str] | None = None,
    name: str = "mpca",
    ui: bool = False,
    log_level: str = "WARN",
) -> Iterator[SparkSession]:
    """An embedded session, ended with everything it started and wrote.

    Args:
        work_dir: an existing folder; Spark's files go into ``spark/`` in it. That is removed at the end, and also at the
            beginning if a killed driver left it there. None: a temporary folder.
        executors: executor JVMs on this machine.
        agents_per_executor: each agent takes two cores of its executor (they are slots, not real cores).
        executor_memory: bytes of an executor's heap.
        driver_memory: bytes of the driver's heap.
        conf: more Spark settings, which win over ours; those in `spark.ui.filters` are added to ours.
        name: what Spark calls the application.
        ui: whether Spark serves its web page, to this user on this machine.
        log_level: of Spark's own logs, which go to ``spark/driver.log`` and the executors' folders.

    Raises:
        EnvironmentRefused: no jar of ours fits, or it is not built, Java is missing, or another session lives in this process.
        ConfigError: no run can live with a setting in `conf`.
    """
    jar = own_line().jar
    if not jar.is_file():
        raise EnvironmentRefused(f"the JVM part is not built: {jar} is missing; run `make setup`, or `mvn package` in jvm/")
    with ExitStack() as stack:
        folder = work_dir if work_dir is not None else stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-"))
        home = Path(folder).resolve() / "spark"
        chosen = _chosen(home, executors, agents_per_executor, executor_memory, driver_memory, conf or {}, name, ui)
        _check(chosen, executors, agents_per_executor)
        _make_home(home, log_level)
        stack.enter_context(_set_aside())
        gateway = None
        try:
            gateway = _launch(home, chosen)
            yield _open(gateway, home, chosen)
        finally:
            # the gateway may be unknown: a signal can come while pyspark still waits for its port
            started = _working_in(home, psutil.Process().children(recursive=True))
            _stop(gateway)
            _end(started)
            _remove(home)


def _check(chosen: Mapping[str, str], executors: int, agents_per_executor: int) -> None:
    """Refuse a session with which no run can live, or beside another one."""
    from pyspark import SparkContext

    check_session(chosen, agents=executors * agents_per_executor, agents_per_executor=agents_per_executor)
    check_heaps(chosen)
    check_driver_host(chosen)
    if chosen["spark.master"].startswith("local"):
        check_limits(executors, executors * agents_per_executor)
    else:
        check_connections(executors)
    active = SparkContext._active_spark_context
    if active is not None and str(active.master).partition("[")[0] != "local":
        raise EnvironmentRefused("this process has a Spark session already; stop it, or run on it: mpca.Distributor(spark=...)")


def _chosen(
    home: Path,
    executors: int,
    agents_per_executor: int,
    executor_memory: int,
    driver_memory: int,
    conf: Mapping[str, str],
    name: str,
    ui: bool,
) -> dict[str, str]:
    """All settings of an embedded session; arguments as of `session`, `home` is its own folder."""
    mebibytes = executor_memory >> 20
    jar = own_line().jar
    java_options = f"{_JAVA_OPTIONS} {archive_options()} -Djava.io.tmpdir={home / 'local'}"
    chosen = {
        **SETTINGS,
        "spark.app.name": name,
        "spark.master": f"local-cluster[{executors},{2 * agents_per_executor},{mebibytes}]",
        "spark.executor.memory": f"{mebibytes}m",
        "spark.driver.memory": f"{driver_memory >> 20}m",
        "spark.driver.extraClassPath": f"{class_path()}:{jar}",
        "spark.executor.extraClassPath": f"{class_path()}:{jar}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
        # However often executors are killed, the application goes on.
        "spark.deploy.maxExecutorRetries": "-1",
        **conf,
    }
    if chosen["spark.master"].startswith("local-cluster"):  # other daemons have no secret, or one of their own
        chosen = {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(32), **chosen}
    chosen["spark.ui.filters"] = ",".join(filter(None, (OWNER_FILTER, chosen.get("spark.ui.filters"))))
    return chosen


def _make_home(home: Path, log_level: str) -> None:
    if (home / _MARK).is_file() and not home.is_symlink():
        _clear(home)
    try:
        home.mkdir(FOLDER)  # closed to others, and so is everything that the JVMs make in it
        (home / _MARK).touch()
    except FileExistsError:
        raise EnvironmentRefused(
            f"mpca did not make the folder that Spark needs: {home}; move it away, or name another run folder"
        ) from None
    except OSError as error:
        raise EnvironmentRefused(f"Spark's work folder cannot be made: {home}: {error.strerror}") from error
    try:
        _fill(home, log_level)
    except OSError as error:
        _remove(home)
        raise EnvironmentRefused(f"Spark's work folder cannot be made: {home}: {error.strerror}") from error


def _clear(home: Path) -> None:
    """Remove what the session of a killed driver left, once its JVMs, which end by themselves, write into it no more."""
    _, left = psutil.wait_procs(_working_in(home, psutil.process_iter(), "java"), timeout=LEFT_JVM_END_S)
    if left:
        raise EnvironmentRefused(
            f"a JVM of an earlier session works in {home}: pid {left[0].pid}; end it, or name another run folder"
        )
    _remove(home)
    if home.exists():
        raise EnvironmentRefused(
            f"what an earlier session left cannot be removed: {home}; remove it, or name another run folder"
        )


def _fill(home: Path, log_level: str) -> None:
    import pyspark

    for entry in Path(pyspark.__file__).resolve().parent.iterdir():
        if entry.name in ("jars", "bin", "sbin", "python"):
            (home / entry.name).symlink_to(entry)
    (home / "local").mkdir()
    (home / "conf").mkdir()
    (home / "conf" / "log4j2.properties").write_text(_LOG_CONF.format(level=log_level.lower()))


@contextmanager
def _environment(**changes: str) -> Iterator[None]:
    """Change the environment that pyspark's launcher reads, and change it back afterwards."""
    before = child_environment()
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


@contextmanager
def _defaults(folder: Path, conf: Mapping[str, str]) -> Iterator[None]:
    """Put the settings where a starting JVM finds them. As arguments, everybody could read them in /proc."""
    path = folder / "spark-defaults.conf"
    with open(path, "x", encoding="utf-8", opener=opener) as file:
        file.write(properties(conf))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _launch(home: Path, conf: Mapping[str, str]) -> Any:
    """The driver's JVM, with its output in driver.log."""
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    log = home / "driver.log"
    with (
        log.open("wb") as sink,
        _defaults(home / "conf", conf),
        _environment(
            SPARK_HOME=str(home),
            SPARK_CONF_DIR=str(home / "conf"),
            SPARK_LOCAL_IP="127.0.0.1",
            SPARK_LOCAL_HOSTNAME="localhost",
        ),
    ):
        try:
            # A session of its own: a signal to the terminal's group must end the run in order, not its JVMs.
            return launch_gateway(None, {"stdout": sink, "stderr": sink, "start_new_session": True})
        except PySparkException as error:
            said = _masked(first_error(log.read_text(errors="replace")), conf)
            raise EnvironmentRefused(
                f"the driver's JVM did not start: {said or error}; {own_line().java} must be on PATH or in JAVA_HOME"
            ) from error


def _open(gateway: Any, home: Path, settings: Mapping[str, str]) -> SparkSession:
    """Open the session on its JVM.

    Raises:
        EnvironmentRefused: Spark does not start; with the JVM's first error, since the JVM is gone afterwards.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from mpca.spark.jvm.errors import jvm_errors

    try:
        with jvm_errors("Spark does not start"):
            conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm).setAll(list(settings.items()))
            context = SparkContext(conf=conf, gateway=gateway)
            limit_reads(context._accumulatorServer)
            context.pythonExec = sys.executable  # for Spark's Python functions; else the first python3 of PATH
            return SparkSession(context)
    except JvmError as error:
        # The exception may only be a consequence: "cannot call methods on a stopped SparkContext".
        said = first_error((home / "driver.log").read_text(errors="replace"))
        raise EnvironmentRefused(_masked(f"Spark does not start: {said}" if said else str(error), settings)) from error


def _masked(text: str, conf: Mapping[str, str]) -> str:
    for value in filter(None, map(conf.get, secrets_of(conf))):
        text = text.replace(value, MASK)
    return text


def check_executors(work_dir: str | os.PathLike[str], wanted: int, conf: Mapping[str, str]) -> None:
    """Check that the executors of a session in this folder do not end again and again: Spark would start them for ever.

    Args:
        work_dir: as it was given to `session`.
        wanted: executors of the session.
        conf: its settings; secret values are masked in the error.

    Raises:
        RunFailed: they do.
    """
    started = sorted((Path(work_dir).resolve() / "spark" / "work").glob("app-*/*/stderr"), key=lambda one: int(one.parent.name))
    if len(started) < wanted * _STARTS:
        return
    with suppress(OSError):
        said = next(filter(None, (first_error(one.read_text(errors="replace")) for one in started)), "")
        why = f"executors do not start: {len(started)} were, and none has come; the JVM of the first says: {said or 'nothing'}"
        if "spark.driver.host" in conf:
            why += f"; they connect to spark.driver.host = {conf['spark.driver.host']}"
        raise RunFailed(_masked(why, conf))


def limit_reads(server: socketserver.BaseServer, seconds: float = SESSION_END_S) -> None:
    """Make pyspark's server of accumulators give up on a connection that stops in the middle of a message.

    The server accepts every connection and waits for its token without end, so another user of this machine could keep a
    session from ending.

    Args:
        server: pyspark's.
        seconds: how long a read may wait.
    """
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type(handler.__name__, (handler,), {"timeout": seconds})


@contextmanager
def _set_aside() -> Iterator[None]:
    """Set aside what pyspark keeps of a session on local[*] or of Spark Connect, or of the JVM of one that was stopped, and put
    it back afterwards.

    Executors need a driver's JVM of their own. pyspark knows one JVM at a time by these attributes; a session that is there
    already has its own besides, and lives on. A SparkContext takes SIGINT for itself, and does not give it back.
    """
    kept = [(cls, name, getattr(cls, name, None)) for cls, name in _kept_by_pyspark()]
    variables = {name: value for name, value in child_environment().items() if name in _OTHERS}
    on_interrupt = signal.getsignal(signal.SIGINT)
    for cls, name, _ in kept:
        setattr(cls, name, None)
    for name in variables:
        del os.environ[name]
    try:
        yield
    finally:
        for cls, name, value in kept:
            setattr(cls, name, value)
        os.environ.update(variables)
        if threading.current_thread() is threading.main_thread() and on_interrupt is not None:
            signal.signal(signal.SIGINT, on_interrupt)


def _kept_by_pyspark() -> list[tuple[type, str]]:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return [
        (SparkContext, "_active_spark_context"),
        (SparkContext, "_gateway"),
        (SparkContext, "_jvm"),
        (SparkSession, "_instantiatedSession"),
        (SparkSession, "_activeSession"),
    ]


def _stop(gateway: Any) -> None:
    """End the session and its JVM, and clear what pyspark keeps of them: a next session has another class path."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    if active is not None:
        with suppress(Exception):  # the JVM may be dead already, and it is ended below in any case
            active.stop()
    for cls, name in _kept_by_pyspark():
        setattr(cls, name, None)
    if gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(SESSION_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _working_in(home: Path, processes: Iterable[psutil.Process], name: str = "") -> list[psutil.Process]:
    """Those of the processes whose arguments name the folder of a session: its JVMs, and what starts them."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if name in ("", process.name()) and any(str(home) in word for word in process.cmdline()):
                found.append(process)
    return found


def _end(started: list[psutil.Process]) -> None:
    """Wait for processes that end by themselves, and kill the others: an interrupted start leaves nobody to end them."""
    _, left = psutil.wait_procs(started, timeout=EXECUTORS_END_S)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=SESSION_END_S)


def _remove(home: Path) -> None:
    """Remove the folder, its mark last. Executors that are still ending may write into it for a moment."""
    until = time.monotonic() + SESSION_END_S
    while home.exists() and time.monotonic() < until:
        for entry in home.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _MARK:
                with suppress(OSError):
                    entry.unlink()
        if [entry.name for entry in home.iterdir()] in ([], [_MARK]):
            with suppress(OSError):
                (home / _MARK).unlink(missing_ok=True)
                home.rmdir()
        if home.exists():
            time.sleep(0.1)
