"""YARN as a client sees it: queues, the largest container, nodes, an application's end, and what its messages mean.

Calls go through YARN's own client in the JVM of `jvm/hadoop.py` and not through the ResourceManager's web pages: those are
often closed on a secured cluster, and there may be two ResourceManagers. The functions that read diagnostics, at the end of
this file, are pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from mpca.checks import nearest
from mpca.driver.events import KILLED_BY
from mpca.errors import EnvironmentRefused
from mpca.spark.jvm.login import explained

__all__ = [
    "Application",
    "Largest",
    "MemoryKill",
    "Queue",
    "Yarn",
    "application_ids",
    "exit_code",
    "loss_reason",
    "memory_kill",
]

_APPLICATION = re.compile(r"\bapplication_\d+_\d{4,}\b")
_EXIT = (
    re.compile(r"User application exited with status (\d+)"),
    re.compile(r"exited with\s+exitCode: (-?\d+)"),
)
_MEMORY = re.compile(r"([\d.]+ ?[KMGTkmgt]?i?B) of ([\d.]+ ?[KMGTkmgt]?i?B) (physical|virtual) memory used")
_KILLED, _FAILED = 143, 1


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest container that YARN gives."""

    memory: int  # bytes
    cores: int
    why: str  # what limits it


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue."""

    name: str  # as --queue takes it; the capacity scheduler's has no dot, the fair scheduler's begins with "root."
    running: bool
    labels: frozenset[str]  # of nodes on which its applications may ask for containers, "*" for all
    capacity: float  # share of its parent, 0 to 1; the fair scheduler says what a queue has now, 0 if nothing runs in it

    @property
    def fair(self) -> bool:
        """Whether the fair scheduler made it."""
        return self.name.startswith("root.")


@dataclass(frozen=True, slots=True)
class Application:
    """An application at one moment."""

    id: str
    state: str
    final: str
    diagnostics: str

    @property
    def over(self) -> bool:
        return self.state in ("FINISHED", "FAILED", "KILLED")


class Yarn:
    """One client; `close` ends it."""

    def __init__(self, jvm: Any) -> None:
        """Connect.

        Raises:
            EnvironmentRefused: no ResourceManager answers.
        """
        self._jvm = jvm
        self.configuration = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        # A command must answer soon; by default it would wait for a quarter of an hour.
        self.configuration.set("yarn.resourcemanager.connect.max-wait.ms", "15000")
        self.configuration.set("yarn.resourcemanager.connect.retry-interval.ms", "1000")
        for again in ("ipc.client.connect.max.retries", "ipc.client.connect.max.retries.on.timeouts"):
            self.configuration.set(again, "0")  # otherwise each retry above would repeat these
        self._client = jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
        try:
            self._client.init(self.configuration)
            self._client.start()
        except Py4JJavaError as error:  # a login that cannot be
            raise self._unreachable(error) from None

    def close(self) -> None:
        self._client.stop()

    def setting(self, key: str, default: str = "") -> str:
        """One key of this machine's configuration."""
        return str(self.configuration.get(key, default))

    def largest(self) -> Largest:
        """The largest container that any node could give, and no larger than YARN allows.

        Raises:
            EnvironmentRefused: no ResourceManager answers, or it has no node.
        """
        try:
            allowed = self._client.createApplication().getNewApplicationResponse().getMaximumResourceCapability()
            nodes = [report.getCapability() for report in self._nodes()]
        except Py4JJavaError as error:
            raise self._unreachable(error) from None
        if not nodes:
            raise EnvironmentRefused(
                "YARN has no running node: an application would wait for ever; see `yarn node -list -all`, and the "
                "NodeManagers' logs"
            )
        memory, cores = max(node.getMemorySize() for node in nodes), max(node.getVirtualCores() for node in nodes)
        why = "the largest node" if memory < allowed.getMemorySize() else "yarn.scheduler.maximum-allocation-mb"
        return Largest(min(memory, allowed.getMemorySize()) << 20, min(cores, allowed.getVirtualCores()), why)

    def nodes(self) -> list[tuple[str, str]]:
        """Id and web address of every running node."""
        return [(str(report.getNodeId().toString()), str(report.getHttpAddress())) for report in self._nodes()]

    def unhealthy(self) -> list[tuple[str, str]]:
        """Id and reason of every node that takes no containers."""
        return [(str(one.getNodeId().toString()), str(one.getHealthReport())) for one in self._nodes("UNHEALTHY")]

    def resource_types(self) -> list[str]:
        """Names of what a node can offer; ``yarn.io/gpu`` is one of them if YARN counts GPUs."""
        return [str(one.getName()) for one in self._client.getResourceTypeInfo()]

    def gpus(self) -> int:
        """GPUs of the node that has most of them.

        Raises:
            EnvironmentRefused: this machine's configuration does not say that there are any; Spark could not ask for one.
        """
        try:
            return max((int(one.getCapability().getResourceValue("yarn.io/gpu")) for one in self._nodes()), default=0)
        except Py4JJavaError:
            raise EnvironmentRefused(
                "the cluster counts yarn.io/gpu, and resource-types.xml of HADOOP_CONF_DIR does not name it: copy the cluster's"
            ) from None

    def queues(self) -> list[Queue]:
        """Leaf queues, which are those that take applications."""
        try:
            found = self._client.getAllQueues()
        except Py4JJavaError as error:
            raise self._unreachable(error) from None
        return [
            Queue(
                str(one.getQueueName()),
                str(one.getQueueState()) == "RUNNING",
                frozenset(map(str, one.getAccessibleNodeLabels() or ())),
                float(one.getCapacity()),
            )
            for one in found
            if not one.getChildQueues()
        ]

    def check_queue(self, name: str) -> Queue:
        """Find a queue that takes applications.

        Raises:
            EnvironmentRefused: the queue does not exist, or is stopped.
        """
        known = {one.name: one for one in self.queues()}
        found = known.get(name) or known.get(f"root.{name}") or known.get(name.rpartition(".")[2])
        if found is None:
            raise EnvironmentRefused(f"no such queue: --queue {name}; {nearest(name, known)}")
        if not found.running:
            raise EnvironmentRefused(f"queue is stopped: --queue {name}; choose another, or have it started")
        return found

    def check_label(self, key: str, label: str, queue: Queue) -> None:
        """Check a label of nodes; the empty one is that of nodes without a label.

        Args:
            key: the setting that asks for it.
            label: its value.
            queue: of the application.

        Raises:
            EnvironmentRefused: there is no such label, or it is not for this queue. YARN would say so in a container's log.
        """
        if not label:
            return
        known = [str(one.getName()) for one in self._client.getClusterNodeLabels()]
        if label not in known:
            raise EnvironmentRefused(f"no such node label: {key}={label}; {nearest(label, known)}")
        if not {label, "*"} & queue.labels:
            raise EnvironmentRefused(
                f"queue {queue.name} has no access to node label: {key}={label}; choose another queue, or have "
                "accessible-node-labels of the queue changed"
            )

    def application(self, id: str) -> Application:
        """The state of an application.

        Raises:
            EnvironmentRefused: YARN does not know it.
        """
        try:
            report = self._client.getApplicationReport(self._id(id))
        except Py4JJavaError as error:
            raise EnvironmentRefused(f"YARN does not know {id}: {_first_line(error)}") from None
        return Application(
            id, str(report.getYarnApplicationState()), str(report.getFinalApplicationStatus()), str(report.getDiagnostics())
        )

    def kill(self, id: str) -> None:
        """End an application; no error when it has ended already."""
        self._client.killApplication(self._id(id))

    def _id(self, id: str) -> Any:
        return self._jvm.org.apache.hadoop.yarn.api.records.ApplicationId.fromString(id)

    def _nodes(self, state: str = "RUNNING") -> list[Any]:
        array = self._jvm.py4j.reflection.ReflectionUtil.classForName("org.apache.hadoop.yarn.api.records.NodeState")
        one = self._jvm.java.lang.reflect.Array.newInstance(array, 1)
        self._jvm.java.lang.reflect.Array.set(one, 0, self._jvm.org.apache.hadoop.yarn.api.records.NodeState.valueOf(state))
        return list(self._client.getNodeReports(one))

    def resourcemanagers(self, key: str) -> list[str]:
        """The values of a key that each ResourceManager has, such as its address; of one alone, that one."""
        ids = [one.strip() for one in self.setting("yarn.resourcemanager.ha.rm-ids").split(",") if one.strip()]
        port = self.setting(key).rpartition(":")[2]  # Hadoop's own, where only hosts are named
        hosts = {id: self.setting(f"yarn.resourcemanager.hostname.{id}") for id in ids}
        return [self.setting(f"{key}.{id}") or f"{host}:{port}" for id, host in hosts.items()] or [self.setting(key)]

    def _unreachable(self, error: Py4JJavaError) -> EnvironmentRefused:
        where, (text, advice) = " or ".join(self.resourcemanagers("yarn.resourcemanager.address")), explained(error)
        if advice:
            return EnvironmentRefused(f"the ResourceManager at {where} does not let us in: {text}; {advice}")
        return EnvironmentRefused(f"no ResourceManager answers at {where}: {text}; is it up, and HADOOP_CONF_DIR right?")


# ---- words of YARN and Spark -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryKill:
    """A container that used more memory than it was given."""

    used: str
    limit: str
    kind: str  # "physical" or "virtual"

    def advice(self, setting: str = "cluster.agent_memory or spark.executor.memoryOverhead") -> str:
        """Limit, peak, and the setting to change, in one sentence."""
        change = "set yarn.nodemanager.vmem-check-enabled=false" if self.kind == "virtual" else f"raise {setting}"
        return f"container killed for {self.kind} memory: peak {self.used}, limit {self.limit}; {change}"


def memory_kill(text: str) -> MemoryKill | None:
    """Why a container was killed for its memory, from YARN's diagnostics or Spark's reason for a lost executor; else None.

    Example:
        >>> memory_kill("Current usage: 1.5 GB of 1 GB physical memory used; 3 GB of 2.1 GB virtual memory used.").used
        '1.5 GB'
    """
    found = [MemoryKill(*one) for one in _MEMORY.findall(text)]
    # both are rounded: "1.9 GB of 1.9 GB" means that the limit was exceeded by less than the rounding
    return next((one for one in found if _bytes(one.used) >= _bytes(one.limit)), None)


def loss_reason(text: str) -> str:
    """Why an executor was lost, with advice if we have any; else Spark's own words."""
    killed = memory_kill(text)
    if killed is not None:
        return f"{killed.advice()} ({text})"
    return f"{text}: {KILLED_BY}" if text.endswith("exited with code 137") else text  # as a Worker of Spark's own says it


def exit_code(application: Application) -> int:
    """The run's exit code, from the end of its application. A kill from outside counts as SIGTERM."""
    if application.final == "SUCCEEDED":
        return 0
    if application.state == "KILLED" or application.final == "KILLED":
        return _KILLED
    for pattern in _EXIT:
        found = pattern.findall(application.diagnostics)
        if found:
            return int(found[-1]) if int(found[-1]) > 0 else _FAILED
    return _FAILED


def application_ids(text: str) -> list[str]:
    """Ids of applications that occur in a text, each once."""
    return list(dict.fromkeys(_APPLICATION.findall(text)))


def _bytes(text: str) -> float:
    found = re.fullmatch(r"([\d.]+) ?([KMGTkmgt]?)i?B", text)
    assert found is not None, text
    number, unit = found.groups()
    return float(number) * (1 << 10 * " KMGT".index(unit.upper() or " "))


def _first_line(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString()).splitlines()[0]
