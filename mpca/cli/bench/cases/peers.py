"""`mpca bench peers`: mpca beside what Spark's users have, with one script, model, data and seeds behind the same links.

A driver and K workers are on nodes of their own. The peers are pyspark.ml.torch's TorchDistributor with DDP on gloo, as it is
delivered; the same with torch's local SGD; and mpca by several methods. An update takes C = b / ratio on every worker (b: the
seconds that the model takes over one link), by waiting; `run/peers_train.py` says how.

Fair: each peer has the same grid of rates and tries it on one seed, which is not reported. The best rate of each then runs on
further seeds. Time counts from the first update; evaluations cost DDP nothing, and mpca what they cost its driver.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from mpca.cli.bench.load import Sampler, cpu_idle_share, cpu_ticks, invalid_reason
from mpca.cli.bench.net.network import RATE, check
from mpca.cli.bench.net.node_process import NodeProcess
from mpca.cli.bench.net.standalone import Nodes
from mpca.cli.bench.net.tcp import stream_rate
from mpca.cli.bench.show import show
from mpca.cli.options import json_option
from mpca.errors import EnvironmentRefused, MpcaError
from mpca.extras import require

__all__ = ["Plan", "command", "drawn", "measure"]

DRIVER = "mpca.cli.bench.run.peers_driver"
WORKER_BYTES = 3 << 30
#: By their times to the target; the first is what the others are compared with.
ALL = ("ddp", "ddp-local-sgd", "default", "mpca-paper", "sync")
TUNING_SEED = 1000
LOOKS = 60  # at the model, in one trial
_BAR = 40  # characters of the longest


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    agents: int
    rate: str  # of every link
    ratio: float  # b/C
    peers: tuple[str, ...]
    rates: tuple[float, ...]  # of the optimiser
    seeds: int
    updates: int  # time of a trial, in C
    target: float
    batch: int
    optimizer: str


@click.command()
@click.option("--agents", default=4, show_default=True, help="K: workers, each on an executor and a node of its own.")
@click.option("--shape", "rate", type=RATE, default="100mbit", show_default=True, help="Rate of every link; needs root.")
@click.option(
    "--ratio",
    type=click.FloatRange(min=0.05),
    default=2.31,
    show_default=True,
    help="b/C: seconds of the model over one link, in updates; 0.59, 2.31 and 8.69 are the paper's nets at K = 8.",
)
@click.option(
    "--peer", "peers", type=click.Choice(ALL), multiple=True, default=ALL, show_default="all", help="May be repeated."
)
@click.option(
    "--lr",
    "rates",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    default=(0.0005, 0.001, 0.002, 0.004),
    show_default=True,
    help="Learning rates that each peer tries; may be repeated.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Trials with the best rate.")
@click.option("--updates", type=click.IntRange(min=20), default=600, show_default=True, help="Time of a trial, in C.")
@click.option("--target", type=click.FloatRange(0, 1), default=0.3, show_default=True, help="Error to be reached.")
@click.option("--batch", type=click.IntRange(min=1), default=16, show_default=True, help="Samples of an update.")
@click.option("--optimizer", default="adam", show_default=True)
@json_option
def command(as_json: bool, **options: Any) -> None:
    """mpca beside TorchDistributor with DDP, and DDP with local SGD, behind the same shaped links."""
    check()
    require("pandas", "pyarrow", "setuptools")
    result = measure(Plan(**options))
    show(result, as_json)
    if not as_json:
        click.echo("\n".join(drawn(result["table"])))


def drawn(table: list[dict[str, Any]]) -> list[str]:
    """The median times to the target, as bars.

    Example:
        >>> print("\\n".join(drawn([{"peer": "ddp", "median_s": 4.0}, {"peer": "sync", "median_s": None}])))
        ddp           ████████████████████████████████████████ 4.0 s
        sync          not reached
    """
    longest = max((one["median_s"] or 0.0 for one in table), default=0.0)
    return [
        f"{one['peer']:13} " + (f"{'█' * round(_BAR * s / longest)} {s:.1f} s" if (s := one["median_s"]) else "not reached")
        for one in table
    ]


def measure(plan: Plan) -> dict[str, Any]:
    """The `peers` case."""
    from mpca.cli.bench.run.peers_train import Trial, net
    from mpca.cli.bench.run.place import Place

    size = sum(4 * one.numel() for one in net(0).parameters())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-bench-")))
        _tell(f"starting a Master and {plan.agents} executors on nodes of their own")
        nodes = Nodes(stack, folder, plan.agents, WORKER_BYTES)
        place = Place(work_dir=str(folder), agents=plan.agents, **nodes.of_driver())
        driver = NodeProcess(stack, nodes.net.command("driver", []), DRIVER, place)
        driver.hear()
        nodes.net.shape(plan.rate, but=["master"])
        b_s = size / (1 << 20) / stream_rate(nodes.net, "driver", nodes.workers[0])
        step_s = b_s / plan.ratio
        seconds = plan.updates * step_s
        first = Trial(
            peer=plan.peers[0],
            rate=plan.rates[0],
            seed=0,
            step_s=step_s,
            seconds=seconds,
            every_s=seconds / LOOKS,
            batch=plan.batch,
            optimizer=plan.optimizer,
            target=plan.target,
        )
        trials = _Trials(driver, nodes, plan)
        try:
            found = [trials.of_peer(replace(first, peer=peer)) for peer in plan.peers]
        except MpcaError as error:
            raise MpcaError(f"{error}\n{nodes.daemons.executor_log()}") from None
    base = found[0]["median_s"] if found[0]["peer"] == ALL[0] else None
    for one in found:
        one["faster_than_ddp"] = base / one["median_s"] if base and one["median_s"] else None
    reason = next((one["reason"] for one in found if one["reason"]), "")
    return {
        "case": "peers",
        **asdict(plan),
        "size_bytes": size,
        "b_s": b_s,
        "step_s": step_s,
        "valid": not reason,
        "reason": reason,
        "table": found,
    }


class _Trials:
    """Lets the driver train, and counts bytes at the switch."""

    def __init__(self, driver: NodeProcess, nodes: Nodes, plan: Plan, ports_every_s: float = 0.25) -> None:
        self._driver, self._nodes, self._plan, self._every_s = driver, nodes, plan, ports_every_s

    def of_peer(self, first: Any) -> dict[str, Any]:
        """One row: the rate that was best on the tuning seed, and the trials with it.

        A single rate is tried too: in the first trial JVMs compile, and two cores are not idle enough for it to count.
        """
        plan = self._plan
        tried = {rate: self._one(replace(first, rate=rate, seed=TUNING_SEED)) for rate in plan.rates}
        best = min(tried, key=lambda rate: (tried[rate]["reached_s"] or float("inf"), tried[rate]["last_error"]))
        ran = [self._one(replace(first, rate=best, seed=seed)) for seed in range(plan.seeds)]
        times = [one["reached_s"] for one in ran]
        reached = None not in times
        return {
            "peer": first.peer,
            "lr": best,
            "edge": best in (min(plan.rates), max(plan.rates)),  # then a wider grid might be better
            "median_s": statistics.median(times) if reached else None,
            "from_s": min(times) if reached else None,
            "to_s": max(times) if reached else None,
            "missed": times.count(None),
            "last_error": statistics.median(one["last_error"] for one in ran),
            "computing": statistics.median(one["computing"] for one in ran),
            "driver_mib_s": statistics.median(one["driver_mib_s"] for one in ran),
            "worker_mib_s": statistics.median(one["worker_mib_s"] for one in ran),
            "reason": invalid_reason(min(one["idle"] for one in ran)),
        }

    def _one(self, trial: Any) -> dict[str, Any]:
        _tell(f"{trial.peer}: lr {trial.rate:g}, seed {trial.seed}, {trial.seconds:.0f} s")
        before = cpu_ticks()
        with Sampler(self._nodes.net.ports, self._every_s) as ports:
            self._driver.tell(asdict(trial))
            said = self._driver.hear()
        inside = [counted for at, counted in ports.samples if said["began"] <= at <= said["ended"]]
        if len(inside) < 2:
            raise EnvironmentRefused("a trial was too short to count its bytes: give more --updates, or a slower --shape")
        seconds = said["ended"] - said["began"]
        sent = {node: inside[-1][node][1] - inside[0][node][1] for node in inside[0]}
        workers = [sent[node] for node in self._nodes.workers]
        errors = said["errors"]
        reached = next((at for at, error in errors if error is not None and error <= self._plan.target), None)
        return {
            "reached_s": reached,
            "last_error": errors[-1][1] if errors else 1.0,
            "computing": said["updates"] * trial.step_s / (seconds * self._plan.agents),
            "driver_mib_s": sent["driver"] / seconds / (1 << 20),
            "worker_mib_s": statistics.mean(workers) / seconds / (1 << 20),
            "idle": cpu_idle_share(before, cpu_ticks()),
        }


def _tell(text: str) -> None:
    """Tell the waiting user what goes on, on stderr: stdout is for the result."""
    click.echo(text, err=True)
