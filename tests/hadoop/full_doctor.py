"""What doctor says in a realm, of each login that does not go: `make test-secure` has it, and CI has not."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.environment import child_environment
from tests.hadoop.support import MPCA
from tests.hadoop.test_secure import alice, say, secured

__all__ = ["alice", "secured"]  # fixtures

pytestmark = [pytest.mark.hadoop, pytest.mark.slow, pytest.mark.timeout(900)]


def test_doctor_says_why_there_is_no_login(secured: Hadoop, alice: dict[str, str], tmp_path: Path) -> None:
    realm = secured.setup.realm
    assert realm is not None
    code, out, _ = say("doctor", **{**alice, "HADOOP_USER_NAME": "bob"})
    assert code == 0, out
    assert "alice by Kerberos" in out
    assert "HADOOP_USER_NAME = bob counts for nothing here: Kerberos says who you are; unset it" in out
    assert re.search(r"ok +ticket +the ResourceManager takes it", out)
    assert re.search(r"ok +Hadoop +3\.3\.6 on the cluster", out), "the pages of YARN were shown to the ticket"
    assert re.search(r"ok +tokens +YARN gets new ones for a driver that it starts again", out)

    keytab = tmp_path / "alice.keytab"
    shutil.copy(realm.keytab("alice"), keytab)
    keytab.chmod(0o644)
    code, out, _ = say("doctor", "--principal", "alice@MPCA.DEV", "--keytab", str(keytab))
    assert code == 0, out
    assert f"the keytab can be read by everybody (0644), and whoever reads it is alice@MPCA.DEV: chmod 600 {keytab}" in out
    assert "alice by a keytab" in out

    expired = realm.login("alice", tmp_path / "expired.cc", "-l", "1s", "-r", "1s")
    without = realm.config.read_text().replace(f"127.0.0.1:{realm.port}", "127.0.0.1:1")
    (tmp_path / "krb5.conf").write_text(without)
    away = {
        **realm.login("alice", tmp_path / "away.cc"),
        "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={tmp_path}/krb5.conf",
    }
    other = ("--principal", "bob@MPCA.DEV", "--keytab", str(keytab))
    time.sleep(1.5)  # the ticket's life
    for words, env, said in (
        ((), {}, "no Kerberos ticket: run kinit"),
        ((), expired, "the ticket of alice@MPCA.DEV has expired: run kinit"),
        ((), away, "no KDC answers: see kdc = in krb5.conf"),
        (other, {}, "no login as bob@MPCA.DEV: the keytab has no key of it"),
    ):
        code, out, _ = say("doctor", *words, **env)
        (stop,) = (line for line in out.splitlines() if line.startswith("stop"))
        assert (code, said in stop) == (1, True), out


def test_doctor_sees_a_clock_that_is_off(secured: Hadoop, alice: dict[str, str]) -> None:
    done = subprocess.run(
        ["faketime", "+20 minutes", *MPCA, "doctor"], capture_output=True, text=True, env=child_environment(**alice)
    )
    (stop,) = (line for line in done.stdout.splitlines() if line.startswith("stop"))
    assert "this machine's clock and the cluster's differ by more than five minutes: use one time server for all" in stop
