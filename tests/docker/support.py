"""Runs on the containers' cluster: submitted from its client, watched from this machine, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from dockerized.cluster import ROOT, WORKERS, Cluster
from dockerized.engine import Engine
from dockerized.machine import Machine, processes

from mpca.cli.dev.realm import Lives
from tests.hadoop.support import SMALL, Submitted, only, records

PATIENCE_S = 300.0
#: What runs in a worker when no application does.
_DAEMONS = ("tini", "daemon worker", ".datanode.DataNode", ".nodemanager.NodeManager", "ps -eo")


@contextlib.contextmanager
def cluster_up(tmp_path_factory: pytest.TempPathFactory, secure: Lives | None = None, **made: Any) -> Iterator[Cluster]:
    """Six hosts on an engine that the same code gets ready that docker/up runs; at the end the machine is as it was.

    Args:
        secure: as of `Cluster.up`.
        made: more arguments of `Cluster`.
    """
    before = Machine.now()
    engine = Engine.ready(print)
    one = Cluster("mpca-test", engine, tmp_path_factory.mktemp("docker") / "cluster", print, **made)
    try:
        one.down()  # what a test run that was killed has left
        one.up(secure=secure)
        yield one
    finally:
        one.down()
        engine.stop(print)
        shutil.rmtree(one.folder, ignore_errors=True)
    nothing_beyond(before)


class Run:
    """A `mpca submit` from the client, in client mode, with its run folder on this machine too."""

    def __init__(
        self, cluster: Cluster, name: str, *sets: str, words: tuple[str, ...] = (), jars_on_nodes: bool = True
    ) -> None:
        self.cluster, self.name = cluster, name
        self.folder = cluster.work / name
        self.backups = f"hdfs://namenode:8020/backups/{name}"
        said = (f"run.dir={self.folder}", f"run.name={name}", f"backup.path={self.backups}", *sets)
        self.submitted = submit(cluster, name, *said, words=words, jars_on_nodes=jars_on_nodes)

    def seen(self, kind: str, **wanted: object) -> list[dict[str, Any]]:
        """Records so far."""
        ledger = self.folder / "records.jsonl"
        found = records(ledger.read_text(), kind) if ledger.exists() else []
        return [one for one in found if all(one[key] == value for key, value in wanted.items())]

    def until(self, there: Callable[[], Any], what: str) -> Any:
        """What `there` gives, once it gives something; on a busy machine a daemon may be too slow to answer."""

        def look() -> Any:
            with contextlib.suppress(OSError):
                return there()

        return self.submitted.until(look, what, PATIENCE_S)

    def seconds_until(self, **there: Callable[[], Any]) -> dict[str, float]:
        """How long each takes to come true, from now; all of them must."""
        began = time.monotonic()
        took: dict[str, float] = {}

        def look() -> bool:
            for what, condition in there.items():
                with contextlib.suppress(OSError):  # one daemon too busy to answer says nothing of the others
                    if what not in took and condition():
                        took[what] = round(time.monotonic() - began, 1)
            return len(took) == len(there)

        try:
            self.until(look, ", ".join(there))
        except AssertionError as error:
            raise AssertionError(f"of {', '.join(there)} only {took}\n{self._state()}\n{error}") from None
        return took

    def _state(self) -> str:
        """What one wants to know of a run that does not do what is waited for."""
        lines = [f"t={one['t']:.1f} agent {one}" for one in self.seen("agent")]
        alone = [one for one in self.seen("cycle") if len(one["contributors"]) < 2]
        lines += [f"t={one['t']:.1f} cycle {one['cycle']} of {one['contributors']}: {one['left_out']}" for one in alone[-20:]]
        with contextlib.suppress(OSError):
            lines.append(str(self.cluster.nodes()))
        for worker in WORKERS:
            logs = self.cluster.run(worker, "bash", "-c", "tail -n 60 /data/nodemanager/logs/application_*/*/stderr")
            lines.append(f"--- {worker}\n{logs.stdout}")
        return "\n".join([*lines, f"newest cycle {self.cycle()}"])

    def full(self, beyond: int) -> list[dict[str, Any]]:
        """Cycles after that one that every agent took part in."""
        return [one for one in self.seen("cycle") if one["cycle"] > beyond and len(one["contributors"]) == 2]

    def without(self, agent: int, beyond: int) -> list[dict[str, Any]]:
        """Cycles after that one that the agent took no part in, whatever the reason that the ledger gives."""
        return [one for one in self.seen("cycle") if one["cycle"] > beyond and str(agent) not in one["contributors"]]

    def cycle(self) -> int:
        """The newest that is in the ledger."""
        cycles = self.seen("cycle")
        return cycles[-1]["cycle"] if cycles else -1

    @property
    def id(self) -> str:
        return only(self.submitted.text())

    def application(self) -> dict[str, Any]:
        """As the ResourceManager's REST tells it."""
        found: dict[str, Any] = self.cluster.resourcemanager(f"apps/{self.id}")["app"]
        return found

    def master(self) -> str:
        """The worker that the application master is on."""
        return str(self.application()["amHostHttpAddress"]).partition(":")[0]

    def places(self) -> dict[int, str]:
        """Worker of every agent's newest incarnation."""
        events = sorted(
            (one for one in self.seen("agent") if one["event"] in ("started", "replaced")), key=lambda one: one["t"]
        )
        return {one["index"]: one["host"] for one in events}

    def away_from_the_master(self) -> int:
        """An agent whose worker the application master is not on."""
        master = self.master()
        return next(index for index, host in sorted(self.places().items()) if host != master)

    def interrupt(self) -> int:
        """Ctrl-C of the submitter, in the client; its exit code."""
        (pid,) = self._submitters()
        os.kill(pid, signal.SIGINT)
        return self.submitted.ended(PATIENCE_S)

    def _submitters(self) -> list[int]:
        """Seen from here: the container's processes are this machine's too."""
        found = []
        for one in psutil.process_iter(["pid", "cmdline"]):
            words = one.info["cmdline"] or []
            if words[1:4] == ["-m", "mpca.cli", "submit"] and f"run.name={self.name}" in words and "docker" not in words[0]:
                found.append(one.info["pid"])
        return found


def submit(cluster: Cluster, name: str, *sets: str, words: tuple[str, ...] = (), jars_on_nodes: bool = True) -> Submitted:
    """`mpca submit` of the digits from the client, with small heaps."""
    command = ["python", "-m", "mpca.cli", "submit", str(ROOT / "conf" / "digits.toml"), *words]
    command += ["--jars-on-nodes"] if jars_on_nodes else []
    for one in (*SMALL, *sets):
        command += ["--set", one]
    host = {key: value for key, value in cluster.docker.env.items() if key == "DOCKER_HOST"}
    return Submitted(*cluster.inside("client", *command), cwd=cluster.folder, log=cluster.folder / f"{name}.log", env=host)


def whole(cycles: list[dict[str, Any]], summary: dict[str, Any], first: int = 0) -> None:
    """Nothing that was accepted is lost, and nothing came in twice or from behind the fence."""
    assert [one["cycle"] for one in cycles] == list(range(first, first + len(cycles))), "each cycle has its line"
    assert summary["cycles"] == first + len(cycles)
    newest: dict[str, int] = {}
    given: dict[tuple[str, int], int] = {}
    for one in cycles:
        assert one["contributors"], one
        for agent, share in one["contributors"].items():
            assert share["incarnation"] >= newest.get(agent, 0), f"an old incarnation came in: {one}"
            newest[agent] = share["incarnation"]
            given[agent, one["shard"]] = given.get((agent, one["shard"]), 0) + share["tau"]
    for (agent, _), updates in given.items():
        assert 0 < updates <= summary["steps"][int(agent)], "no update counts twice for a shard"


def nothing_runs_on_workers(cluster: Cluster, seconds: float = 60.0) -> None:
    """No process of an application, and no file of an agent's memory."""
    deadline = time.monotonic() + seconds
    while left := [line for worker in WORKERS for line in _left(cluster, worker)]:
        assert time.monotonic() < deadline, "\n".join(left)
        time.sleep(0.5)


def _left(cluster: Cluster, worker: str) -> list[str]:
    seen = cluster.run(worker, "bash", "-c", "ps -eo args; ls -1 /dev/shm | sed s,^,/dev/shm/,").stdout.splitlines()
    return [f"{worker}: {line[:160]}" for line in seen[1:] if not any(word in line for word in _DAEMONS)]


def nothing_beyond(before: Machine, seconds: float = 30.0) -> None:
    """The machine has no bridge, packet rule or mount more, and no engine of ours, unless it had one before."""
    folder = Engine.own().folder
    assert isinstance(folder, Path)
    had_one = any(one.startswith(f"{folder}/") for one in before.mounts)
    deadline = time.monotonic() + seconds
    while left := [*Machine.now().beyond(before), *([] if had_one else map(str, processes(folder)))]:
        assert time.monotonic() < deadline, "\n".join(left)
        time.sleep(0.2)
