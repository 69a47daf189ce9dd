"""The settings that keep a run alive, each with its reason: one table for all that need them.

`mpca.session()` and `mpca submit` set them. `run/checks.py` refuses other values, or warns about them, in a session that the
user made. The administrators' page (docs/administrators.md) shows them, and a test holds the page to this table. Sizes are not
here: `yarn/submit.py` and `yarn/sizing.py` compute them for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpca.spark.jvm.jar import PLUGIN
from mpca.units import parse_duration

__all__ = ["TABLE", "Setting", "advice", "settings", "table_rows", "unlike"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    key: str
    value: str
    why: str  # the reason for the value: what another one would do
    yarn: bool = False  # only where YARN gives the executors
    otherwise: str = ""  # what the engine does about another value: "refused", "warned", or nothing
    at_least: bool = False  # a larger value is as good


_RETRY = "spark.hadoop.dfs.client.retry.policy.enabled"
TABLE: tuple[Setting, ...] = (
    Setting("spark.plugins", PLUGIN, "The plug-in brings the agents' events to the driver.", otherwise="refused"),
    Setting(
        "spark.speculation",
        "false",
        "Spark would start a second copy of a slow task, and both copies would ask the same agent.",
        otherwise="refused",
    ),
    Setting(
        "spark.dynamicAllocation.enabled",
        "false",
        "Spark would remove executors while agents train on them.",
        otherwise="refused",
    ),
    Setting(
        "spark.locality.wait.process",
        "1h",
        "A task for an agent must wait for that agent's executor. `spark.locality.wait` would delay your own jobs too.",
        otherwise="warned",
        at_least=True,
    ),
    Setting("spark.broadcast.compress", "false", "Compression costs time, and does not make parameters smaller."),
    Setting(
        "spark.broadcast.blockSize",
        "1m",
        "With larger pieces, executors pass on less to each other and the driver sends more. With 4 MiB (Spark's default) it "
        "sends nearly everything.",
    ),
    Setting("spark.shuffle.io.retryWait", "1s", "An executor should not wait long for another one that is gone."),
    Setting(
        "spark.shuffle.io.maxRetries",
        "1",
        "An executor reads the code of a task from another executor that has it. If that one hangs, each try takes as long as "
        "`spark.shuffle.io.connectionTimeout` says, and the agents of the waiting executor take no part meanwhile.",
    ),
    Setting(
        "spark.shuffle.io.connectionCreationTimeout",
        "4s",
        "An executor reads the code of a task from another executor that has it. If that one has just died, Spark tries to "
        "connect twice (see above) before it asks another one. With Spark's defaults that took 75 s, and the agents of the "
        "waiting executor took no part meanwhile.",
    ),
    Setting(
        "spark.shuffle.io.connectionTimeout",
        "10s",
        "An executor that the network has cut off keeps its connections but sends nothing. With this value and the two "
        "above, another executor is asked after 15 s; after 21 s if the process hangs and its host still accepts connections.",
    ),
    Setting(
        "spark.cleaner.periodicGC.interval",
        "1min",
        "Each job broadcasts the code of its tasks. Spark removes old broadcasts only when the driver's JVM collects garbage, "
        "which it seldom does by itself.",
    ),
    Setting(
        "spark.ui.retainedJobs",
        "200",
        "A run has thousands of small jobs, and the driver's heap would keep the history of each.",
    ),
    Setting("spark.ui.retainedStages", "200", "The driver's heap would keep the history of each stage."),
    Setting("spark.ui.retainedTasks", "2000", "The driver's heap would keep the history of each task."),
    Setting(
        "spark.rpc.askTimeout",
        "20min",
        "YARN needs up to 13 minutes to notice a lost NodeManager (yarn.nm.liveness-monitor.expiry-interval-ms is 10 minutes). "
        "The driver asks the application master why the executor was lost, and the master answers only then. If the "
        "driver waits for less time, it drops the master, and YARN ends the application as SUCCEEDED in the middle of the run.",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting(
        "spark.rpc.io.connectionTimeout",
        "20min",
        "Spark closes a connection that is quiet for this long while a question is open. The driver's question to the "
        "application master (see spark.rpc.askTimeout) must outlive a lost NodeManager.",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting(
        "spark.yarn.am.clientModeTreatDisconnectAsFailed",
        "true",
        "In client mode, YARN would show an application as SUCCEEDED although its driver died.",
        yarn=True,
    ),
    Setting(
        "spark.yarn.maxAppAttempts",
        "4",
        "In cluster mode, YARN starts a driver that died again, and the run goes on from its newest backup. YARN takes the "
        "smaller of this number and its own yarn.resourcemanager.am.max-attempts (2).",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting(
        "spark.yarn.am.attemptFailuresValidityInterval",
        "1h",
        "YARN forgets older failures of the driver. Otherwise a run of weeks would use up its attempts.",
        yarn=True,
    ),
    Setting(
        "spark.executor.maxNumFailures",
        "1000",
        "By default, Spark ends the application when it has lost twice as many executors as it has. The run replaces lost "
        "executors, and goes on.",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting("spark.executor.failuresValidityInterval", "1h", "Spark forgets older losses of executors.", yarn=True),
    Setting(
        "spark.security.credentials.retryWait",
        "2min",
        "When Kerberos gives Spark no new tokens, it asks again after an hour by default, and tokens may end before that.",
        yarn=True,
    ),
    Setting(
        "spark.scheduler.minRegisteredResourcesRatio",
        "0",
        "Each agent starts as soon as its executor is there. By default, Spark waits until most executors are.",
        yarn=True,
    ),
    Setting(
        _RETRY,
        "true",
        "While a NameNode restarts, writes to HDFS wait. By default, every call fails at once. Where `hdfs-site.xml` has two "
        "NameNodes, it is `false`: a client would wait a minute for the dead one before it asks the other.",
        yarn=True,
        otherwise="warned",
    ),
    Setting(
        "spark.eventLog.rolling.enabled",
        "true",
        "If the event log is on, Spark writes it in several files, and old ones can be removed. Otherwise one file grows for "
        "as long as the run lasts.",
        yarn=True,
    ),
    Setting("spark.eventLog.rolling.maxFileSize", "128m", "The size of one of these files.", yarn=True),
    Setting(
        "spark.authenticate",
        "true",
        "Without a secret, anybody who reaches a port of the driver can run code as you. YARN gives the secret to the "
        "executors. A value in the cluster's `spark-defaults.conf` wins over this one.",
        yarn=True,
        otherwise="warned",
    ),
    Setting(
        "spark.shuffle.service.enabled",
        "false",
        "A run needs no shuffle service. Executors that authenticate cannot register with a service that does not, and end.",
        yarn=True,
    ),
)


def settings(yarn: bool = False) -> dict[str, str]:
    """Settings that a session is started with.

    Args:
        yarn: whether YARN gives the executors.
    """
    found = {one.key: one.value for one in TABLE if yarn or not one.yarn}
    if yarn and _has_name_services():
        found[_RETRY] = "false"  # said, since `spark-defaults.conf` may have the row
    return found


def _has_name_services() -> bool:
    from mpca.storage.locations import has_name_services  # here, since the package imports numpy

    return has_name_services()


def unlike(conf: Mapping[str, str]) -> list[tuple[Setting, str | None]]:
    """Settings of a session that may end a long run early, each with the value seen. The run is not refused for them.

    Args:
        conf: the session's settings.
    """
    yarn = conf.get("spark.master", "").startswith("yarn")
    found = []
    for one in TABLE:
        if one.otherwise != "warned" or (one.yarn and not yarn):
            continue
        if one.key == "spark.yarn.maxAppAttempts" and conf.get("spark.submit.deployMode") != "cluster":
            continue
        if one.key == _RETRY and _has_name_services():
            continue
        seen = conf.get(one.key)
        if seen is None or not _as_good(one, seen):
            found.append((one, seen))
    return found


def advice(conf: Mapping[str, str]) -> list[str]:
    """One line for each of those settings."""
    return [
        f"{one.key} = {'not set' if seen is None else seen}: "
        f"should be {one.value}{' or more' if one.at_least else ''}. {one.why}"
        for one, seen in unlike(conf)
    ]


def table_rows() -> list[str]:
    """The table as Markdown, for the administrators' page."""
    rows = ["| setting | value | where | why |", "|---|---|---|---|"]
    for one in TABLE:
        where = "YARN" if one.yarn else "everywhere"
        rows.append(
            f"| `{one.key}` | `{one.value}` | {where}{f', else {one.otherwise}' if one.otherwise else ''} | {one.why} |"
        )
    return rows


def _as_good(one: Setting, seen: str) -> bool:
    if not one.at_least:
        return seen.strip().lower() == one.value
    try:
        return _amount(seen) >= _amount(one.value)
    except ValueError:
        return False


def _amount(text: str) -> float:
    """A count, or a duration as Spark writes it; a bare number counts seconds."""
    return float(text) if text.strip().isdigit() else parse_duration(text)
