"""What a driver that spark-submit started knows of itself: its session, its application, its attempt, and its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpca.environment import environment
from mpca.errors import EnvironmentRefused, JvmError, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ApplicationInfo", "check_alive", "cluster_run_folder", "settings_of", "submitted_session", "was_submitted"]

#: What spark-submit sets for the Python program that it starts.
_STARTED_BY = "PYSPARK_GATEWAY_PORT"


@dataclass(frozen=True, slots=True)
class ApplicationInfo:
    """The application of a session. Times are wall clock, in seconds since 1970."""

    id: str  # YARN's; Spark's own for other masters
    attempt: int  # 1, 2, ... in cluster mode, where YARN starts a driver again; else 1
    yarn: bool
    cluster_mode: bool  # the driver runs in a container
    submitted: float | None  # when spark-submit began; None: spark-submit did not start it
    began: float  # when its session began
    home: str  # cluster mode: URL of the user's folder on the cluster's file system

    @classmethod
    def of(cls, session: SparkSession) -> ApplicationInfo:
        context: Any = session.sparkContext
        conf = context.getConf()
        attempt = context._jsc.sc().applicationAttemptId()
        # Sessions of notebooks have this setting too, and theirs may be hours old.
        since = conf.get("spark.app.submitTime") if was_submitted() else None
        in_container = conf.get("spark.submit.deployMode") == "cluster"
        return cls(
            id=str(context.applicationId),
            attempt=int(attempt.get()) if attempt.isDefined() else 1,
            yarn=conf.get("spark.master", "").startswith("yarn"),
            cluster_mode=in_container,
            submitted=float(since) / 1000 if since else None,
            began=float(context.startTime) / 1000,
            home=_home(context) if in_container else "",
        )

    def run_folder(self, name: str) -> str:
        """The folder of a run that was given none; empty: one on this machine.

        In cluster mode the driver's container is gone after the run, and a later attempt must find the same folder.
        """
        if self.cluster_mode and self.home.startswith("hdfs://"):
            return cluster_run_folder(self.home, name, self.id)
        return ""

    def since_submit(self, wall: float) -> float:
        """Seconds from the start of spark-submit to `wall`; 0 without spark-submit, or if YARN started this driver again."""
        if self.submitted is None or self.attempt > 1:
            return 0.0
        return max(0.0, wall - self.submitted)

    def stages(self) -> dict[str, float]:
        """Seconds from spark-submit to the session: for JVM and driver, in cluster mode also for files and a container."""
        if self.submitted is None or self.attempt > 1:
            return {}
        return {"submit": max(0.0, self.began - self.submitted)}


def check_alive(session: SparkSession) -> None:
    """Check that the session was not stopped from outside. After that no executor comes any more, and no event says so.

    In client mode YARN ends an application under its driver when a person kills it, or its master is lost too often.

    Raises:
        RunFailed: the session was stopped.
    """
    from mpca.spark.jvm.errors import jvm_errors

    context: Any = session.sparkContext
    with jvm_errors("looking for the session"):
        stopped = context._jsc.sc().isStopped()
    if stopped:
        raise RunFailed(
            f"the application has ended under the run: {context.applicationId} was killed, or its application master was lost, "
            f"or never reached this driver at {context.getConf().get('spark.driver.host')}; Spark's lines above and the "
            "ResourceManager say which"
        )


def settings_of(session: SparkSession) -> dict[str, str]:
    """All settings of a session.

    Raises:
        EnvironmentRefused: it is one of Spark Connect.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise EnvironmentRefused(
            "this is a session of Spark Connect: its driver is another process, and mpca's must be in the same one to hear of "
            "executors; submit the program to the cluster (mpca submit), or leave `spark` out: then agents run on this machine"
        )
    return dict(session.sparkContext.getConf().getAll())


def _home(context: Any) -> str:
    system = context._jvm.org.apache.hadoop.fs.FileSystem.get(context._jsc.hadoopConfiguration())
    return str(system.getHomeDirectory().toString())


def cluster_run_folder(home: str, name: str, application: str) -> str:
    """The run folder of an application in cluster mode, below the user's own folder."""
    return f"{home}/mpca/runs/{name}-{application}"


def was_submitted() -> bool:
    """Whether spark-submit started this process."""
    return bool(environment(_STARTED_BY))


def submitted_session() -> SparkSession | None:
    """The session of the spark-submit that started this process; None if none did.

    Raises:
        EnvironmentRefused: Spark does not start; with the JVM's own words.
    """
    if not was_submitted():
        return None
    from pyspark.sql import SparkSession

    from mpca.spark.jvm.errors import jvm_errors

    try:
        with jvm_errors("Spark does not start"):
            return SparkSession.builder.getOrCreate()
    except JvmError as error:
        raise EnvironmentRefused(str(error)) from error
