"""Whoever waits gives up before whoever waits for it does, and every time-out stands in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from mpca import timeouts
from mpca.config.sections import BackupConfig, ClusterConfig, TrackConfig
from mpca.sim import relay
from mpca.spark.settings import TABLE
from mpca.units import parse_duration

ROOT = Path(__file__).resolve().parent.parent
#: Packages of a run; those for benches, development and the simulator have patience of their own.
ENGINE = ("agent", "api", "data", "driver", "records", "spark", "storage", "track")
#: How often something is looked at, said or shown: nobody waits for it.
HOW_OFTEN = ("EVERY", "LOOK", "POLL", "WINDOW", "INTERVAL", "SAY")

_JAVA = (ROOT / "jvm/src/main/java/org/mpca/agent/TimeOuts.java").read_text(encoding="utf-8")
#: Of the executor's JVM, in seconds.
JVM = {name: int(value.replace("_", "")) / 1000 for name, value in re.findall(r"long (\w+)_MS = ([\d_]+);", _JAVA)}
CLUSTER = ClusterConfig()
SPARK = {one.key: parse_duration(one.value) for one in TABLE if "imeout" in one.key or one.key.endswith("retryWait")}
_RETRIES = next(int(one.value) for one in TABLE if one.key == "spark.shuffle.io.maxRetries")
#: What a fetch costs from a process that hangs; Spark then asks another one.
HUNG_S = (1 + _RETRIES) * SPARK["spark.shuffle.io.connectionTimeout"] + _RETRIES * SPARK["spark.shuffle.io.retryWait"]
#: What an interrupted run does before its JVMs end.
OWN_END_S = timeouts.STOP_GRACE_S + timeouts.LAST_BACKUP_S + timeouts.TRACKERS_END_S + timeouts.CALLBACKS_END_S
#: YARN's default gives a silent node up after ten minutes, and looks every third of that time.
YARN_NODE_LOST_S = 600.0 * 4 / 3


@pytest.mark.parametrize(
    ("sooner", "later"),
    [
        # an order
        (timeouts.LATE_ALONE_S, CLUSTER.cycle_deadline),
        (timeouts.LOSS_NEWS_S, timeouts.CANCEL_AFTER_S),  # who is lost is known before a job is cancelled for its deadline
        (timeouts.CANCEL_AFTER_S, timeouts.ASK_AGAIN_S),  # executors that were cancelled can answer the question
        (timeouts.ASK_AGAIN_S, CLUSTER.cycle_deadline),
        (CLUSTER.cycle_deadline + timeouts.CANCEL_AFTER_S, timeouts.SILENT_S),  # late before it is silent
        (timeouts.SILENT_S, CLUSTER.start_timeout),  # a function that hangs is told of before the start gives up
        (CLUSTER.start_timeout, CLUSTER.finish_timeout),
        (JVM["FORK"], CLUSTER.cycle_deadline),  # the agent is started by itself then, before anybody misses it
        (HUNG_S, CLUSTER.cycle_deadline),
        (YARN_NODE_LOST_S, SPARK["spark.rpc.askTimeout"]),
        (YARN_NODE_LOST_S, SPARK["spark.rpc.io.connectionTimeout"]),
        # what failed again and again
        (10 * CLUSTER.cycle_deadline, timeouts.BARRED_S),
        (3 * CLUSTER.start_timeout, timeouts.QUARANTINE_S),  # three starts that fail fall into one window
        (timeouts.EVALUATOR_AGAIN_S, timeouts.EVALUATOR_DEATHS_S),
        # the end
        (timeouts.STOP_AGAIN_S, timeouts.STOP_ORDER_S),
        (timeouts.STOP_ORDER_S, timeouts.STOP_GRACE_S),
        (timeouts.STOP_GRACE_S + timeouts.LAST_BACKUP_S, 10.0),  # an interrupted run has about ten seconds
        (timeouts.TRACKERS_END_S, TrackConfig().finish_timeout),
        (timeouts.TRACKER_SILENT_S, TrackConfig().finish_timeout),
        (timeouts.EVALUATOR_END_S, timeouts.CHILD_END_S),
        (timeouts.EXECUTORS_END_S, timeouts.SESSION_END_S),
        (OWN_END_S + 2 * timeouts.SESSION_END_S, timeouts.LAST_LINES_S),
        (OWN_END_S + 2 * timeouts.SESSION_END_S, timeouts.RUN_END_S),
        (JVM["LAST_WORD"], JVM["DRAIN"]),
        (JVM["DRAIN"], JVM["END"]),
        (JVM["OUTPUT"], JVM["END"]),
        (JVM["END"], JVM["CLOSE"]),  # agents that are killed when a run ends are gone before the run gives up
        (JVM["CLOSE"], timeouts.SESSION_END_S),
        (JVM["END"], JVM["LEAVE"]),
        (timeouts.STOP_GRACE_S, JVM["LEAVE"]),
        (JVM["END_RUN"], timeouts.SESSION_END_S),
        # broadcasts and sums
        (JVM["DOWNLOAD_AGAIN"], timeouts.LATE_ALONE_S),  # one more try before an agent is late alone
        (timeouts.LATE_ALONE_S, JVM["RELAY_SILENCE"]),
        (JVM["RELAY_SILENCE"], CLUSTER.cycle_deadline),
        (JVM["REPAIR"], CLUSTER.cycle_deadline),
        (JVM["REMOVAL"], CLUSTER.cycle_deadline),
        (JVM["KEEPER"], JVM["ACCESS"]),
        # exchanges that agents ask for
        (JVM["DOWNLOAD_AGAIN"], JVM["SENT"]),  # others have their turn once a fetch is given up
        (HUNG_S, JVM["SENT"]),
        (JVM["SENT"], JVM["ANSWER"]),
        (JVM["SENT"], timeouts.SILENT_S),  # agents that wait behind one that hangs are not silent for that
        # HDFS
        (timeouts.BEAT_S, 5.0),  # README: records on HDFS are at most five seconds old
        (4 * timeouts.BEAT_S, timeouts.OWNER_DEAD_S),  # several beats may be lost
        (timeouts.OWNER_DEAD_S, BackupConfig().interval),  # the next attempt owns the folder before a backup is missed
        (OWN_END_S + timeouts.LAST_EVALUATION_S + timeouts.AGENTS_LAST_S, timeouts.BEFORE_TOKENS_END_S),
        (SPARK["spark.security.credentials.retryWait"], timeouts.BEFORE_TOKENS_END_S),
        (60.0, sum(timeouts.STREAM_AGAIN_S)),  # a NameNode restarts in about a minute
        (timeouts.WEBHDFS_CONNECT_S, timeouts.WEBHDFS_READ_S),
    ],
)
def test_who_waits_gives_up_first(sooner: float, later: float) -> None:
    assert sooner < later


def test_the_simulated_relay_is_as_patient_as_the_real_one() -> None:
    assert JVM["RELAY_SILENCE"] == relay.PATIENCE_S


def _numbers(path: Path) -> list[str]:
    """Module constants of a file that are numbers of seconds."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id.endswith("_S") and not any(one in target.id for one in HOW_OFTEN):
            found.append(f"{path.relative_to(ROOT)}: {target.id}")
    return found


def test_every_time_out_stands_in_one_place() -> None:
    files = [path for package in ENGINE for path in sorted((ROOT / "mpca" / package).rglob("*.py"))]
    assert len(files) > 100
    assert [one for path in files for one in _numbers(path)] == []


def test_every_time_out_of_the_jvm_stands_in_one_place() -> None:
    """What is looked at every few milliseconds is no time-out; nor is the drift of clocks that is borne."""
    assert len(JVM) == 17
    files = [path for path in sorted((ROOT / "jvm/src/main").rglob("*.java")) if path.name != "TimeOuts.java"]
    pattern = re.compile(r"static final \w+ (\w+_(?:MS|S|MILLIS|NANOS|SECONDS)) =")
    found = [f"{path.name}: {name}" for path in files for name in pattern.findall(path.read_text(encoding="utf-8"))]
    often = ("LOOK", "SLICE", "DRIFT", "GATHER", "ASK_AGAIN")
    assert [one for one in found if not any(word in one for word in often)] == []
