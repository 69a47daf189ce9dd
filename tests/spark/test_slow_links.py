"""A run on other nodes' executors with slow links: the model takes longer than `cluster.cycle_deadline`, and no shard does."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from mpca.cli.bench.net.network import Network
from mpca.cli.bench.net.standalone import Standalone
from mpca.cli.bench.run.place import Place
from tests.bench.support import needs_namespaces
from tests.spark.node_driver import Run, ready_driver

pytestmark = [pytest.mark.spark, pytest.mark.root, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(580)]

AGENTS = 3
#: 4 MiB take 8.4 s, a shard of twelve 0.7.
ELEMENTS, SHARDS, RATE, DEADLINE_S = 1 << 20, 12, "4mbit", 6


def executor_at(address: str, files: Path) -> psutil.Process:
    """Of the run whose files lie there: other networks on this machine have the same addresses."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        words = one.info["cmdline"] or ()
        if address in words and any("CoarseGrainedExecutorBackend" in word for word in words) and str(files) in " ".join(words):
            found.append(one)
    (only,) = found
    return only


def test_a_new_executor_gets_a_joint_model_that_takes_longer_than_the_deadline(tmp_path: Path) -> None:
    needs_namespaces()
    files, run_dir, log = tmp_path / "files", tmp_path / "run", tmp_path / "driver.log"
    files.mkdir()
    workers = [f"w{number}" for number in range(AGENTS)]
    with (
        Network(["master", "driver", *workers]) as net,
        Standalone(net, "master", workers, tmp_path, "2g") as daemons,
    ):
        place = Place(work_dir=str(tmp_path), agents=AGENTS, master=daemons.url, address=net.address("driver"))
        arguments = [json.dumps(asdict(place)), str(run_dir), str(files), str(DEADLINE_S), str(ELEMENTS)]
        with ready_driver(net, "tests.spark.lossy", arguments, log) as driver:
            assert driver.stdin is not None
            net.shape(RATE, but=["master"])
            driver.stdin.write("go\n")
            driver.stdin.flush()
            run = Run(run_dir, driver, AGENTS)
            try:
                run.until(lambda: len(run.cycles()) > SHARDS, "a base of each shard")
                executor_at(net.address(workers[1]), tmp_path).kill()
                run.until(lambda: bool(run.agents("replaced")), "a new executor, and an agent there")
                at = run.cycle()
                run.until(lambda: any(len(one.contributors) == AGENTS for one in run.cycles(at)), "everyone")
            except BaseException:
                print(log.read_text(), daemons.executor_log())
                raise
            finally:
                driver.kill()  # what its agents return would take longer than all this
    assert "sent anew" not in log.read_text()
    waited = max(b.t - a.t for a, b in pairwise(run.cycles()))
    assert waited > DEADLINE_S, "cycles wait for who joins, and the model took no longer than the deadline: nothing was tried"
