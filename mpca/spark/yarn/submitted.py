"""What a driver that spark-submit started knows of itself: its session, its application, which attempt it is, since when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpca.config import environment
from mpca.errors import EnvironmentRefused, JvmError, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ApplicationInfo", "check_alive", "cluster_run_folder", "submitted_session"]

#: What spark-submit sets for the Python program that it starts.
_STARTED_BY = "PYSPARK_GATEWAY_PORT"


@dataclass(frozen=True, slots=True)
class ApplicationInfo:
    """What a session's application is, and since when."""

    id: str  # YARN's; Spark's own for other masters
    attempt: int  # 1, 2, ... in cluster mode, where YARN starts a driver again; else 1
    yarn: bool
    cluster_mode: bool  # the driver runs in a container
    submitted: float | None  # wall clock seconds at which spark-submit began; None: not by spark-submit
    began: float  # ... at which its session began
    home: str  # cluster mode: URL of the user's folder on the cluster's file system

    @classmethod
    def of(cls, session: SparkSession) -> ApplicationInfo:
        context: Any = session.sparkContext
        conf = context.getConf()
        attempt = context._jsc.sc().applicationAttemptId()
        # Sessions that are no program's have it too: a notebook's may be hours old.
        since = conf.get("spark.app.submitTime") if environment(_STARTED_BY) else None
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
        """Where a run lies that was given no folder; empty: on this machine.

        In cluster mode the driver's container is gone after the run, and a later attempt must find the same folder.
        """
        if self.cluster_mode and self.home.startswith("hdfs://"):
            return cluster_run_folder(self.home, name, self.id)
        return ""

    def since_submit(self, wall: float) -> float:
        """Seconds since spark-submit began; 0 without one, and for a driver that YARN started again."""
        if self.submitted is None or self.attempt > 1:
            return 0.0
        return max(0.0, wall - self.submitted)

    def stages(self) -> dict[str, float]:
        """What spark-submit took until a session began: JVM and driver; in cluster mode files and a container too."""
        if self.submitted is None or self.attempt > 1:
            return {}
        return {"submit": max(0.0, self.began - self.submitted)}


def check_alive(session: SparkSession) -> None:
    """Raises RunFailed when the session was stopped from outside: no executor comes any more, and no event says so.

    In client mode YARN ends an application under its driver, when a person kills it or its master is lost too often.
    """
    from mpca.spark.jvm.errors import jvm_errors

    context: Any = session.sparkContext
    with jvm_errors("looking for the session"):
        stopped = context._jsc.sc().isStopped()
    if stopped:
        raise RunFailed(
            f"the application has ended under the run: {context.applicationId} was killed, or its application master was lost; "
            "Spark's lines above and the ResourceManager say which"
        )


def _home(context: Any) -> str:
    system = context._jvm.org.apache.hadoop.fs.FileSystem.get(context._jsc.hadoopConfiguration())
    return str(system.getHomeDirectory().toString())


def cluster_run_folder(home: str, name: str, application: str) -> str:
    """The run folder of an application in cluster mode, below the user's own."""
    return f"{home}/mpca/runs/{name}-{application}"


def submitted_session() -> SparkSession | None:
    """The session of the spark-submit that started this process; None if none did.

    Raises:
        EnvironmentRefused: Spark does not start; with the JVM's own words.
    """
    if not environment(_STARTED_BY):
        return None
    from pyspark.sql import SparkSession

    from mpca.spark.jvm.errors import jvm_errors

    try:
        with jvm_errors("Spark does not start"):
            return SparkSession.builder.getOrCreate()
    except JvmError as error:
        raise EnvironmentRefused(str(error)) from error
