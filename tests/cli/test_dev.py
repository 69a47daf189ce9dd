"""`mpca dev hadoop` where the attempt before was killed. All else of it runs daemons: tests/hadoop/test_dev.py."""

from __future__ import annotations

from pathlib import Path

from mpca.cli.dev.daemons import Daemons, HadoopSetup


def test_the_second_namenode_gets_what_the_first_one_has_though_the_attempt_before_was_killed(tmp_path: Path) -> None:
    setup = HadoopSetup(tmp_path, tmp_path / "jars", "/nowhere", {}, ha=True)
    (setup.data / "namenode1" / "current").mkdir(parents=True)
    (setup.data / "namenode1" / "current" / "VERSION").write_text("clusterID=1")
    (setup.data / "namenode2.part" / "current").mkdir(parents=True)  # half a copy
    Daemons(setup).format()
    assert (setup.data / "namenode2" / "current" / "VERSION").read_text() == "clusterID=1"
    assert sorted(one.name for one in setup.data.iterdir()) == ["namenode1", "namenode2"]
    (setup.data / "namenode2" / "current" / "VERSION").write_text("its own by now")
    Daemons(setup).format()
    assert (setup.data / "namenode2" / "current" / "VERSION").read_text() == "its own by now"
