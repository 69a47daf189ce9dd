"""What `mpca submit` and `mpca doctor` refuse before a cluster is asked: one line each, exit code 2, no secret in it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from mpca.cli import main

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "conf" / "digits.toml")
SECRET = "hunter2"


def run(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, list[str]]:
    """Exit code, all that was printed, and the lines of stderr."""
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out + err, err.strip().splitlines()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment that knows of no cluster."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def configured(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of a cluster that is not asked."""
    for name in ("core-site.xml", "yarn-site.xml"):
        (bare / "conf" / name).parent.mkdir(exist_ok=True)
        (bare / "conf" / name).write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(bare / "conf"))
    return bare


@pytest.mark.parametrize("command", [["submit", DIGITS], ["doctor"]])
def test_no_configuration_of_a_cluster(capfd: pytest.CaptureFixture[str], bare: Path, command: list[str]) -> None:
    code, _, err = run(capfd, *command)
    assert code == 2
    assert err[-1].startswith("mpca: refused: HADOOP_CONF_DIR is not set")


def test_a_configuration_folder_without_a_cluster_in_it(
    capfd: pytest.CaptureFixture[str], bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(bare))
    code, _, err = run(capfd, "submit", DIGITS)
    assert code == 2
    assert f"HADOOP_CONF_DIR={bare} has no core-site.xml and no yarn-site.xml" in err[-1]


def test_a_spark_for_a_scala_without_a_jar(
    capfd: pytest.CaptureFixture[str], configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = configured / "spark"
    for name in ("bin/spark-submit", "jars/spark-core_2.11-2.4.8.jar"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    code, _, err = run(capfd, "submit", DIGITS)
    assert code == 2
    said = "spark-core_2.11-2.4.8.jar is for Scala 2.11, and mpca has one for Scala 2.12 (Spark 3.5) and Scala 2.13 (Spark 4.1)"
    assert said in err[-1]


def test_a_spark_home_without_spark(
    capfd: pytest.CaptureFixture[str], configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(configured))
    code, _, err = run(capfd, "submit", DIGITS)
    assert code == 2
    assert f"no Spark in SPARK_HOME={configured}" in err[-1]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (["bin/python", "lib/python3.11/site-packages/numpy/__init__.py"], "has no mpca in it"),
        (["lib/python3.11/site-packages/mpca/__init__.py"], "has no bin/python in it"),
        ([], "has no mpca and bin/python in it"),
    ],
)
def test_an_archive_in_which_no_agent_could_start(
    capfd: pytest.CaptureFixture[str], configured: Path, members: list[str], words: str
) -> None:
    path = configured / "env.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in members:
            archive.addfile(tarfile.TarInfo(name))
    code, _, err = run(capfd, "submit", DIGITS, "--archives", f"{path}#environment")
    assert code == 2
    assert words in err[-1]
    assert "mpca pack" in err[-1]


def test_an_archive_that_is_none(capfd: pytest.CaptureFixture[str], configured: Path) -> None:
    (configured / "env.tar.gz").write_bytes(os.urandom(100))
    for name, words in (("env.tar.gz", "cannot be read"), ("nowhere.tar.gz", "no such archive"), ("conf", "no such archive")):
        code, _, err = run(capfd, "submit", DIGITS, "--archives", name)
        assert code == 2
        assert words in err[-1]


@pytest.mark.parametrize(
    "words",
    [
        ["--archives", f"https://ann:{SECRET}@host/env.tar.gz#environment"],
        ["--set", f"run.dir=hdfs://ann:{SECRET}@nn1/runs"],
        ["--set", f"backup.path=hdfs://ann:{SECRET}@nn1/backups"],
        ["--set", f"spark.jars.repositories=https://ann:{SECRET}@host/maven"],
        ["--resume", f"hdfs://ann:{SECRET}@nn1/backups/000001"],
        ["--py-files", f"https://ann:{SECRET}@host/mine.zip"],
    ],
)
def test_a_password_in_a_url_is_refused_and_never_printed(
    capfd: pytest.CaptureFixture[str], configured: Path, words: list[str]
) -> None:
    code, printed, err = run(capfd, "submit", DIGITS, *words)
    assert code == 2
    assert SECRET not in printed
    assert "ann:***@" in err[-1]
    assert "must not have a password in it" in err[-1]


def test_the_newest_backup_of_a_run_that_is_not_named(capfd: pytest.CaptureFixture[str], configured: Path) -> None:
    code, _, err = run(capfd, "submit", DIGITS, "--resume", "auto")
    assert code == 2
    assert err[-1].endswith("--resume auto: the newest backup of which run? name its folder by --run-dir")


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (
            ("--set", "spark.kerberos.principal=livy@A", "--set", "spark.kerberos.keytab=/k"),
            {},
            "--proxy-user ann: Spark takes no keytab beside it, and spark.kerberos.keytab = /k; leave both settings out, and "
            "run kinit -k -t /k livy@A",
        ),
        ((), {"HADOOP_PROXY_USER": "bob"}, "--proxy-user ann: HADOOP_PROXY_USER = bob is set too; unset it"),
        (
            ("--run-dir", "swebhdfs://nn1:9871/user/ann/run"),
            {},
            "run.dir = 'swebhdfs://nn1:9871/user/ann/run': would be reached by the service's own ticket, and not as ann",
        ),
        (("--resume", "webhdfs://nn1:9870/backup"), {}, "--resume = 'webhdfs://nn1:9870/backup': would be reached by"),
    ],
)
def test_what_would_make_a_run_for_another_user_ones_own_is_refused(
    capfd: pytest.CaptureFixture[str],
    configured: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    env: dict[str, str],
    said: str,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    code, _, err = run(capfd, "submit", DIGITS, "--proxy-user", "ann", *words)
    assert code == 2
    assert said in err[-1]


def test_the_folder_is_named_as_for_train_and_a_password_in_it_is_refused(
    capfd: pytest.CaptureFixture[str], configured: Path
) -> None:
    code, printed, err = run(capfd, "submit", DIGITS, "--run-dir", f"hdfs://ann:{SECRET}@nn1/runs/a")
    assert code == 2
    assert SECRET not in printed
    assert "run.dir = 'hdfs://ann:***@nn1/runs/a'" in err[-1]


def test_words_without_a_script(capfd: pytest.CaptureFixture[str], configured: Path) -> None:
    code, _, err = run(capfd, "submit", DIGITS, "--", "5")
    assert code == 2
    assert "--train SCRIPT" in err[-1]


def test_a_configuration_that_train_would_refuse(capfd: pytest.CaptureFixture[str], configured: Path) -> None:
    code, _, err = run(capfd, "submit", DIGITS, "--name", "a/b")
    assert code == 2
    assert "run.name = 'a/b'" in err[-1]


def test_a_driver_that_nobody_submitted(capfd: pytest.CaptureFixture[str], bare: Path) -> None:
    code, _, err = run(capfd, "driver", DIGITS)
    assert code == 2
    assert "use `mpca submit`" in err[-1]


@pytest.mark.parametrize("key", ["run.dir", "backup.path"])
def test_a_relative_folder_in_cluster_mode(capfd: pytest.CaptureFixture[str], configured: Path, key: str) -> None:
    code, _, err = run(capfd, "submit", DIGITS, "--deploy-mode", "cluster", "--set", f"{key}=runs/a")
    assert code == 2
    assert err[-1].endswith(
        f"{key} = 'runs/a': is relative, and goes with the driver's container in cluster mode; name hdfs://... instead"
    )


def test_a_driver_in_client_mode_that_nobody_would_find(capfd: pytest.CaptureFixture[str], configured: Path) -> None:
    code, _, err = run(capfd, "submit", DIGITS, "--set", "spark.driver.host=no-such.invalid")
    assert code == 2
    assert err[-1].startswith("mpca: refused: spark.driver.host = 'no-such.invalid': must be an address of this machine")


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("key", ["run.dir", "backup.path"])
def test_a_folder_in_a_store_that_cannot_keep_a_run(
    capfd: pytest.CaptureFixture[str], configured: Path, mode: str, key: str
) -> None:
    code, _, err = run(capfd, "submit", DIGITS, "--deploy-mode", mode, "--set", f"{key}=s3a://bucket/a")
    assert code == 2
    assert err[-1].startswith(f"mpca: refused: {key}: no store for this location: s3a://bucket/a: a run needs that a folder ")
