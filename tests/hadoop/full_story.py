"""One run on a cluster with Kerberos, two NameNodes and two ResourceManagers, on which all fails that a run of weeks may meet:
`make test-secure` has this, and CI has not. Each fault alone: test_am.py, test_ha.py, test_secure.py, full_tokens.py.

The run outlives the tokens that it was submitted with. It loses a NameNode while it trains, and its driver three times: once
alone, once together with a NameNode, and once more, with the NameNode from which the next driver is reading the backup.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpca.cli.dev.daemons import Daemons
from mpca.cli.dev.hadoop import Hadoop
from mpca.cli.dev.readiness import wait_until
from mpca.cli.dev.realm import Lives
from mpca.environment import child_environment
from mpca.storage import Backups, Location, joined
from mpca.storage.opening import open_store
from tests.hadoop.full_tokens import Master
from tests.hadoop.support import MPCA, Submitted, application, driver_records, jvms, nothing_lives, only, records, submit
from tests.hadoop.test_am import MASTER, attempts, nothing_kept
from tests.hadoop.test_secure import CHECKOUT, SMALL_NET, TOKEN_S, bring_photographs, cluster_in_realm, secured_login

__all__ = ["nothing_kept"]  # a fixture

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]
#: From a fault to the next cycle: a start of a driver and its agents, and twice the minute that a client looks for a NameNode.
MOST_S = 300.0
#: More than the story needs, on a slow machine too; the run ends by itself.
TRAINS_S = 780
#: Calls in the log of a NameNode. The driver is alice@MPCA.DEV there; who looks from outside, over WebHDFS, is alice.
RENEWS = r"ugi=yarn/\S+ .*cmd=renewDelegationToken"
READS = r"ugi=alice@MPCA\.DEV .*cmd=open\s+src=/user/alice/run/backups/term-\S+\s"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """With alice's photographs, and tokens that somebody must renew every minute and that end after two."""
    lives = Lives(token_renewal_s=TOKEN_S // 2, token_s=TOKEN_S)
    with cluster_in_realm(tmp_path_factory.mktemp("realm"), lives, ha=True) as cluster:
        bring_photographs(cluster, tmp_path_factory.mktemp("source"))
        yield cluster


class Story:
    """The run as somebody at this machine sees it, and what happens to it."""

    def __init__(self, cluster: Hadoop, run: Submitted, id: str, backups: Backups) -> None:
        self.attempt = 1
        self.took: dict[str, float] = {}  # seconds from a fault to the next cycle
        self._cluster, self._run, self._id, self._backups = cluster, run, id, backups

    # ---- what is seen ----

    def lines(self) -> list[dict[str, Any]]:
        """Records of this attempt."""
        lines = driver_records(self._cluster)
        began = [at for at, one in enumerate(lines) if one["kind"] == "run" and one["attempt"] == self.attempt]
        return lines[began[0] :] if began else []

    def cycles(self) -> list[dict[str, Any]]:
        return [one for one in self.lines() if one["kind"] == "cycle"]

    def trains(self) -> None:
        """It does some cycles more, reads images for them, and writes a backup that has them."""
        before = self.cycles()
        self._run.until(lambda: len(self.cycles()) >= len(before) + 5, "five cycles")
        self._run.until(lambda: any(one["bytes"]["data_read"] for one in self.cycles()[len(before) :]), "images from HDFS")
        cycle = self.cycles()[-1]["cycle"]
        self._run.until(lambda: self._backups.found()[0].cycle > cycle, f"a backup after cycle {cycle}")

    def recovers(self, fault: str, since: float) -> None:
        before = len(self.cycles())
        self._run.until(lambda: len(self.cycles()) > before, f"a cycle after this: {fault}")
        self.took[fault] = round(time.monotonic() - since, 1)
        print(f"{self.took[fault]} s to the next cycle: {fault}", flush=True)
        self.trains()

    # ---- what happens ----

    def driver_dies(self) -> str:
        """Returns the newest whole backup that it has left."""
        (master,) = jvms(self._id, MASTER)
        os.kill(master, signal.SIGKILL)
        assert wait_until(lambda: not psutil.pid_exists(master), 30.0)
        self.attempt += 1
        return self._backups.found()[0].name

    def name_node_dies(self, when: str = "") -> str:
        """The active one; then the other is so.

        Args:
            when: it dies as soon as it has answered such a call.

        Returns:
            The dead one.
        """
        active = self._active()
        process = psutil.Process(self._cluster.pid(active))
        if when:
            self._answers(active, when)
        process.kill()
        assert wait_until(lambda: active not in Daemons(self._cluster.setup).find(), 30.0)
        self._cluster.fail_over()
        return active

    def when_tokens_are_new(self) -> None:
        """YARN has renewed those that the driver's next start needs.

        It asks once, when a tenth of their life is left: six seconds here, hours elsewhere. A fail-over in these seconds would
        cost the run its next driver.
        """
        self._answers(self._active(), RENEWS)

    # ---- inside ----

    def _active(self) -> str:
        active = self._cluster.active()
        assert active is not None
        return active

    def _answers(self, name_node: str, call: str) -> None:
        """Wait until it has answered such a call from now on, as its log says."""
        pattern, deadline, text = re.compile(call), time.monotonic() + MOST_S, ""
        with self._cluster.log(name_node).open("rb") as file:
            file.seek(0, os.SEEK_END)
            while not pattern.search(text):
                assert time.monotonic() < deadline, call
                time.sleep(0.01)  # what follows must come before the next calls
                text += file.read().decode(errors="replace")


def test_one_run_outlives_its_tokens_its_drivers_and_name_nodes(
    realm: Hadoop, nothing_kept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, home = realm.setup.realm, f"{realm.hdfs_url}/user/alice"
    assert setup is not None
    run_dir, conf = f"{home}/run", tmp_path / "small.toml"
    conf.write_text(SMALL_NET)
    sets = (
        *(f"data.path={home}/photographs", f"run.dir={run_dir}", f"objectives.max_time={TRAINS_S}s"),
        *("backup.interval=5s", "data.read_ahead=1MiB"),  # less than the set, so that it is read again and again
        *("spark.kerberos.principal=alice@MPCA.DEV", f"spark.kerberos.keytab={setup.keytab('alice')}"),
        # A fail-over is long for tokens of a minute: new ones come when half of it is left.
        *("spark.security.credentials.renewalRatio=0.5", "spark.security.credentials.retryWait=5s"),
    )
    run, left = submit(tmp_path, "--deploy-mode", "cluster", sets=(*sets, *CHECKOUT), conf=conf), []
    try:
        id = only(run.until(lambda: re.findall(r"application_\w+", run.text())[:1], "an application")[0])
        began = time.monotonic()
        for name, value in secured_login(realm, "alice").items():  # after the submission, which has the keytab alone
            monkeypatch.setenv(name, value)
        with closing(open_store(Location.parse(run_dir))) as store:
            story = Story(realm, run, id, Backups(store, "backups"))
            run.until(lambda: story.cycles(), "the first cycle")
            run.until(lambda: time.monotonic() - began > TOKEN_S + 10, "the end of the tokens that it was submitted with")
            story.trains()

            since = time.monotonic()
            left.append(story.driver_dies())
            story.recovers("the driver dies", since)

            story.when_tokens_are_new()
            since = time.monotonic()
            dead = story.name_node_dies()
            story.recovers("the NameNode dies", since)
            realm.start(dead)

            story.when_tokens_are_new()
            since = time.monotonic()
            left.append(story.driver_dies())
            dead = story.name_node_dies()
            story.recovers("both die", since)
            realm.start(dead)

            story.when_tokens_are_new()
            since = time.monotonic()
            left.append(story.driver_dies())
            dead = story.name_node_dies(when=READS)
            assert not story.lines(), "it was still looking for what to go on from"
            story.recovers("the driver dies, and the NameNode from which the next one reads the backup", since)
            realm.start(dead)

            assert run.ended(2 * TRAINS_S) == 0, run.text()[-4000:]
            summary, lines = json.loads(store.read("summary.json")), records(joined(store).decode())
    finally:
        run.close()
    print(story.took, {"seconds in all": round(time.monotonic() - began)}, {"trained": summary["seconds"]})
    assert time.monotonic() - began > 2 * TOKEN_S
    assert max(story.took.values()) < MOST_S
    assert (summary["status"], summary["attempts"], attempts(realm, id)) == ("max_time", 4, 4)
    told = application(realm, id)
    assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    nothing_lives(id)
    renewals = [Master(realm, id, attempt).count("Scheduling renewal in") for attempt in range(1, 5)]
    print({"times that Spark asked for new tokens, by driver": renewals})

    begins = [at for at, one in enumerate(lines) if one["kind"] == "run"]
    parts = [lines[at:to] for at, to in zip(begins, [*begins[1:], len(lines)], strict=True)]
    taken = [part[0]["resumed_from"] for part in parts]
    assert taken == [None, *(f"{run_dir}/backups/{one}" for one in left)], "the newest that was whole"
    for part in parts:
        cycles = [one["cycle"] for one in part if one["kind"] == "cycle"]
        first = int((part[0]["resumed_from"] or "-0").rpartition("-")[2])
        assert cycles == list(range(first, first + len(cycles))), "it goes on from the backup, and no cycle is missing"
        assert [one for one in part if one["kind"] == "evaluation"], "every driver evaluates"
        assert [one for one in part if one["kind"] == "backup" and one["ok"]], "and backs up"
    assert parts[-1][-1]["kind"] == "end"
    said = subprocess.run([*MPCA, "backups", "verify", run_dir], capture_output=True, text=True, env=child_environment())
    print(said.stdout)
    assert said.returncode == 0, said.stdout + said.stderr
    assert len(said.stdout.splitlines()) >= 3
