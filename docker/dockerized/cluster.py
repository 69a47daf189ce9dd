"""A Hadoop of six hosts, each a container: NameNode, ResourceManager, three workers (DataNode and NodeManager), a client.

Up and down, what it answers, and what can befall one of its hosts. The checkout, its Python environment and Hadoop's jars
are mounted read-only at the paths they have here, so that nothing has to be built after a change. Containers are started by
`docker run`, or by ``compose.yaml``, which says the same for people.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from http.client import HTTPException
from pathlib import Path
from typing import Any

from dockerized.engine import Engine, cache, install
from dockerized.image import image
from mpca.cli.dev.artifacts import jars, java_home
from mpca.cli.dev.daemons import JAVA_OPTIONS
from mpca.cli.dev.readiness import get_json, wait_until
from mpca.cli.dev.realm import Lives, Realm
from mpca.cli.dev.rendering import PORTS, render
from mpca.environment import environment
from mpca.errors import EnvironmentRefused

__all__ = ["HOSTS", "ROOT", "WORKERS", "Cluster", "default_folder"]

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ("worker1", "worker2", "worker3")
HOSTS = ("namenode", "resourcemanager", *WORKERS, "client")
#: The last number of each host's address.
_ADDRESS = {host: 10 + number for number, host in enumerate(HOSTS)}
#: This machine's on their network, where a KDC listens.
_GATEWAY = 1
#: Room for one agent with its parent and an application master, and not for two agents: they sit on different workers.
NODE_MEMORY_MB = 3584 + 576
#: Seconds after which YARN gives a worker up; a pause of less is a hiccup.
NODE_EXPIRY_S = 30
_LABEL = "mpca.cluster"
_READY_S = 240.0
_KDC_S = 20.0
_PAUSE_S = 30.0
_CUT_S = 10.0
_CONNECT_S = 2.0
_TAIL = "20"


def default_folder(name: str) -> Path:
    """Where a cluster keeps its configuration and its client's files when nothing is said."""
    state = environment("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "mpca" / "docker" / name


class Cluster:
    """One cluster, known by its name, which its containers begin with."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        folder: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
        small_disks: Mapping[str, str] | None = None,
        bare_workers: bool = False,
    ) -> None:
        """
        Args:
            name: of the cluster.
            engine: that its containers are on.
            folder: for configuration and the client's files; one in the user's state folder if not given.
            say: is told what is done.
            small_disks: worker -> size, such as "200m", of the disk that its NodeManager has for containers.
            bare_workers: workers have neither Python environment nor checkout.
        """
        self.name = name
        self.docker = engine
        self.folder = (folder or default_folder(name)).absolute()
        self._say = say
        self._small_disks = small_disks or {}
        self._bare_workers = bare_workers

    # ---- all of it ----

    def up(self, compose: bool = False, secure: Lives | None = None) -> None:
        """Start what does not run, and wait until it works.

        Args:
            compose: start the containers by ``compose.yaml``, which has no realm.
            secure: how long tickets and tokens are good in a realm that is made for the cluster; None: a cluster without
                Kerberos, or one that exists, as it was made. Its KDC is a process of this machine.

        Raises:
            EnvironmentRefused: no image, no jars, no programs of Kerberos, or a host that does not come up: with the end of its
                log.
        """
        if compose and (secure is not None or self.realm is not None):
            raise EnvironmentRefused("compose.yaml has no realm: leave --compose or --secure out")
        if secure is not None:
            Realm.check()
        missing = [host for host in HOSTS if host not in self.running()]
        if secure is not None and self.realm is None and len(missing) < len(HOSTS):
            raise EnvironmentRefused(f"the cluster {self.name} has no Kerberos; take it down, or name another by --name")
        settings = self._settings()
        began = time.monotonic()
        self._make_network(secure)
        realm = self.realm
        if realm is not None:
            if not realm.made:
                realm.make(java_home())
            if realm.find() is None:
                realm.start()
            if not wait_until(realm.answers, _KDC_S):
                said = realm.log.read_text(errors="replace") if realm.log.exists() else ""
                raise EnvironmentRefused(f"the KDC of {self.name} gives no tickets: {realm.log}\n{said[-2000:]}")
        self._render()
        if compose and missing:
            self._compose(settings)
        else:
            for host in missing:
                self._start(host, settings)
        if not wait_until(lambda: self.ready() or bool(self._ended()), _READY_S) or self._ended():
            raise EnvironmentRefused(self._why_not())
        if realm is not None and "namenode" in missing:
            realm.make_homes(self._page("namenode", "namenode_http"))
        self._say(f"{len(HOSTS)} hosts {'were up already' if not missing else f'ready after {time.monotonic() - began:.1f} s'}")

    def down(self) -> None:
        """Remove containers, network and files. Whoever is there already gone is passed over."""
        found = self.docker("ps", "--all", "--quiet", "--filter", f"label={_LABEL}={self.name}").split()
        if found:
            self._say(f"removing {len(found)} containers of {self.name}")
            self.docker("rm", "--force", "--volumes", *found)
        networks = self.docker("network", "ls", "--quiet", "--filter", f"label={_LABEL}={self.name}").split()
        if networks:
            self.docker("network", "rm", *networks)
        if self._state.exists():
            if self.realm is not None:
                self.realm.end()
            shutil.rmtree(self.folder)

    def ready(self) -> bool:
        """Whether HDFS has its three DataNodes and is out of safe mode, and YARN has its three NodeManagers."""
        try:
            info = self.jmx("NameNodeInfo")
            live = [node for node in json.loads(info["LiveNodes"]).values() if node["lastContact"] <= 3]
            return info["Safemode"] == "" and len(live) == len(WORKERS) and set(self.nodes().values()) == {"RUNNING"}
        except (OSError, ValueError, LookupError, HTTPException):  # not there, or not all of it
            return False

    def running(self) -> list[str]:
        """Hosts whose container is up, paused ones too."""
        names = self.docker("ps", "--filter", f"label={_LABEL}={self.name}", "--format", "{{.Names}}").split()
        return [one.removeprefix(f"{self.name}-") for one in names]

    # ---- what is asked of it ----

    def container(self, host: str) -> str:
        return f"{self.name}-{host}"

    def address(self, host: str) -> str:
        """Of a host, as this machine and the others reach it; the same after a restart."""
        subnet: str = json.loads(self._state.read_text())["subnet"]
        return f"{subnet.rpartition('.')[0]}.{_ADDRESS[host]}"

    @property
    def realm(self) -> Realm | None:
        """Of a secured cluster. Principals of daemons have their hosts' names, as `_HOST` in Hadoop's files stands for."""
        lives = json.loads(self._state.read_text()).get("secure") if self._state.exists() else None
        if lives is None:
            return None
        hosts = {host: self.address(host) for host in HOSTS}
        kdc = f"{hosts['namenode'].rpartition('.')[0]}.{_GATEWAY}"
        return Realm(self.folder / "realm", PORTS["kdc"], self.folder / "kdc.log", Lives(**lives), kdc, hosts)

    @property
    def work(self) -> Path:
        """A folder that the client and this machine share, at the same path."""
        return self.folder / "work"

    def resourcemanager(self, path: str) -> Any:
        """The ResourceManager's REST: ``resourcemanager("apps")`` is ``/ws/v1/cluster/apps``."""
        return get_json(f"{self._page('resourcemanager', 'resourcemanager_http')}/ws/v1/cluster/{path}", self.realm)

    def nodes(self) -> dict[str, str]:
        """State of every worker that YARN knows or knew, by host."""
        listed = (self.resourcemanager("nodes")["nodes"] or {}).get("node", [])
        states = {node["nodeHostName"]: node["state"] for node in listed}
        return {host: states.get(host, "NEW") for host in WORKERS}

    def jmx(self, name: str) -> dict[str, Any]:
        """A bean of the NameNode."""
        url = f"{self._page('namenode', 'namenode_http')}/jmx?qry=Hadoop:service=NameNode,name={name}"
        return dict(get_json(url, self.realm)["beans"][0])

    def inside(self, host: str, *words: str, env: dict[str, str] | None = None) -> list[str]:
        """The command that runs words on a host, to be started with `docker.env`."""
        variables = [word for name, value in (env or {}).items() for word in ("--env", f"{name}={value}")]
        return [
            "docker",
            "exec",
            "--workdir",
            "/" if host != "client" else str(self.work),
            *variables,
            self.container(host),
            *words,
        ]

    def run(self, host: str, *words: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Words on a host, to their end, however they end."""
        return self.docker.call(*self.inside(host, *words), timeout_s=timeout_s)

    # ---- what can befall a host ----

    def kill(self, host: str) -> None:
        """All its processes at once, by SIGKILL; its disk stays."""
        self.docker("kill", self.container(host))

    def start(self, host: str) -> None:
        """Again, with the disk that it had."""
        self.docker("start", self.container(host))

    def pause(self, host: str) -> None:
        """Every process of it stands still; connections stay, and are even taken."""
        # A freezer of cgroup v1 gives up ("unable to freeze") on a container that starts processes at that moment.
        if not wait_until(lambda: self.docker.call("docker", "pause", self.container(host)).returncode == 0, _PAUSE_S):
            self.docker("pause", self.container(host))

    def resume(self, host: str) -> None:
        self.docker("unpause", self.container(host))

    def cut_off(self, host: str) -> None:
        """Nothing gets to it or from it any more, and nobody is told.

        Raises:
            EnvironmentRefused: it is still reached.
        """
        self.docker("network", "disconnect", self.name, self.container(host))
        if wait_until(lambda: not self._answers(host), _CUT_S):
            return
        # The engine passes over what the kernel says when it takes the link away: a worker has gone on as if nothing were.
        self.run(host, "bash", "-c", "for one in /sys/class/net/eth*; do ip link delete ${one##*/}; done")
        if not wait_until(lambda: not self._answers(host), _CUT_S):
            said = self.run(host, "ip", "address").stdout
            raise EnvironmentRefused(f"{host} is still reached at {self.address(host)} after it was disconnected\n{said}")

    def connect(self, host: str) -> None:
        """With the address that it had."""
        self.docker("network", "connect", "--ip", self.address(host), self.name, self.container(host))

    # ---- inside ----

    @property
    def _state(self) -> Path:
        return self.folder / "cluster.json"

    def _page(self, host: str, port: str) -> str:
        """A daemon's web pages; in a realm by its name, which its principal has, and HDFS' pages have its certificate."""
        if self.realm is None:
            return f"http://{self.address(host)}:{PORTS[port]}"
        return f"{'https' if host == 'namenode' else 'http'}://{host}:{PORTS[port]}"

    def _answers(self, worker: str) -> bool:
        """Whether its NodeManager takes a connection from this machine."""
        try:
            socket.create_connection((self.address(worker), PORTS["nodemanager_http"]), timeout=_CONNECT_S).close()
        except OSError:
            return False
        return True

    def _settings(self) -> dict[str, str]:
        """What ``compose.yaml`` asks of its environment."""
        found = {
            "MPCA_CLUSTER": self.name,
            "MPCA_IMAGE": image(self.docker, self._say),
            "MPCA_ROOT": str(ROOT),
            "MPCA_ENVIRONMENT": sys.prefix,
            "MPCA_PYTHON": str(_interpreter()),
            "MPCA_HADOOP_JARS": str(jars(self._say)),
            "MPCA_CONF": str(self.folder / "conf"),
            "MPCA_WORK": str(self.work),
        }
        self.work.mkdir(parents=True, exist_ok=True)
        return found

    def _make_network(self, secure: Lives | None) -> None:
        """One of ours with a range of addresses that is free here, so that a host keeps its own."""
        state = json.loads(self._state.read_text()) if self._state.exists() else {}
        if secure is not None:
            state.setdefault("secure", asdict(secure))
        there = self.docker.call("docker", "network", "inspect", "--format", "{{(index .IPAM.Config 0).Subnet}}", self.name)
        if there.returncode == 0:
            self._state.write_text(json.dumps({**state, "subnet": there.stdout.strip()}))
            return
        said = ""
        for third in range(0, 256, 16):
            subnet = f"172.29.{third}.0/24"
            words = ("network", "create", "--subnet", subnet, "--label", f"{_LABEL}={self.name}", self.name)
            made = self.docker.call("docker", *words)
            if made.returncode == 0:
                self._state.write_text(json.dumps({**state, "subnet": subnet}))
                return
            said = made.stderr.strip()
        raise EnvironmentRefused(f"no network can be made for {self.name}: {said}")

    def _render(self) -> None:
        conf, realm = self.folder / "conf", self.realm
        render(
            conf,
            namenode="namenode",
            resourcemanager="resourcemanager",
            data=Path("/data"),
            node_memory_mb=NODE_MEMORY_MB,
            node_expiry_s=NODE_EXPIRY_S,
            realm=None if realm is None else realm.values(),
        )
        options = JAVA_OPTIONS if realm is None else (*JAVA_OPTIONS, *realm.java_options)
        (conf / "jvm.options").write_text("\n".join([*options, ""]))

    def _start(self, host: str, settings: dict[str, str]) -> None:
        """Or start again, with its disk, if it was killed."""
        if self.docker("ps", "--all", "--quiet", "--filter", f"name=^{self.container(host)}$").strip():
            self.start(host)
            return
        self.docker("run", "--detach", *self._options(host, settings), settings["MPCA_IMAGE"], *_command(host))

    def _options(self, host: str, settings: dict[str, str]) -> Iterator[str]:
        yield from ("--name", self.container(host), "--hostname", host, "--label", f"{_LABEL}={self.name}")
        yield from ("--network", self.name, "--ip", self.address(host), "--shm-size", "2g", "--cap-add", "NET_ADMIN")
        for other in HOSTS:  # as on a cluster with DNS: a dead host keeps its address
            yield from ("--add-host", f"{other}:{self.address(other)}")
        yield from ("--env", f"MPCA_HADOOP_JARS={settings['MPCA_HADOOP_JARS']}")
        yield from ("--env", f"HADOOP_CONF_DIR={settings['MPCA_CONF']}")
        mounts = [settings["MPCA_HADOOP_JARS"], settings["MPCA_CONF"]]
        if self._bare_workers and host in WORKERS:
            mounts += [str(ROOT / "docker")]
        else:
            mounts += [settings["MPCA_ROOT"], settings["MPCA_ENVIRONMENT"], settings["MPCA_PYTHON"]]
        realm = self.realm
        if realm is not None:
            mounts.append(str(realm.folder))
            yield from ("--volume", f"{realm.config}:/etc/krb5.conf:ro", "--env", f"REQUESTS_CA_BUNDLE={realm.certificate}")
        for path in mounts:
            yield from ("--volume", f"{path}:{path}:ro")
        if host in self._small_disks:
            # exec: native libraries of jars. What the NodeManager itself remembers lies beside it.
            yield from ("--tmpfs", f"/data/nodemanager/local:size={self._small_disks[host]},exec")
        if host == "client":
            yield from ("--volume", f"{self.work}:{self.work}", "--workdir", str(self.work))
            yield from ("--env", f"PATH={settings['MPCA_ENVIRONMENT']}/bin:/usr/sbin:/usr/bin:/sbin:/bin")

    def _compose(self, settings: dict[str, str]) -> None:
        compose = ["docker", "compose"]
        if self.docker.call(*compose, "version").returncode:
            install(self._say, "docker-compose", "docker-compose")
            compose = ["docker-compose"]
        addresses = {f"MPCA_{host.upper()}": self.address(host) for host in HOSTS}
        file = self.folder / "compose.env"
        file.write_text("".join(f"{name}={value}\n" for name, value in {**settings, **addresses}.items()))
        words = (
            *compose,
            "--env-file",
            str(file),
            "-p",
            self.name,
            "-f",
            str(ROOT / "docker" / "compose.yaml"),
            "up",
            "--detach",
        )
        self._say(" ".join(words))
        done = self.docker.call(*words)
        if done.returncode:
            raise EnvironmentRefused(f"compose failed: exit code {done.returncode}\n{done.stderr.strip()[-2000:]}")

    def _ended(self) -> list[str]:
        return [host for host in HOSTS if host not in self.running()]

    def _why_not(self) -> str:
        ended = self._ended()
        state = f"ended: {', '.join(ended)}" if ended else f"not ready after {_READY_S:.0f} s"
        tails = []
        for host in ended or HOSTS[:-1]:
            said = self.docker.call("docker", "logs", "--tail", _TAIL, self.container(host))
            tails.append(f"--- {host}\n{said.stdout}{said.stderr}")
        return "\n".join([f"hosts of {self.name} {state}", *tails])


def _command(host: str) -> list[str]:
    return [str(ROOT / "docker" / "daemon"), "worker" if host in WORKERS else host]


def _interpreter() -> Path:
    """The installation that the environment's interpreter belongs to; the image has the system's own.

    Raises:
        EnvironmentRefused: it is the system's, and of another version than the image's.
    """
    link = Path(sys.prefix, "bin", "python")
    while link.is_symlink() and link.parent == Path(sys.prefix, "bin"):
        link = link.parent / os.readlink(link)
    prefix = link.parents[1]
    if prefix != Path("/usr"):
        return prefix
    if sys.version_info[:2] != (3, 11):
        raise EnvironmentRefused(
            f"the environment's Python is the system's own {sys.version.split()[0]}, and the containers have 3.11: "
            "run `make setup PYTHON=...` with one that is installed elsewhere, such as uv's"
        )
    return cache()  # nothing to mount: a folder that is mounted anyway
