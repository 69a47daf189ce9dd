"""One run on executors of other nodes while its network is damaged: slow and lossy, one way only, cut between two.

What entered the joint model is computed again from what the agents wrote down: whatever the wire did, nothing else did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from mpca.cli.bench.net.standalone import Standalone
from mpca.cli.bench.run.place import Place
from tests.bench.support import needs_namespaces
from tests.spark.node_driver import Run, ready_driver
from tests.spark.paper import read_tape, recompute
from tests.support.wires import Damage, DamagedNetwork

pytestmark = [pytest.mark.spark, pytest.mark.root, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(580)]

AGENTS = 3
DEADLINE_S = 4.0
ELEMENTS, BUFFERS = 300, 7
#: A hundred milliseconds there and back, one packet of a hundred lost, some overtaken, some twice.
SLOW = Damage(delay_s=0.05, loss=0.01, jump=0.02, twice=0.01)
WORKERS = [f"w{number}" for number in range(AGENTS)]
ENGINE = frozenset({"driver", *WORKERS})  # Spark's own master is not what is tried here


def places(run: Run, net: DamagedNetwork) -> dict[int, str]:
    """Which node each agent is on."""
    nodes = {net.address(node): node for node in WORKERS}
    return {one.index: nodes[one.host] for one in run.agents("started")}


def troubles(run: Run, net: DamagedNetwork) -> dict[str, float]:
    """One after the other; how long each phase took, for whoever reads the output."""
    took = {"clean": run.until(lambda: len(run.cycles()) >= 5, "the first cycles")}
    node = places(run, net)

    net.damage = SLOW
    at = run.cycle()
    took["slow and lossy"] = run.until(lambda: len(run.cycles(at)) >= 5, "cycles on a slow and lossy network")
    for damage in ("delayed", "lost", "jumped", "twice"):
        assert net.done[damage] > 0, f"no packet was {damage}: {dict(net.done)}"
    net.damage = Damage()
    took["everyone is back"] = run.until_whole(2, "everyone, on a network that is well again")

    at = run.cycle()
    net.damage = Damage(cut=frozenset({(node[1], "driver")}))  # it hears, and is not heard
    took["one way"] = run.until(lambda: sum(1 not in one.contributors for one in run.cycles(at)) >= 3, "cycles without it")
    assert net.done["cut"] > 0
    net.damage = Damage()
    took["it is heard again"] = run.until_whole(2, "everyone, when it is heard again")

    at, cut = run.cycle(), net.done["cut"]
    net.damage = Damage(cut=frozenset({(node[0], node[2]), (node[2], node[0])}))  # both see the driver, and agent 1
    took["two apart"] = run.until(lambda: len(run.cycles(at)) >= 3, "cycles while two cannot see each other")
    assert net.done["cut"] > cut
    net.damage = Damage()
    took["together again"] = run.until_whole(2, "everyone, when they see each other")
    return took


@contextmanager
def started(tmp_path: Path, damage: Damage) -> Iterator[tuple[Run, DamagedNetwork, Path]]:
    """A run on a network that is damaged already when executors first speak to each other, and what its driver says. It is
    told to end, and must end well."""
    needs_namespaces()
    files, run_dir, log = tmp_path / "files", tmp_path / "run", tmp_path / "driver.log"
    files.mkdir()
    with (
        DamagedNetwork(["master", "driver", *WORKERS]) as net,
        Standalone(net, "master", WORKERS, tmp_path, "2g") as daemons,
    ):
        place = Place(work_dir=str(tmp_path), agents=AGENTS, master=daemons.url, address=net.address("driver"))
        arguments = [json.dumps(asdict(place)), str(run_dir), str(files), str(DEADLINE_S)]
        with ready_driver(net, "tests.spark.lossy", arguments, log) as driver:
            assert driver.stdin is not None
            net.damage = damage
            driver.stdin.write("go\n")
            driver.stdin.flush()
            try:
                yield Run(run_dir, driver, AGENTS), net, log
            except BaseException:
                print(log.read_text(), daemons.executor_log(), dict(net.done))
                driver.kill()
                raise
            (files / "end").touch()
            driver.wait(60)
        assert driver.returncode == 0, log.read_text()


def test_a_run_goes_on_over_a_damaged_network_and_is_whole_when_it_is_well(tmp_path: Path) -> None:
    with started(tmp_path, Damage()) as (run, net, _log):
        took = troubles(run, net)
    print({what: round(seconds, 1) for what, seconds in took.items()}, dict(net.done))

    files = tmp_path / "files"
    numbers = [one.cycle for one in run.cycles()]
    assert numbers == sorted(set(numbers))
    expected = recompute(np.load(files / "start.npy"), ELEMENTS, run.cycles(), read_tape(files, ELEMENTS + BUFFERS))
    np.testing.assert_allclose(np.load(files / "end.npy"), expected.x, rtol=1e-5, atol=1e-6)


def test_a_closed_port_between_two_workers_is_named_with_both_ends(tmp_path: Path) -> None:
    """A firewall that was always there: they never had a connection. When it opens, the run is whole."""
    with started(tmp_path, Damage(cut=frozenset({("w0", "w2"), ("w2", "w0")}))) as (run, net, log):
        ends = [re.escape(net.address(node)) for node in ("w0", "w2")]
        # while x_0 is read, which may take long, connecting is given up first; in a cycle its deadline comes first
        named = "|".join(
            rf"executor \d at {a}:\d+, to which executor \d at {b} has got no connection"
            rf"|of executor \d at {a}:\d+ could not be fetched by executor \d at {b}: .*Connecting to"
            for a, b in (ends, ends[::-1])
        )
        run.until(lambda: re.search(named, log.read_text()) is not None, "both ends of what is closed")
        assert net.done["cut"] > 0
        net.damage = Damage()
        run.until(lambda: len(run.cycles()) > 0, "the first cycle")
        run.until_whole(2, "everyone, when the port is open")
