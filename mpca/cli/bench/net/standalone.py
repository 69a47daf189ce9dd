"""Spark's standalone Master and Workers on the nodes of a `Network`, one Worker a node, with room for one executor each.

The application on them is `exchange_driver`, on a node of its own.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from types import TracebackType

from mpca.cli.bench.net.network import Network
from mpca.environment import child_environment
from mpca.errors import EnvironmentRefused
from mpca.redaction import properties

__all__ = ["Nodes", "Standalone"]

MASTER_PORT = 7077
START_S = 240.0
_TAIL_LINES = 5


class Nodes:
    """A Master, K Workers and a node for the driver, behind one switch; links are not limited yet.

    Args:
        stack: ends it.
        folder: of the bench.
        agents: K.
        worker_bytes: memory of a Worker.
    """

    def __init__(self, stack: ExitStack, folder: Path, agents: int, worker_bytes: int) -> None:
        self.workers = [f"w{number}" for number in range(agents)]
        self.net = stack.enter_context(Network(["master", "driver", *self.workers]))
        self._secret = folder / "secret"
        self._secret.touch(mode=0o600)
        self._secret.write_text(token_hex(32))
        memory = f"{worker_bytes >> 20}m"
        self.daemons = stack.enter_context(Standalone(self.net, "master", self.workers, folder, memory, self._secret))

    def of_driver(self) -> dict[str, str]:
        """Where the driver finds them: master, its own address, and a file with the secret."""
        return {"master": self.daemons.url, "address": self.net.address("driver"), "secret": str(self._secret)}


class Standalone:
    """Daemons that are up when it is entered; logs and executors' files lie in `folder`."""

    def __init__(
        self, net: Network, master: str, workers: Sequence[str], folder: Path, worker_memory: str, secret: Path | None = None
    ) -> None:
        """`secret` is a file with what the daemons ask for; None: they let everybody in."""
        self.url = f"spark://{net.address(master)}:{MASTER_PORT}"
        self._net, self._master, self._workers = net, master, list(workers)
        self._folder, self._memory = folder, worker_memory
        self._settings: list[str] = []
        if secret is not None:
            conf = folder / "daemons.conf"
            conf.touch(mode=0o600)
            conf.write_text(properties({"spark.authenticate": "true", "spark.authenticate.secret": secret.read_text()}))
            self._settings = ["--properties-file", str(conf)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Standalone:
        address = self._net.address
        try:
            options = ["--host", address(self._master), "--port", str(MASTER_PORT), "--webui-port", "0"]
            self._start(self._master, "master.Master", options)
            self._wait([self._master], "elected leader")
            for worker in self._workers:
                files = ["--host", address(worker), "--webui-port", "0", "--work-dir", str(self._folder / f"{worker}-work")]
                self._start(worker, "worker.Worker", [*files, "--cores", "2", "--memory", self._memory, self.url])
            self._wait(self._workers, "Successfully registered with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def executor_log(self) -> str:
        """Newest warnings, and last lines, of what executors said: for the message of a bench that failed."""
        logs = sorted(self._folder.glob("*-work/*/*/stderr"))
        return "\n".join(f"{log}: {line}" for log in logs for line in [*_warnings(log), *_tail(log)])

    def _start(self, node: str, daemon: str, options: list[str]) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = str(Path(spec.origin).parent)
        address = self._net.address(node)
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{daemon}", *self._settings, *options]
        environment = {
            **child_environment(),
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": address,
            "SPARK_LOCAL_HOSTNAME": address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:-UsePerfData",
        }
        with self._log(node).open("wb") as sink:
            self._running[node] = subprocess.Popen(
                self._net.command(node, command), env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
            )

    def _wait(self, nodes: Sequence[str], words: str) -> None:
        deadline = time.monotonic() + START_S
        for node in nodes:
            while words not in self._log(node).read_text(errors="replace"):
                code = self._running[node].poll()
                if code is not None or time.monotonic() > deadline:
                    what = f"ended with exit code {code}" if code is not None else f"was not ready in {START_S:.0f} s"
                    raise EnvironmentRefused(f"Spark's daemon on {node} {what}: {' | '.join(_tail(self._log(node)))}")
                time.sleep(0.1)

    def _log(self, node: str) -> Path:
        return self._folder / f"{node}.log"


def _tail(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]


def _warnings(path: Path) -> list[str]:
    """The newest, but for those in its tail."""
    lines = path.read_text(errors="replace").splitlines()[:-_TAIL_LINES]
    return [line for line in lines if " WARN " in line or " ERROR " in line][-_TAIL_LINES:]
