"""A whole Hadoop on this machine: NameNode and ResourceManager, or two of each, two DataNodes and NodeManagers, up and down.

`mpca dev hadoop` uses it, and so do tests that kill its daemons one by one. Each cluster has a folder for all that it writes,
and a range of ports of its own, which ``cluster.json`` in that folder has; so several clusters can be up at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import signal
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil

from mpca.cli.dev.artifacts import VERSION, jars, java_home
from mpca.cli.dev.daemons import DAEMONS, LOOPBACK, SERVICE, WORKERS, Daemons, HadoopSetup
from mpca.cli.dev.readiness import active, active_resourcemanager, get_json, jmx, ready, resourcemanager_url, wait_until
from mpca.cli.dev.realm import Lives, Realm
from mpca.cli.dev.rendering import PORTS, render
from mpca.environment import environment
from mpca.errors import EnvironmentRefused

__all__ = ["Hadoop", "default_folder"]

#: Ports lie below those that the kernel gives to outgoing connections, which could take the port of a daemon that restarts.
_FIRST_PORT, _LAST_PORT = 18000, 31000
_RANGE = 2 * len(PORTS)
_READY_S = 240.0
_STOP_S = 10.0
_TAIL_LINES = 15


def default_folder() -> Path:
    """The folder of the cluster of `mpca dev hadoop`, if none is given."""
    state = environment("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "mpca" / "hadoop"


class Hadoop:
    """One cluster, which its folder names. Not safe for two threads at once."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self.folder = folder.absolute()
        self._say = say

    # ---- all of it ----

    def up(self, ha: bool = False, secure: Lives | None = None) -> None:
        """Start the daemons that do not run, and wait until all work.

        Args:
            ha: whether a cluster that does not exist yet gets two NameNodes and two ResourceManagers; one that
                exists stays as it was made.
            secure: how long tickets and tokens are good in a realm that is made for the cluster; None: a cluster without
                Kerberos, or one that exists, as it was made.

        Raises:
            EnvironmentRefused: no Java, no jars, no ports, no programs of Kerberos, or a daemon that does not come up; with
                the end of its log.
        """
        if secure is not None:
            Realm.check()
        began = time.monotonic()
        jars(self._say)
        java_home()
        with self._alone():
            if not self._state.is_file():
                self._make(ha, secure)
            setup = self.setup
            if ha and not setup.ha:
                raise EnvironmentRefused(
                    f"the cluster in {self.folder} has one of each daemon; take it down, or name another by --dir"
                )
            if secure is not None and setup.realm is None:
                raise EnvironmentRefused(
                    f"the cluster in {self.folder} has no Kerberos; take it down, or name another by --dir"
                )
            daemons, all_of_it = Daemons(setup), setup.daemons
            missing = [name for name in all_of_it if name not in daemons.find()]
            self._render()
            for name in missing:
                if name == setup.namenodes[0]:
                    daemons.format()
                daemons.start(name)
                if name in ("kdc", "journalnode"):  # others need it as soon as they begin
                    self._await(name)
            for name in all_of_it:
                self._await(name)
                if setup.ha and name in ("namenode2", "resourcemanager2"):
                    self._make_active(name)
                note = f"ready after {time.monotonic() - began:.1f} s" if name in missing else "was up already"
                self._say(f"{name:16} {note}   {self.log(name)}")
            if setup.realm is not None and setup.namenodes[0] in missing:
                setup.realm.make_homes(setup.hdfs_web(active(setup)))

    def down(self, keep_data: bool = False) -> None:
        """End every daemon and container, and remove the folder unless `keep_data`."""
        if not self._state.is_file():
            return
        with self._alone():
            daemons = Daemons(self.setup)
            _end([*daemons.find().values()])
            _end(daemons.containers())
            if not keep_data:
                shutil.rmtree(self.folder)

    def status(self) -> dict[str, str]:
        """Every daemon's state: "ready", "not ready" or "down"."""
        if not self._state.is_file():
            return dict.fromkeys(DAEMONS, "down")
        setup = self.setup
        running = Daemons(setup).find()
        return {name: ("ready" if ready(setup, name) else "not ready") if name in running else "down" for name in setup.daemons}

    def env(self) -> dict[str, str]:
        """Environment variables of a process that is to use this cluster.

        Raises:
            EnvironmentRefused: it was never up.
        """
        setup = self.setup
        return {
            "HADOOP_CONF_DIR": str(setup.conf),
            "YARN_CONF_DIR": str(setup.conf),
            "JAVA_HOME": setup.java_home,
            # Otherwise drivers and executors bind to the machine's own address, and the daemons have another.
            "SPARK_LOCAL_IP": LOOPBACK,
            **({} if setup.realm is None else setup.realm.env()),
        }

    # ---- one daemon ----

    def kill(self, name: str) -> None:
        """SIGKILL for one daemon; wait until it is gone."""
        _end([self._process(name)], gently=False)

    def stop(self, name: str) -> None:
        """SIGTERM for one daemon; wait until it is gone."""
        _end([self._process(name)])

    def start(self, name: str, wait: bool = True) -> None:
        """Start a daemon that does not run; with `wait`, return when it works."""
        Daemons(self.setup).start(name)
        if wait:
            self._await(name)

    def restart(self, name: str) -> None:
        """Kill it and start it again."""
        self.kill(name)
        self.start(name)

    def fail_over(self) -> str:
        """Make the other NameNode active, whether the active one lives or not.

        Returns:
            The one that is active now.

        Raises:
            EnvironmentRefused: the other one does not run, or there is no other; with what Hadoop says.
        """
        setup = self._setup_of_two()
        running = Daemons(setup).find()
        before = self.active() or next((one for one in setup.namenodes if one not in running), setup.namenodes[0])
        (other,) = (one for one in setup.namenodes if one != before)
        self._ha_admin("-failover", before, other)
        return other

    def fail_over_resourcemanager(self) -> str:
        """Make the other ResourceManager active. One that was active and lives stands by first.

        Returns:
            The one that is active now.

        Raises:
            EnvironmentRefused: the other one does not run, or there is no other; with what Hadoop says.
        """
        setup = self._setup_of_two()
        running = Daemons(setup).find()
        before = self.active_resourcemanager()
        if before is not None:
            self._rm_admin("-transitionToStandby", before)
        dead = before or next((one for one in setup.resourcemanagers if one not in running), setup.resourcemanagers[0])
        (other,) = (one for one in setup.resourcemanagers if one != dead)
        forced = () if before is not None else ("--forceactive",)  # otherwise a dead one is asked whether it is active
        self._rm_admin("-transitionToActive", *forced, other)
        return other

    def active(self) -> str | None:
        """The active NameNode, if there is one."""
        try:
            return active(self.setup)
        except OSError:
            return None

    def active_resourcemanager(self) -> str | None:
        """The active ResourceManager, if there is one."""
        try:
            return active_resourcemanager(self.setup)
        except OSError:
            return None

    def pid(self, name: str) -> int:
        return int(self._process(name).pid)

    def log(self, name: str) -> Path:
        return self.setup.log(name)

    # ---- questions ----

    @property
    def hdfs_url(self) -> str:
        return f"hdfs://{SERVICE}" if self.setup.ha else f"hdfs://{LOOPBACK}:{self.setup.ports['namenode_rpc']}"

    @property
    def webhdfs_url(self) -> str:
        setup = self.setup
        hosts = ";".join(f"{LOOPBACK}:{setup.port(one, 'namenode_http')}" for one in setup.namenodes)
        return f"{'webhdfs' if setup.realm is None else 'swebhdfs'}://{hosts}"

    @property
    def resourcemanager_url(self) -> str:
        """Pages of the active ResourceManager; of the first one while none is active."""
        setup = self.setup
        return resourcemanager_url(setup, self.active_resourcemanager() or setup.resourcemanagers[0])

    def resourcemanager(self, path: str) -> Any:
        """The ResourceManager's REST: ``resourcemanager("apps")`` is ``/ws/v1/cluster/apps``."""
        return get_json(f"{self.resourcemanager_url}/ws/v1/cluster/{path}", self.setup.realm)

    def nodemanager(self, number: int, path: str) -> Any:
        """A NodeManager's REST: ``nodemanager(1, "containers")`` is ``/ws/v1/node/containers`` of the first."""
        setup = self.setup
        port = setup.port(f"nodemanager{number}", "nodemanager_http")
        return get_json(f"http://{WORKERS[number - 1]}:{port}/ws/v1/node/{path}", setup.realm)

    def jmx(self, name: str) -> dict[str, Any]:
        """A bean of the active NameNode, such as "FSNamesystemState"."""
        return jmx(self.setup, name)

    def admin(self, *arguments: str) -> str:
        """Run ``hdfs dfsadmin ARGUMENTS``.

        Returns:
            Its output.

        Raises:
            EnvironmentRefused: it failed; with its output.
        """
        return Daemons(self.setup).tool("org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments)

    @property
    def setup(self) -> HadoopSetup:
        """Folders and ports.

        Raises:
            EnvironmentRefused: it was never up.
        """
        if not self._state.is_file():
            raise EnvironmentRefused(f"no Hadoop here: {self.folder}; start one by `mpca dev hadoop up --dir {self.folder}`")
        state = json.loads(self._state.read_text())
        setup = HadoopSetup(self.folder, jars(self._say), java_home(), state["ports"], state.get("ha", False))
        lives = state.get("secure")
        if lives is None:
            return setup
        return replace(setup, realm=Realm(self.folder / "realm", state["ports"]["kdc"], setup.log("kdc"), Lives(**lives)))

    # ---- inside ----

    @property
    def _state(self) -> Path:
        return self.folder / "cluster.json"

    def _make(self, ha: bool, secure: Lives | None) -> None:
        if self.folder.is_dir() and any(entry.name != ".lock" for entry in self.folder.iterdir()):
            raise EnvironmentRefused(f"the folder holds something else: {self.folder}; name an empty one by --dir")
        first = _free_range(zlib.crc32(str(self.folder).encode()))
        ports = {service: first + 2 * number for number, service in enumerate(PORTS)}
        lives = {} if secure is None else {"secure": asdict(secure)}
        self._state.write_text(json.dumps({"hadoop": VERSION, "ports": ports, "ha": ha, **lives}, indent=2))

    def _render(self) -> None:
        setup = self.setup
        setup.logs.mkdir(exist_ok=True)
        if setup.realm is not None and not setup.realm.made:
            setup.realm.make(setup.java_home, (LOOPBACK, *WORKERS))
        values = None if setup.realm is None else setup.realm.values()
        render(
            setup.conf,
            namenode=LOOPBACK,
            resourcemanager=LOOPBACK,
            data=setup.data,
            ports=setup.ports,
            ha=setup.ha_values,
            realm=values,
        )
        (setup.data / "tmp").mkdir(parents=True, exist_ok=True)

    def _ha_admin(self, *arguments: str) -> str:
        return Daemons(self.setup).tool("org.apache.hadoop.hdfs.tools.DFSHAAdmin", *arguments)

    def _rm_admin(self, *arguments: str) -> str:
        return Daemons(self.setup).tool("org.apache.hadoop.yarn.client.cli.RMAdminCLI", *arguments)

    def _make_active(self, second: str) -> None:
        """After a start, both of a kind stand by until somebody says which one is to be active."""
        if second == "namenode2" and self.active() is None:
            self._ha_admin("-transitionToActive", self.setup.namenodes[0])
        if second == "resourcemanager2" and self.active_resourcemanager() is None:
            self._rm_admin("-transitionToActive", self.setup.resourcemanagers[0])

    def _setup_of_two(self) -> HadoopSetup:
        setup = self.setup
        if not setup.ha:
            raise EnvironmentRefused(
                f"the cluster in {self.folder} has one of each daemon; make one with two by `mpca dev hadoop up --ha`"
            )
        return setup

    def _await(self, name: str) -> None:
        setup, daemons = self.setup, Daemons(self.setup)
        if wait_until(lambda: ready(setup, name) or name not in daemons.find(), _READY_S) and ready(setup, name):
            return
        what = f"not ready after {_READY_S:.0f} s" if name in daemons.find() else "ended"
        tail = "\n".join(setup.log(name).read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        raise EnvironmentRefused(f"{name} {what}: log={setup.log(name)}\n{tail}")

    def _process(self, name: str) -> psutil.Process:
        found = Daemons(self.setup).find().get(name)
        if found is None:
            raise EnvironmentRefused(f"{name} does not run: folder={self.folder}")
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let only one `up` or `down` of this folder run at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _free_range(seed: int) -> int:
    """The first of `_RANGE` ports in a row on which nothing listens, at all three addresses."""
    ranges = range(_FIRST_PORT, _LAST_PORT - _RANGE, _RANGE)
    for step in range(len(ranges)):
        first = ranges[(seed + step) % len(ranges)]
        if all(_free(host, port) for port in range(first, first + _RANGE) for host in (LOOPBACK, *WORKERS)):
            return first
    raise EnvironmentRefused(f"no free ports: {_RANGE} in a row are needed between {_FIRST_PORT} and {_LAST_PORT}")


def _free(host: str, port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError:
            return False
        return True


def _end(processes: list[psutil.Process], gently: bool = True) -> None:
    """Ask processes to end, wait, and kill those that are left."""
    if gently:
        _signal(processes, signal.SIGTERM)
        if wait_until(lambda: not any(map(_lives, processes)), _STOP_S):
            return
    _signal(processes, signal.SIGKILL)
    wait_until(lambda: not any(map(_lives, processes)), _STOP_S)


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _lives(process: psutil.Process) -> bool:
    """Whether a process lives. A zombie does not: its parent may be slow to collect it."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
