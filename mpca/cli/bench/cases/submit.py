"""`mpca bench submit`: from spark-submit to a run's first step, over the start of the same executors alone.

It runs on the cluster that HADOOP_CONF_DIR names, in client mode. Both applications use the same line and the same containers,
one after the other, in turns. Only the program differs: one is a run of the digits, which ends at its first evaluation, the
other waits for executors. Both clocks begin with spark-submit, so the earlier checks of `mpca submit` are in neither.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpca.checks import refused
from mpca.cli.bench.load import cpu_idle_share, cpu_ticks
from mpca.cli.bench.show import show
from mpca.cli.options import json_option
from mpca.environment import child_environment, environment
from mpca.errors import MpcaError

if TYPE_CHECKING:
    from mpca.config.resolved import Resolved

__all__ = ["command", "figures", "measure"]

_PROGRAMS = Path(__file__).resolve().parents[2] / "program"
_SAID = "executors "
_PATIENCE_S = 900.0
_TAIL = 15


@click.command()
@click.option("--agents", default=2, show_default=True, help="Agents of the run, one an executor.")
@click.option("--turns", default=3, show_default=True, help="How many runs, and as many starts of executors alone.")
@click.option("--set", "sets", multiple=True, metavar="SECTION.KEY=VALUE", help="As for mpca submit; counts for both.")
@click.option("--queue", help="YARN's queue.")
@click.option("--jars-on-nodes", is_flag=True, help="As for mpca submit.")
@json_option
def command(agents: int, turns: int, sets: tuple[str, ...], queue: str | None, jars_on_nodes: bool, as_json: bool) -> None:
    """From spark-submit to the first step, over the start of the same executors alone."""
    show(measure(agents, turns, sets, queue, jars_on_nodes), as_json)


def measure(
    agents: int = 2, turns: int = 3, sets: Sequence[str] = (), queue: str | None = None, jars_on_nodes: bool = False
) -> dict[str, Any]:
    """The `submit` case.

    Raises:
        EnvironmentRefused: no cluster, or no Spark.
        MpcaError: one of the applications failed; with the end of what it said.
    """
    from mpca.api.launch import resolve

    own = ("run.name=bench", f"cluster.agents={agents}", "objectives.max_cycles=1", *sets)
    config = resolve(None, own)
    start = cpu_ticks()
    with tempfile.TemporaryDirectory(prefix="mpca-bench-") as folder:
        line = _lines(config, own, queue, jars_on_nodes, Path(folder))
        runs, alone = [], []
        for turn in range(turns):
            click.echo(f"turn {turn + 1} of {turns}: executors alone, then a run", err=True)
            alone.append(_alone(line, config))
            runs.append(_run(line, Path(folder), turn))
    return {
        "case": "submit",
        "agents": agents,
        **figures(runs, alone),
        "cpu_idle_share": cpu_idle_share(start, cpu_ticks()),
        "cores": os.cpu_count(),
    }


def figures(runs: Sequence[Mapping[str, float]], alone: Sequence[float]) -> dict[str, Any]:
    """Figures from the ends of each run's stages and of the start of executors alone, in seconds since spark-submit began."""
    stages: dict[str, list[float]] = {}
    for run in runs:
        for (_, before), (name, end) in pairwise([("", 0.0), *run.items()]):
            stages.setdefault(name, []).append(end - before)
    first_step = [run["first_step"] for run in runs]
    return {
        "submit_ratio": statistics.median(first_step) / statistics.median(alone),
        "first_step_s": statistics.median(first_step),
        "executors_alone_s": statistics.median(alone),
        "stages_s": {name: statistics.median(seconds) for name, seconds in stages.items()},
        "each_first_step_s": first_step,
        "each_executors_alone_s": list(alone),
    }


_Line = Callable[[str, Sequence[str]], list[str]]


def _lines(config: Resolved, sets: Sequence[str], queue: str | None, jars_on_nodes: bool, folder: Path) -> _Line:
    """Makes the spark-submit line of a program and its words."""
    from mpca.cli.submit import containers, find_spark_jars
    from mpca.spark.hdfs.files import ClusterFiles
    from mpca.spark.jvm.hadoop import configuration_folder, hadoop_jvm, spark_home
    from mpca.spark.jvm.jar import line_of
    from mpca.spark.yarn.client import Yarn
    from mpca.spark.yarn.submit import Submission

    configuration_folder()
    home = spark_home()
    with hadoop_jvm(home) as jvm, closing(Yarn(jvm)) as yarn:
        yarn.check_queue(queue or "default")
        spark_jars = find_spark_jars(config, home, ClusterFiles(jvm, yarn.configuration), jars_on_nodes)
    executor, driver = containers(config, None)
    config.write(folder / "bench.toml")

    def line(program: str, words: Sequence[str]) -> list[str]:
        submission = Submission(
            config=config,
            sets=sets,
            program=str(_PROGRAMS / program),
            words=words,
            deploy_mode="client",
            executor=executor,
            driver=driver,
            python=sys.executable,
            jar=str(line_of(home.core_jar).jar),
            spark_jars=spark_jars,
            queue=queue,
            local_ip=environment("SPARK_LOCAL_IP"),
            defaults=home.defaults(),
        )
        for key in sorted(submission.hidden()):
            raise refused(
                key, "", "is a secret, and a measurement needs none: leave it out, or write it into spark-defaults.conf"
            )
        return submission.command(str(home.submit))

    return line


def _alone(line: _Line, config: Resolved) -> float:
    executors = -(-config.cluster.agents // config.cluster.agents_per_executor)
    said = _finished(line("mpca_executors.py", [str(executors)]))
    return float(json.loads(next(text for text in said.splitlines() if text.startswith(_SAID)).removeprefix(_SAID)))


def _run(line: _Line, folder: Path, turn: int) -> dict[str, float]:
    run_folder = folder / f"run-{turn}"
    words = line("mpca_run.py", [str(folder / "bench.toml")])
    words[words.index("--conf") : words.index("--conf")] = ["--conf", f"spark.mpca.run.dir={run_folder}"]
    _finished(words)
    stages: dict[str, float] = json.loads((run_folder / "summary.json").read_text())["submit_seconds"]
    return stages


def _finished(words: Sequence[str]) -> str:
    """Run a line to its end.

    Returns:
        Its stdout.
    """
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=_PATIENCE_S)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)  # spark-submit's JVM, and with it the driver and its application
        process.communicate()
        raise
    if process.returncode:
        tail = "\n".join([*err.splitlines(), *out.splitlines()][-_TAIL:])
        raise MpcaError(f"an application failed: exit_code={process.returncode}\n{tail}")
    return out
