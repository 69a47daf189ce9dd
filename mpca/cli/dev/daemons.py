"""The daemons of a small cluster as processes of this machine: their command lines, and finding them again.

A daemon is found by a mark on its command line, which names the cluster's folder and the daemon's role, so no pid file can be
wrong. Daemons live on when their starter ends. Two workers, each with a loopback address of its own, are two hosts to Hadoop
and Spark.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from mpca.cli.dev.realm import Realm
from mpca.environment import child_environment
from mpca.errors import EnvironmentRefused

__all__ = ["DAEMONS", "JAVA_OPTIONS", "LOOPBACK", "SERVICE", "WORKERS", "Daemons", "HadoopSetup"]

LOOPBACK = "127.0.0.1"
#: Addresses of the two worker hosts.
WORKERS = ("127.0.0.2", "127.0.0.3")
#: In the order in which they are started.
DAEMONS = ("namenode", "datanode1", "datanode2", "resourcemanager", "nodemanager1", "nodemanager2")
#: The same of a cluster with two NameNodes and two ResourceManagers, and the name under which clients find the active NameNode.
_DAEMONS_HA = (
    *("journalnode", "namenode1", "namenode2", "datanode1", "datanode2"),
    *("resourcemanager1", "resourcemanager2", "nodemanager1", "nodemanager2"),
)
SERVICE = "mpca"
#: What a ResourceManager has ports for.
_RESOURCEMANAGER = ("rpc", "scheduler", "tracker", "admin", "http")
_HADOOP = "org.apache.hadoop"
#: Main class and heap in MiB, by role.
_MAINS = {
    "journalnode": (f"{_HADOOP}.hdfs.qjournal.server.JournalNode", 96),
    "namenode": (f"{_HADOOP}.hdfs.server.namenode.NameNode", 192),
    "datanode": (f"{_HADOOP}.hdfs.server.datanode.DataNode", 128),
    "resourcemanager": (f"{_HADOOP}.yarn.server.resourcemanager.ResourceManager", 256),
    "nodemanager": (f"{_HADOOP}.yarn.server.nodemanager.NodeManager", 192),
}
_MARK = "-Dmpca.dev.daemon="
#: The options that Hadoop's own start scripts add on Java 17 since 3.4.2. The first one makes Java 8 ignore the others.
JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            *("java.io", "java.lang", "java.lang.reflect", "java.math", "java.net", "java.text"),
            *("java.util", "java.util.concurrent", "java.util.zip", "sun.security.util", "sun.security.x509"),
        )
    ),
    # Without the second compiler six daemons are up in 12 s instead of 18 and take half the CPU; files are as fast.
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xss512k", "-XX:ReservedCodeCacheSize=64m"),
    "-Djava.net.preferIPv4Stack=true",
)


@dataclass(frozen=True)
class HadoopSetup:
    """What the daemons of one cluster share."""

    folder: Path  # everything of this cluster lies below it
    jars: Path
    java_home: str
    ports: Mapping[str, int]
    ha: bool = False  # whether it has two NameNodes and two ResourceManagers
    realm: Realm | None = None  # of a secured cluster

    @property
    def daemons(self) -> tuple[str, ...]:
        """All daemons, in the order in which they are started."""
        known = _DAEMONS_HA if self.ha else DAEMONS
        return known if self.realm is None else ("kdc", *known)

    @property
    def namenodes(self) -> tuple[str, ...]:
        return ("namenode1", "namenode2") if self.ha else ("namenode",)

    @property
    def resourcemanagers(self) -> tuple[str, ...]:
        return ("resourcemanager1", "resourcemanager2") if self.ha else ("resourcemanager",)

    @property
    def ha_values(self) -> dict[str, object] | None:
        """For `render`."""
        if not self.ha:
            return None
        second = {
            f"{role}2_{what}": self.port(f"{role}2", f"{role}_{what}")
            for role, services in (("namenode", ("rpc", "http")), ("resourcemanager", _RESOURCEMANAGER))
            for what in services
        }
        return {"service": SERVICE, **second}

    def hdfs_web(self, name: str, service: str = "namenode_http") -> str:
        """Web pages of a NameNode, or of the journal."""
        return f"{'http' if self.realm is None else 'https'}://{LOOPBACK}:{self.port(name, service)}"

    @property
    def java_options(self) -> tuple[str, ...]:
        return JAVA_OPTIONS if self.realm is None else (*JAVA_OPTIONS, *self.realm.java_options)

    @property
    def conf(self) -> Path:
        return self.folder / "conf"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def log(self, name: str) -> Path:
        """The file with a daemon's output."""
        return self.logs / f"{name}.log"

    def port(self, name: str, service: str) -> int:
        """A port of one daemon; those of a second one of its kind are one higher than the first's."""
        return self.ports[service] + (name[-1] == "2")


class Daemons:
    """Processes of one cluster. `readiness.py` asks whether they are ready."""

    def __init__(self, setup: HadoopSetup) -> None:
        self._setup = setup

    def format(self) -> None:
        """Make HDFS's name space, if there is none yet. The journal, if it is to have one, must run."""
        first, *others = self._setup.namenodes
        folder = self._setup.data / first
        if not (folder / "current").exists():
            with self._setup.log(first).open("ab") as log:
                subprocess.run(
                    self._command(
                        "format", "namenode", 128, *self._own_settings(first, "namenode"), "-format", "-nonInteractive"
                    ),
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    check=False,  # the NameNode will say what is wrong
                )
        for other in (folder.with_name(one) for one in others):
            if folder.exists() and not other.exists():
                part = other.with_name(f"{other.name}.part")  # who is killed meanwhile leaves no half of one
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(folder, part)
                part.rename(other)

    def start(self, name: str) -> None:
        """Start one daemon, in a session of its own and as no child of this process."""
        if name == "kdc" and self._setup.realm is not None:
            self._setup.realm.start()
            return
        role = name.rstrip("12")
        command = self._command(name, role, _MAINS[role][1], *self._own_settings(name, role))
        with self._setup.log(name).open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", *command],
                env=self._environment(),
                cwd=self._setup.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
            )

    def tool(self, main: str, *arguments: str) -> str:
        """Run one of Hadoop's own commands to its end; in a realm as the superuser of HDFS.

        Returns:
            Its output.

        Raises:
            EnvironmentRefused: it failed; with its output.
        """
        setup = self._setup
        command = [
            *(f"{setup.java_home}/bin/java", *setup.java_options, "-Xmx128m"),
            *("-cp", f"{setup.conf}:{setup.jars}/*", main, *arguments),
        ]
        env = self._environment()
        if setup.realm is not None:
            env |= setup.realm.login("hdfs", setup.realm.folder / "tool.cc")
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise EnvironmentRefused(f"{main.rpartition('.')[2]} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def find(self) -> dict[str, psutil.Process]:
        """The daemons that live, by name."""
        start = f"{_MARK}{self._setup.folder}#"
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                for word in process.cmdline():
                    if word.startswith(start) and process.status() != psutil.STATUS_ZOMBIE:
                        found[word.removeprefix(start)] = process
        kdc = None if self._setup.realm is None else self._setup.realm.find()
        return found if kdc is None else {"kdc": kdc, **found}

    def containers(self) -> list[psutil.Process]:
        """Processes of YARN applications: they work in a folder of a NodeManager."""
        nodes = str(self._setup.data / "nodemanager")
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(nodes):
                    found.append(process)
        return found

    def _command(self, name: str, role: str, heap_mb: int, *arguments: str) -> list[str]:
        setup = self._setup
        return [
            f"{setup.java_home}/bin/java",
            f"{_MARK}{setup.folder}#{name}",
            *setup.java_options,
            f"-Xmx{heap_mb}m",
            f"-Djava.io.tmpdir={setup.data}/tmp",  # noqa: S108 - below the cluster's own folder
            *(f"-D{what}.log.dir={setup.logs}" for what in ("hadoop", "yarn")),
            f"-Dhadoop.home.dir={setup.folder}",
            *("-cp", f"{setup.conf}:{setup.jars}/*", _MAINS[role][0]),
            *arguments,
        ]

    def _own_settings(self, name: str, role: str) -> list[str]:
        """Settings of one worker, which win over the files."""
        if name in ("namenode1", "namenode2"):  # the journal's host is both's, so none would know which one it is
            own = {"dfs.ha.namenode.id": name, "dfs.namenode.name.dir": f"file://{self._setup.data / name}"}
            return [word for key, value in own.items() for word in ("-D", f"{key}={value}")]
        if name in ("resourcemanager1", "resourcemanager2"):  # nor would these, for the same reason
            return ["-D", f"yarn.resourcemanager.ha.id={name}"]
        if role not in ("datanode", "nodemanager"):
            return []
        setup, host, data = self._setup, WORKERS[int(name[-1]) - 1], self._setup.data / name

        def at(service: str) -> str:
            return f"{host}:{setup.port(name, service)}"

        if role == "datanode":
            settings = {
                "dfs.datanode.hostname": host,
                "dfs.datanode.data.dir": f"file://{data}",
                "dfs.datanode.address": at("datanode_data"),
                "dfs.datanode.http.address": at("datanode_http"),
                "dfs.datanode.ipc.address": at("datanode_ipc"),
                **({} if setup.realm is None else {"dfs.datanode.https.address": at("datanode_http")}),
            }
        else:
            settings = {
                "yarn.nodemanager.hostname": host,
                "yarn.nodemanager.address": at("nodemanager_rpc"),
                "yarn.nodemanager.localizer.address": at("nodemanager_localizer"),
                "yarn.nodemanager.webapp.address": at("nodemanager_http"),
                "yarn.nodemanager.local-dirs": f"{data}/local",
                "yarn.nodemanager.log-dirs": f"{data}/logs",
                "yarn.nodemanager.recovery.dir": f"{data}/recovery",
            }
        return [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]

    def _environment(self) -> dict[str, str]:
        """Its containers inherit JAVA_HOME and HADOOP_CONF_DIR from a NodeManager. Whoever the caller is to Hadoop, the daemons
        belong to the user of this machine."""
        variables = child_environment(JAVA_HOME=self._setup.java_home, HADOOP_CONF_DIR=str(self._setup.conf))
        variables.pop("HADOOP_USER_NAME", None)
        return variables
