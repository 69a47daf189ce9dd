"""The soak itself: a cluster, one run in cluster mode, faults on time, samples, and a table at the end, however it ends."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from dockerized.cluster import ROOT, WORKERS, Cluster
from dockerized.engine import Engine

from mpca.cli.dev.rendering import PORTS
from mpca.errors import MpcaError
from tests.docker.soak.faults import Done, Kind, Place, drawn
from tests.docker.soak.slopes import Sample, Slope, criterion, slopes, table, to_json
from tests.docker.support import nothing_runs_on_workers, submit
from tests.hadoop.support import only

__all__ = ["Soak", "soak"]

AGENTS = 2
FAULT_EVERY_S, SAMPLE_EVERY_S, LOOK_EVERY_S = 120.0, 60.0, 1.0
START_S, RECOVERY_S, END_S, YARN_S = 600.0, 480.0, 420.0, 180.0
_MIB = 1 << 20
#: Prints the lines of a run's records, as they come to HDFS, in the client.
_READER = """
import sys, time
from mpca.storage import Location, joined
from mpca.storage.webhdfs import WebHdfsStore
store, at = WebHdfsStore(Location.parse("webhdfs://namenode:9870" + sys.argv[1]), patience_s=5.0), 0
while True:
    try:
        new = joined(store, at)
    except OSError:
        new = b""
    at += len(new)
    sys.stdout.buffer.write(new)
    sys.stdout.flush()
    time.sleep(2)
"""
#: Roles of processes, by words of their command lines; a process has the first that fits.
_ROLES = (
    ("executor", "YarnCoarseGrainedExecutorBackend"),
    ("driver JVM", "org.apache.spark.deploy.yarn.ApplicationMaster"),
    ("driver Python", "mpca_run.py"),
    ("agent", "mpca.agent."),
    ("namenode", ".namenode.NameNode"),
    ("datanode", ".datanode.DataNode"),
    ("nodemanager", ".nodemanager.NodeManager"),
    ("resourcemanager", ".resourcemanager.ResourceManager"),
)


@dataclass
class Met:
    """A fault that was met, in seconds since the soak began."""

    kind: str
    where: str
    at: float
    lasted_s: float | None = None
    recovered_s: float | None = None  # after its begin; None: it did not
    failed: str = ""


@dataclass
class Report:
    """What is known so far; `write` may be called at any time."""

    seed: int
    hours: float
    faults: list[Met] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    cycles: int = 0
    failed: str = ""

    def found(self) -> list[Slope]:
        return slopes(self.samples)

    @property
    def bad(self) -> bool:
        """Whether the run failed, agents did not come back, or something grows."""
        return bool(self.failed) or any(one.failed for one in self.faults) or any(one.grows for one in self.found())

    def lines(self) -> list[str]:
        said = [f"seed {self.seed}, {len(self.faults)} faults, {self.cycles} cycles"]
        for one in self.faults:
            took = one.failed or (f"recovered after {one.recovered_s:.0f} s" if one.recovered_s is not None else "not over")
            said.append(f"{one.at:7.0f} s  {one.kind:24} {one.where:40} {took}")
        return [*said, *table(self.found()), criterion(), *([f"FAILED: {self.failed}"] if self.failed else [])]

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "hours": self.hours,
            "failed": self.failed,
            "bad": self.bad,
            "cycles": self.cycles,
            "summary": self.summary,
            "faults": [asdict(one) for one in self.faults],
            "slopes": to_json(self.found()),
            "criterion": criterion(),
            "samples": [[one.at, one.kind, one.process, one.figure, one.value] for one in self.samples],
        }


class Failed(Exception):
    """The soak cannot go on."""


class Ledger:
    """The run's records, read by a process in the client."""

    def __init__(self, cluster: Cluster, folder: str) -> None:
        self._lines: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            cluster.inside("client", "python", "-u", "-c", _READER, folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=cluster.docker.env,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, name="soak-ledger", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(json.loads(line))

    def __len__(self) -> int:
        return len(self._lines)

    def since(self, at: int, kind: str) -> list[dict[str, Any]]:
        """Records of a kind from a position on."""
        return [one for one in self._lines[at:] if one["kind"] == kind]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(10)


class Soak:
    """One run on a cluster that is up. It is the `Grounds` of faults."""

    def __init__(self, cluster: Cluster, report: Report, say: Callable[[str], None]) -> None:
        self.cluster, self.report, self._say = cluster, report, say
        self._began = time.monotonic()
        self._next_sample = 0.0
        self._ending = False
        folder = f"/soak/{report.seed}"
        self._folder = folder
        sets = (
            f"run.dir=hdfs://namenode:8020{folder}",
            f"backup.path=hdfs://namenode:8020/soak-backups/{report.seed}",
            f"cluster.agents={AGENTS}",
            f"objectives.max_time={2 * report.hours + 1}h",  # it is ended by a file; this is for a soak that was killed
            "objectives.target_error=0",
            "backup.interval=10s",
            "cluster.cycle_deadline=30s",
            "spark.yarn.am.attemptFailuresValidityInterval=5m",  # drivers are killed more often than YARN forgives in an hour
            # heaps are there from the beginning, so that what grows is no heap that fills for the first time
            "spark.executor.extraJavaOptions=-Xms512m -XX:+AlwaysPreTouch",
            "spark.driver.extraJavaOptions=-Xms700m -XX:+AlwaysPreTouch",
        )
        words = ("--deploy-mode", "cluster", "--train", str(ROOT / "tests" / "docker" / "soak" / "train.py"))
        self._submitted = submit(cluster, f"soak-{report.seed}", *sets, words=words)
        self._ledger = Ledger(cluster, folder)

    # ---- what faults need

    @property
    def backups(self) -> str:
        return f"/soak-backups/{self.report.seed}"

    def away(self) -> Place:
        driver = self.driver_host()
        found = [one for one in self._places().values() if one.host != driver]
        if not found:
            raise Failed(f"all agents are on {driver}, where the driver is")
        return min(found, key=lambda one: one.index)

    def driver_host(self) -> str:
        id = only(self._submitted.text())
        return str(self.cluster.resourcemanager(f"apps/{id}")["app"]["amHostHttpAddress"]).partition(":")[0]

    def signal(self, host: str, name: str, pid: int) -> None:
        self.on(host, "kill", f"-{name}", str(pid))

    def pids(self, host: str, words: str) -> list[int]:
        found = [int(one) for one in self.cluster.run(host, "pgrep", "-f", words).stdout.split()]
        if not found:
            raise Failed(f"no process of {words!r} on {host}")
        return found

    def on(self, host: str, *words: str) -> None:
        done = self.cluster.run(host, *words)
        if done.returncode:
            raise Failed(f"{' '.join(words)} on {host}: {done.stderr.strip()}")

    def container(self, what: str, host: str) -> None:
        getattr(self.cluster, what)(host)

    def admin(self, *words: str) -> None:
        java = (
            'exec "$JAVA_HOME/bin/java" -cp "$HADOOP_CONF_DIR:$MPCA_HADOOP_JARS/*" org.apache.hadoop.hdfs.tools.DFSAdmin "$@"'
        )
        self.on("client", "bash", "-c", java, "admin", *words)

    def yarn_says(self, host: str, state: str) -> None:
        self._wait(lambda: self.cluster.nodes()[host] == state, f"YARN has {host} {state}", YARN_S)

    # ---- the run

    def start(self) -> None:
        """Until all agents take part."""
        self._wait(lambda: self._full(0), "the first cycle of all agents", START_S)
        self._began, self._next_sample = time.monotonic(), 0.0
        self._say(f"training began; {self.report.hours:g} h, a fault every {FAULT_EVERY_S:.0f} s, seed {self.report.seed}")

    def faults(self) -> None:
        """One after the other, until the time is over. A fault that took longer puts the next one off."""
        end = self.report.hours * 3600
        for number, (kind, lasts_s) in enumerate(drawn(self.report.seed), 1):
            at = max(number * FAULT_EVERY_S, self._now())
            if at + FAULT_EVERY_S > end:
                break
            self._rest(at)
            self._meet(kind, lasts_s)

    def finish(self) -> None:
        """Let train functions return when the time is over; how the run has ended, and what it leaves."""
        self._rest(self.report.hours * 3600)
        self._ending = True
        for worker in WORKERS:
            self.on(worker, "touch", "/data/soak-end")
        self._wait(lambda: self._submitted.process.poll() is not None, "the end of the run", END_S)
        self.report.cycles = len(self._ledger.since(0, "cycle"))
        code = self._submitted.process.returncode
        reader = "import sys; from mpca.storage import Location; from mpca.storage.webhdfs import WebHdfsStore\n"
        reader += "store = WebHdfsStore(Location.parse('webhdfs://namenode:9870' + sys.argv[1]))\n"
        reader += "sys.stdout.write(store.read('summary.json').decode())"
        said = self.cluster.run("client", "python", "-c", reader, self._folder).stdout
        self.report.summary = json.loads(said) if said else None
        status = (self.report.summary or {}).get("status")
        if code != 0 or status != "reached":  # every train function returned
            raise Failed(f"the run ended with exit code {code}, status {status}:\n{self._submitted.text()[-2000:]}")
        where = f"hdfs://namenode:8020{self.backups}"
        checked = self.cluster.run("client", "python", "-m", "mpca.cli", "backups", "verify", where, "--json")
        if checked.returncode:
            raise Failed(f"backups are damaged: {checked.stdout}{checked.stderr}")
        nothing_runs_on_workers(self.cluster)

    def close(self) -> None:
        """End what still runs."""
        self._ledger.close()
        if self._submitted.process.poll() is None:
            with contextlib.suppress(OSError, ValueError):
                id = only(self._submitted.text())
                address = f"http://{self.cluster.address('resourcemanager')}:{PORTS['resourcemanager_http']}"
                url = f"{address}/ws/v1/cluster/apps/{id}/state?user.name=root"
                kill = urllib.request.Request(url, b'{"state": "KILLED"}', {"Content-Type": "application/json"}, method="PUT")
                urllib.request.urlopen(kill, timeout=30).close()
        self._submitted.close()

    # ---- inside

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _places(self) -> dict[int, Place]:
        """The newest incarnation of each agent."""
        found = {}
        for one in self._ledger.since(0, "agent"):
            if one["event"] in ("started", "replaced"):
                found[one["index"]] = Place(one["index"], one["incarnation"], one["host"], one["pid"])
        return found

    def _full(self, since: int) -> list[dict[str, Any]]:
        return [one for one in self._ledger.since(since, "cycle") if len(one["contributors"]) == AGENTS]

    def _meet(self, kind: Kind, lasts_s: float) -> None:
        since, attempts = len(self._ledger), len(self._ledger.since(0, "run"))
        met = Met(kind.name, "", self._now())
        self.report.faults.append(met)
        try:
            done = kind.begin(self)
            met.where = done.where
            self._say(f"{met.at:7.0f} s  {kind.name}: {done.where}")
            if "refused" in kind.waits_for:
                self._wait(lambda: [one for one in self._ledger.since(since, "backup") if not one["ok"]], "refused", RECOVERY_S)
            if done.without is not None:
                index = str(done.without.index)
                self._wait(
                    lambda: [one for one in self._ledger.since(since, "cycle") if index in one["left_out"]], "left out", 60
                )
            self._rest(met.at + lasts_s)
            if done.undo is not None:
                done.undo()
            met.lasted_s = round(self._now() - met.at, 1)
            self._recover(kind, done, since, attempts)
            met.recovered_s = round(self._now() - met.at, 1)
            self._say(
                f"{self._now():7.0f} s  recovered after {met.recovered_s:.0f} s, of which the fault was {met.lasted_s:.0f} s"
            )
        except Failed as error:
            met.failed = str(error)
            raise

    def _recover(self, kind: Kind, done: Done, since: int, attempts: int) -> None:
        """Each thing that is waited for comes after the one before it; a full cycle comes last."""
        after = since if done.agent is not None or "attempt" in kind.waits_for else len(self._ledger)
        if "attempt" in kind.waits_for:
            self._wait(lambda: len(self._ledger.since(0, "run")) > attempts, "a new attempt of the driver", RECOVERY_S)
            after = len(self._ledger)
        if done.agent is not None:
            index, before = str(done.agent.index), done.agent.incarnation

            def anew() -> bool:
                full = self._full(after)
                return any(one["contributors"][index]["incarnation"] > before for one in full)

            self._wait(anew, f"a cycle of all with a new agent {index}", RECOVERY_S)
        if "backup" in kind.waits_for:
            self._wait(lambda: [one for one in self._ledger.since(after, "backup") if one["ok"]], "a backup", RECOVERY_S)
        self._wait(lambda: self._full(after), "a cycle of all agents", RECOVERY_S)

    def _rest(self, until: float) -> None:
        while self._now() < until:
            self._look()
            time.sleep(min(LOOK_EVERY_S, max(0.0, until - self._now())))

    def _wait(self, there: Callable[[], Any], what: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(OSError):  # a daemon that is away or too busy to answer
                if there():
                    return
            if time.monotonic() > deadline:
                raise Failed(f"{what}: not within {limit_s:.0f} s\n{self._submitted.text()[-2000:]}")
            self._look()
            time.sleep(LOOK_EVERY_S)

    def _look(self) -> None:
        """Whether the run still lives, and a sample each minute."""
        if not self._ending and self._submitted.process.poll() is not None:
            raise Failed(f"the run ended with exit code {self._submitted.process.returncode}\n{self._submitted.text()[-2000:]}")
        if self._now() >= self._next_sample:
            self._next_sample = self._now() + SAMPLE_EVERY_S
            self.report.samples += self._sampled()
            self.report.cycles = len(self._ledger.since(0, "cycle"))

    def _sampled(self) -> Iterator[Sample]:
        at = round(self._now(), 1)
        for role, process in self._processes():
            with contextlib.suppress(psutil.Error, OSError):
                name, memory, files = f"{process.pid}", process.memory_info().rss / _MIB, process.num_fds()
                yield Sample(at, role, name, "memory_mib", round(memory, 1))
                yield Sample(at, role, name, "descriptors", files)
        with contextlib.suppress(OSError, LookupError, ValueError):  # the NameNode is away
            state = self.cluster.jmx("FSNamesystem")
            yield Sample(at, "hdfs", "hdfs", "hdfs_blocks", state["BlocksTotal"])
            yield Sample(at, "hdfs", "hdfs", "hdfs_files", state["FilesTotal"])
        for worker in WORKERS:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                yield from self._logs(at, worker)

    def _logs(self, at: float, worker: str) -> Iterator[Sample]:
        """Of containers that the application has there; a worker that is down or paused has none to show."""
        command = "cd /data/nodemanager/logs && du -sb application_*/container_*"
        done = self.cluster.run(worker, "timeout", "10", "bash", "-c", command, timeout_s=20)
        for line in done.stdout.splitlines():
            size, path = line.split("\t")
            yield Sample(at, "container logs", f"{worker} {path.rpartition('/')[2]}", "log_mib", round(int(size) / _MIB, 3))

    def _processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """Of the cluster's containers, which are this machine's processes too."""
        inside = set()
        for host in self.cluster.running():
            if host == "client":  # only submits
                continue
            top = self.cluster.docker.call("docker", "top", self.cluster.container(host), "-eo", "pid")
            inside |= {int(one) for one in top.stdout.split()[1:]}
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            line = " ".join(words)
            if process.pid in inside and words and Path(words[0]).name not in ("bash", "sh", "tini"):
                role = next((role for role, one in _ROLES if one in line), None)
                if role is not None:
                    yield role, process


def soak(hours: float, seed: int, folder: Path, say: Callable[[str], None]) -> int:
    """Run it all; the report is in `folder`, and printed, however it ends.

    Returns:
        The exit code.
    """
    report = Report(seed, hours)
    engine = Engine.ready(say)
    cluster = Cluster("mpca-soak", engine, folder / "cluster", say, small_disks=dict.fromkeys(WORKERS, "1g"))
    code = 0
    try:
        cluster.down()
        cluster.up()
        one = Soak(cluster, report, say)
        try:
            one.start()
            one.faults()
            one.finish()
        finally:
            one.close()
    except (Failed, MpcaError, AssertionError, OSError, subprocess.SubprocessError) as error:
        report.failed = f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        report.failed, code = "interrupted", 130
    finally:
        for line in report.lines():
            say(line)
        path = folder / "soak.json"
        path.write_text(json.dumps(report.to_json(), indent=1) + "\n")
        say(f"written: {path}")
        cluster.down()
        engine.stop(say)
    return code or int(report.bad)
