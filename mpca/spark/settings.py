"""The settings that keep a run alive, each with its reason: one table for every place that needs them.

`mpca.session()` and `mpca submit` set them. `run/checks.py` refuses other values, or warns about them, in a session that the
user made. The administrators' page (docs/administrators.md) shows them, and a test holds the page to this table. Sizes are not
here: `yarn/submit.py` and `yarn/sizing.py` compute them for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpca.spark.jvm.bridge import PLUGIN
from mpca.units import parse_duration

__all__ = ["TABLE", "Setting", "advice", "settings", "table_rows"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    key: str
    value: str
    why: str  # what happens without it
    yarn: bool = False  # only where YARN gives the executors
    otherwise: str = ""  # what the engine does about another value: "refused", "warned", or nothing
    at_least: bool = False  # a larger value is as good


TABLE: tuple[Setting, ...] = (
    Setting("spark.plugins", PLUGIN, "Events of agents reach the driver through it.", otherwise="refused"),
    Setting("spark.speculation", "false", "A second copy of a task would ask the same agent twice.", otherwise="refused"),
    Setting(
        "spark.dynamicAllocation.enabled",
        "false",
        "Executors that hold agents would be taken away.",
        otherwise="refused",
    ),
    Setting(
        "spark.locality.wait.process",
        "1h",
        "A pinned task waits for its executor. Only this level: the general one would hold up your own stages.",
        otherwise="warned",
        at_least=True,
    ),
    Setting("spark.broadcast.compress", "false", "Random floats do not compress."),
    Setting("spark.broadcast.blockSize", "1m", "With pieces of 4 MiB the driver sends nearly everything itself."),
    Setting("spark.shuffle.io.retryWait", "1s", "A peer that is gone is passed over, not waited for."),
    Setting(
        "spark.shuffle.io.connectionCreationTimeout",
        "4s",
        "Spark reads a task's code from any executor that has it, without regard to a deadline. From one that has just died "
        "it took 75 s, in which an agent that was well took no part: one try, three more, then another is asked.",
    ),
    Setting(
        "spark.shuffle.io.connectionTimeout",
        "10s",
        "The same of one that was cut off, where the connection stays and nothing comes: 25 s with both. From one that stands "
        "still, whose host goes on taking connections, 43 s.",
    ),
    Setting(
        "spark.cleaner.periodicGC.interval",
        "1min",
        "Every job broadcasts its tasks' code; what is unused goes when the driver collects garbage, seldom by itself.",
    ),
    Setting("spark.ui.retainedJobs", "200", "A run has thousands of small jobs; the driver keeps each one's history."),
    Setting("spark.ui.retainedStages", "200", "The same for stages."),
    Setting("spark.ui.retainedTasks", "2000", "The same for tasks."),
    Setting(
        "spark.rpc.askTimeout",
        "20min",
        "Must be above YARN's yarn.nm.liveness-monitor.expiry-interval-ms (10 minutes, noticed after up to 13). After a lost "
        "NodeManager the driver asks the application master why, which knows only when YARN has noticed; with a shorter "
        "time-out the driver drops the master, and the application ends as SUCCEEDED in the middle of the run.",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting(
        "spark.rpc.io.connectionTimeout",
        "20min",
        "The same for the connection itself, which counts as dead when it was quiet with a question open.",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting(
        "spark.yarn.am.clientModeTreatDisconnectAsFailed",
        "true",
        "Client mode: an application whose driver is gone must not read SUCCEEDED.",
        yarn=True,
    ),
    Setting(
        "spark.yarn.maxAppAttempts",
        "4",
        "Cluster mode: a driver that dies is started again and goes on from its newest backup. YARN takes the smaller of this "
        "and its own yarn.resourcemanager.am.max-attempts (2).",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting(
        "spark.yarn.am.attemptFailuresValidityInterval",
        "1h",
        "Older failures of the driver are forgotten: a run of weeks may lose more drivers than it has attempts.",
        yarn=True,
    ),
    Setting(
        "spark.executor.maxNumFailures",
        "1000",
        "By default the application ends after twice as many lost executors as it has. The engine replaces them, and starts "
        "no more agents on an executor where they die again and again.",
        yarn=True,
        otherwise="warned",
        at_least=True,
    ),
    Setting("spark.executor.failuresValidityInterval", "1h", "Older losses of executors are forgotten.", yarn=True),
    Setting(
        "spark.scheduler.minRegisteredResourcesRatio",
        "0",
        "Each agent starts when its executor is there, not when most of them are.",
        yarn=True,
    ),
    Setting(
        "spark.hadoop.dfs.client.retry.policy.enabled",
        "true",
        "While a NameNode restarts a write waits; by default every call fails at once.",
        yarn=True,
        otherwise="warned",
    ),
    Setting(
        "spark.eventLog.rolling.enabled",
        "true",
        "Where the event log is on, a run of weeks writes files that can be removed, not one without end.",
        yarn=True,
    ),
    Setting("spark.eventLog.rolling.maxFileSize", "128m", "The size of one of them.", yarn=True),
    Setting(
        "spark.authenticate",
        "true",
        "Without it whoever reaches a port of the driver can have code run as you. YARN hands the secret out. A value in the "
        "cluster's `spark-defaults.conf` stands.",
        yarn=True,
        otherwise="warned",
    ),
    Setting(
        "spark.shuffle.service.enabled",
        "false",
        "Executors that authenticate cannot register with a shuffle service that does not, and end. Nothing here needs one.",
        yarn=True,
    ),
)


def settings(yarn: bool = False) -> dict[str, str]:
    """Settings that a session is started with.

    Args:
        yarn: whether YARN gives the executors.
    """
    return {one.key: one.value for one in TABLE if yarn or not one.yarn}


def advice(conf: Mapping[str, str]) -> list[str]:
    """One line for each setting of a session that may end a long run early. The run is not refused for it.

    Args:
        conf: the session's settings.
    """
    yarn = conf.get("spark.master", "").startswith("yarn")
    lines = []
    for one in TABLE:
        if one.otherwise != "warned" or (one.yarn and not yarn):
            continue
        if one.key == "spark.yarn.maxAppAttempts" and conf.get("spark.submit.deployMode") != "cluster":
            continue
        seen = conf.get(one.key)
        if seen is None or not _as_good(one, seen):
            shown = "not set" if seen is None else seen
            lines.append(f"{one.key} = {shown}: should be {one.value}{' or more' if one.at_least else ''}. {one.why}")
    return lines


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
