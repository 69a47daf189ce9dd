"""What is to be run, its result, and who hears of a run while it goes on. Plain values: nothing is opened or started here.

The refusal of a configuration needs only this file, so that it comes before the imports of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpca.checks import refused
from mpca.config.resolved import Resolved
from mpca.config.sections import ClusterConfig
from mpca.config.sources import DEFAULT_METHOD, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.driver.callbacks import Callback
    from mpca.driver.cluster import Cluster
    from mpca.driver.objectives import Evaluate
    from mpca.driver.status import RunStatus
    from mpca.methods import Method

__all__ = ["Ended", "Job", "Listeners", "resolve"]


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    config: Resolved
    payload: bytes  # cloudpickle of (function, args, kwargs), from api.shipping
    evaluate: Evaluate | None = None
    run_dir: Path | str | None = None  # the folder itself, or its URL; None: run.dir, or runs/<name>-<time>
    resume: str | None = None  # "auto", or the folder of a backup, or its URL
    session: SparkSession | None = None  # None: executors on this machine
    callbacks: tuple[Callback, ...] = ()
    wrap_cluster: Callable[[Cluster], Cluster] = lambda cluster: cluster  # puts something between driver and cluster: faults

    @property
    def agents(self) -> int:
        wanted: int = self.config.method.agents(self.config.cluster.agents)
        return wanted

    @property
    def agents_per_executor(self) -> int:
        return min(self.config.cluster.agents_per_executor, self.agents)

    @property
    def executors(self) -> int:
        return -(-self.agents // self.agents_per_executor)


@dataclass(frozen=True)
class Ended:
    """The result of a job."""

    run_dir: Path | str  # a URL when it is on HDFS
    summary: dict[str, Any]
    reason: str
    exit_code: int
    model_state: dict[str, Any]  # numpy arrays by the model's own names
    history: list[dict[str, Any]]  # as `Runner.history`
    returns: dict[int, Any] = field(default_factory=dict)  # what train functions returned, by agent


@dataclass(frozen=True)
class Listeners:
    """Functions that are called while a run goes on: with the status, with an agent's output, with a line for the user."""

    on_status: Callable[[RunStatus], None] = lambda status: None
    on_output: Callable[[int, str], None] = lambda agent, line: None
    on_stage: Callable[[str], None] = lambda text: None


def resolve(path: Path | None, sets: Iterable[str] = (), spark_conf: dict[str, str] | None = None) -> Resolved:
    """A configuration with the methods of this version, and with the codec that "auto" means; see `config.sources.load`.

    Raises:
        ConfigError: a source is wrong, the method is simulated only, its agents would hand over after the deadline, or goals
            contradict each other.
    """
    found = load(path, sets, spark_conf, method=_method)
    if found.method.simulated:
        raise refused(
            "method.name", found.method.name, "is simulated only, in `mpca compare`: nothing here carries it on Spark"
        )
    hold_s, deadline_s = found.method.agent_side.hold_s, found.cluster.cycle_deadline
    if hold_s >= deadline_s:
        rule = f"must be less than cluster.cycle_deadline = {deadline_s:g} s, after which nobody waits for an agent; raise that"
        raise refused("method.seconds", hold_s, rule)
    found = replace(found, cluster=_with_codec(found.cluster, found.method))
    if found.cluster.codec != "none" and (found.method.asks or not found.method.exchanges):
        rule = f'needs a method whose driver sums and broadcasts, and {found.method.name} is none; set cluster.codec = "none"'
        raise refused("cluster.codec", found.cluster.codec, rule)
    from mpca.driver.objectives import Evaluate, Goals, metric_goals  # late, as methods

    Goals(evaluate=Evaluate(dict), **metric_goals(found.objectives))  # refuses what is none, or contradicts itself
    return found


def _with_codec(cluster: ClusterConfig, method: Method) -> ClusterConfig:
    if cluster.codec != "auto":
        return cluster
    carried = (cluster.reducer, cluster.broadcast) == ("ranges", "relay")
    return replace(cluster, codec="int8" if carried and method.name == DEFAULT_METHOD else "none")


def _method(values: Mapping[str, Any]) -> Method:
    """As `methods.from_dict`, which is imported when all else is in order: methods import numpy."""
    from mpca.methods import from_dict

    return from_dict(values)
