"""A run submitted where spark-defaults.conf has the shuffle service on, with a secret in its configuration."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from mpca.cli.dev.hadoop import Hadoop
from tests.hadoop.support import DIGITS, MPCA, QUICK, SMALL, Submitted, executors, nothing_lives, only

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
SECRET = "hunter-two"


def told(pid: int) -> str:
    try:
        return psutil.Process(pid).environ().get("MPCA_TEST_TOKEN", "")
    except psutil.Error:
        return ""


def test_executors_authenticate_and_no_argument_shows_a_secret(hadoop: Hadoop, tmp_path: Path) -> None:
    """The NodeManagers here have no shuffle service at all: an executor that asked for it would not start."""
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir()
    defaults.write_text("spark.shuffle.service.enabled true\nspark.executorEnv.MPCA_TEST_DEFAULT from the defaults\n")
    conf = tmp_path / "digits.toml"
    conf.write_text(f'{DIGITS.read_text()}\n[spark]\n"spark.executorEnv.MPCA_TEST_TOKEN" = "{SECRET}"\n')
    run_dir = tmp_path / "run"
    words = ["submit", str(conf), "--jars-on-nodes"]
    for one in (*SMALL, *QUICK, f"run.dir={run_dir}", "objectives.max_cycles=3"):
        words += ["--set", one]
    started = Submitted(*MPCA, *words, cwd=tmp_path, log=tmp_path / "log", env={"SPARK_CONF_DIR": str(defaults.parent)})
    try:

        def there() -> list[int]:
            ids = started.text()
            pids = list(executors(only(ids))) if "application_" in ids else []
            return pids if len(pids) == 2 and all(told(pid) for pid in pids) else []

        pids = started.until(there, "two executors")
        assert {told(pid) for pid in pids} == {SECRET}, "it reached those whom it was meant for"
        assert {psutil.Process(pid).environ()["MPCA_TEST_DEFAULT"] for pid in pids} == {"from the defaults"}
        lines = [" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
        assert any("spark.authenticate=true" in line for line in lines)
        assert [line for line in lines if SECRET in line] == []
        assert started.ended() == 0, started.text()[-4000:]
    finally:
        started.close()
    assert "spark.authenticate is on for this application" in started.said()
    assert "spark.network.crypto.enabled is off: what executors and driver send each other is not encrypted" in started.said()
    assert SECRET not in started.text()
    written = run_dir / "config.toml"
    assert SECRET not in written.read_text()
    assert written.stat().st_mode & 0o077 == 0
    nothing_lives(only(started.text()))
