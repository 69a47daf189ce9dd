"""`mpca dev hadoop up --secure` where Kerberos is not installed. The realm itself: tests/hadoop/test_secure.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpca.cli.dev.realm import Lives, Realm
from mpca.cli.dev.rendering import render
from mpca.environment import child_environment


def test_missing_programs_are_named_with_the_line_that_installs_them(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    done = subprocess.run(
        [sys.executable, "-m", "mpca.cli", "dev", "hadoop", "up", "--secure", "--dir", str(folder)],
        capture_output=True,
        text=True,
        env=child_environment(PATH=str(tmp_path)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mpca: refused: --secure needs ")
    assert line.endswith("kinit, curl: on Debian, apt install krb5-kdc krb5-admin-server krb5-user curl")
    assert not folder.exists()


@pytest.mark.parametrize(("hosts", "instance"), [(None, "localhost"), ({"namenode": "10.0.0.10"}, "_HOST")])
def test_principals_have_the_names_of_hosts_where_daemons_have_hosts(
    hosts: dict[str, str] | None, instance: str, tmp_path: Path
) -> None:
    realm = Realm(tmp_path / "realm", 88, tmp_path / "kdc.log", Lives(), hosts=hosts)
    realm.folder.mkdir()
    (realm.folder / "password").write_text("of the keystore")
    render(tmp_path, namenode="namenode", resourcemanager="manager", data=tmp_path / "data", realm=realm.values())
    hdfs, yarn = ((tmp_path / f"{part}-site.xml").read_text() for part in ("hdfs", "yarn"))
    for daemon in ("namenode", "datanode", "journalnode"):
        name = f"<name>dfs.{daemon}.kerberos.principal</name>"
        assert f"{name}<value>hdfs/{instance}@MPCA.DEV</value>" in hdfs
    for daemon in ("resourcemanager", "nodemanager"):
        assert f"<name>yarn.{daemon}.principal</name><value>yarn/{instance}@MPCA.DEV</value>" in yarn
