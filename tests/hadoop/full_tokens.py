"""Tokens of a realm end, and runs do not, or say so: `make test-secure` has this, and CI has not.

The cluster is one of its own, whose tokens are good for two minutes unless renewed.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.cli.dev.realm import Lives
from mpca.environment import child_environment
from tests.hadoop.support import Submitted, only, records, submit
from tests.hadoop.test_secure import CHECKOUT, SMALL_NET, bring_photographs, cluster_in_realm

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

#: Spark gets new tokens after 90 s; nobody renews those.
GOOD_S = 120
SOON_S = 45.0


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """A cluster with Kerberos, with a small data set in alice's folder, and the environment of this process set."""
    with cluster_in_realm(tmp_path_factory.mktemp("realm"), Lives(token_renewal_s=GOOD_S, token_s=3600)) as cluster:
        bring_photographs(cluster, tmp_path_factory.mktemp("source"))
        yield cluster


class Master:
    """The driver's container of a run in cluster mode, as a file of this machine."""

    def __init__(self, cluster: Hadoop, id: str, attempt: int = 1) -> None:
        self._data, self._id, self._container = cluster.setup.data, id, f"_{attempt:02}_000001"

    def log(self) -> str:
        found = self._data.glob(f"nodemanager*/logs/{self._id}/*{self._container}/std*")
        return "".join(one.read_text(errors="replace") for one in found)

    def keytab(self) -> Path:
        """Spark's copy: what the run logs in with. No other container has one."""
        (found,) = self._data.glob(f"nodemanager*/local/usercache/*/appcache/{self._id}/container_*/*.keytab*")
        assert found.parent.name.endswith(self._container)
        return found

    def count(self, words: str) -> int:
        return len(re.findall(words, self.log()))

    def says(self, run: Submitted, words: str, times: int, seconds: float) -> str:
        """The line with these words, once the log has so many of them; and how long that took is printed."""
        began = time.monotonic()
        run.until(lambda: self.count(words) >= times, f"{times} x {words}", seconds)
        line = [one for one in self.log().splitlines() if re.search(words, one)][times - 1]
        print(f"after {time.monotonic() - began:.1f} s: {line}")
        return line


def test_a_kdc_that_is_away_is_outlived_and_a_keytab_that_is_gone_ends_the_run_in_time(realm: Hadoop, tmp_path: Path) -> None:
    """The KDC is away while Spark wants new tokens; Spark's copy of the keytab goes and comes back; alice gets a new key."""
    setup = realm.setup.realm
    assert setup is not None
    home, conf = f"{realm.hdfs_url}/user/alice", tmp_path / "small.toml"
    conf.write_text(SMALL_NET)
    sets = (
        *(f"data.path={home}/photographs", f"run.dir={home}/run", "backup.interval=10s", "objectives.max_time=1h"),
        *("spark.kerberos.principal=alice@MPCA.DEV", f"spark.kerberos.keytab={setup.keytab('alice')}"),
        "spark.security.credentials.retryWait=5s",
    )
    run = submit(tmp_path, "--deploy-mode", "cluster", sets=(*sets, *CHECKOUT), conf=conf)
    try:
        id = only(run.until(lambda: re.findall(r"application_\w+", run.text())[:1], "an application")[0])
        master = Master(realm, id)
        renewed = r"Scheduling renewal in"
        master.says(run, "2/2 agents", 1, 240.0)
        away = master.count(renewed)
        master.says(run, renewed, away + 1, 2 * GOOD_S)

        realm.kill("kdc")
        line = master.says(run, r"no new tokens for HDFS: no login as alice@MPCA\.DEV: .*no KDC answers", 1, SOON_S)
        assert re.search(r"it ends before 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \w+, in 1m\d+s, when its tokens do", line), line
        master.says(run, "Failed to update tokens", 1, GOOD_S)
        realm.start("kdc")
        master.says(run, r"alice@MPCA\.DEV logs in again", 1, SOON_S)
        master.says(run, renewed, away + 3, SOON_S)

        keytab = master.keytab()
        hidden = keytab.rename(keytab.with_name("hidden"))
        master.says(run, r"no new tokens for HDFS: spark\.kerberos\.keytab = \S+: No such file", 1, 15.0)
        hidden.rename(keytab)
        master.says(run, r"alice@MPCA\.DEV logs in again", 2, 15.0)

        kadmin = ["kadmin.local", "-r", "MPCA.DEV", "cpw", "-randkey", "alice"]
        kdc = {"KRB5_CONFIG": str(setup.config), "KRB5_KDC_PROFILE": str(setup.folder / "kdc.conf")}
        subprocess.run(kadmin, env=child_environment(**kdc), check=True, capture_output=True)
        master.says(run, r"no new tokens for HDFS: no login as alice@MPCA\.DEV: .*the keytab has an old key", 1, SOON_S)
        assert run.ended(2 * GOOD_S) != 0
    finally:
        run.close()
    there = f"{realm.setup.hdfs_web('namenode')}/webhdfs/v1/user/alice/run"
    summary = json.loads(setup.fetch(f"{there}/summary.json?op=OPEN", "hdfs", "-L"))
    lines = records(setup.fetch(f"{there}/records.jsonl?op=OPEN", "hdfs", "-L"))
    assert (summary["status"], summary["agents_lost"], summary["final"]) == ("failed", 0, False)
    assert re.fullmatch(r"its tokens for HDFS end at 20\S+ \S+ \w+: no login as alice@MPCA\.DEV: [^\n]+", summary["reason"])
    backups = [one for one in lines if one["kind"] == "backup"]
    cycles = [one["t"] for one in lines if one["kind"] == "cycle"]
    pause_s = max(later - sooner for sooner, later in pairwise(cycles))
    print(f"{len(backups)} backups, {len(cycles)} cycles, at most {pause_s:.1f} s between two")
    assert all(one["ok"] for one in backups), "also while the KDC was away"
    assert pause_s < GOOD_S / 2
    assert backups[-1]["cycle"] == summary["cycles"]
