"""The spark-submit line, word by word, and the sizes in it. Nothing is started here."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mpca.api import builtin
from mpca.api.launch import resolve
from mpca.errors import ConfigError, EnvironmentRefused
from mpca.methods import from_dict
from mpca.spark.jvm.hadoop import SparkHome
from mpca.spark.jvm.jar import line_of
from mpca.spark.settings import TABLE, advice, settings, table_rows
from mpca.spark.yarn.client import Application, application_ids, exit_code, loss_reason, memory_kill
from mpca.spark.yarn.sizing import (
    check_containers,
    driver_budget,
    driver_container,
    executor_budget,
    executor_container,
    slots_bytes,
)
from mpca.spark.yarn.submit import Submission, check_file_systems, in_the_clear, no_way_back, not_shared, split_archive

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "conf" / "digits.toml"


def submission(*sets: str, mode: str = "client", **changes) -> Submission:
    config = resolve(DIGITS, sets)
    made = Submission(
        config=config,
        sets=sets,
        program="/opt/mpca_run.py",
        words=["digits.toml"],
        deploy_mode=mode,
        executor=executor_container(512 * MIB, config.cluster.agents_per_executor, 10 * MIB, 3),
        driver=driver_container(1024 * MIB, 10 * MIB, config.method, torch=False, evaluates=True),
        python="/opt/venv/bin/python",
        jar="/opt/mpca-spark_2.12.jar",
        spark_jars={"spark.yarn.jars": "local:/opt/spark/jars/*"},
    )
    return replace(made, **changes)


def conf(line: list[str]) -> dict[str, str]:
    return dict(line[at + 1].split("=", 1) for at, word in enumerate(line) if word == "--conf")


# ---- the line ------------------------------------------------------------------------------------------------------------


def test_client_line_has_all_that_a_run_needs() -> None:
    line = submission("cluster.agents=3", "objectives.max_time=75s", queue="research").command("/opt/spark/bin/spark-submit")
    head = "/opt/spark/bin/spark-submit --master yarn --deploy-mode client --name 'mpca digits' --queue research"
    assert line[:9] == shlex.split(head)
    assert line[-2:] == ["/opt/mpca_run.py", "digits.toml"]
    assert line[line.index("--jars") + 1].endswith("mpca-spark_2.12.jar")
    said = conf(line)
    assert said.items() >= settings(yarn=True).items()
    assert said["spark.mpca.cluster.agents"] == "3"
    assert said["spark.mpca.objectives.max_time"] == "75s"
    assert said["spark.executor.instances"] == "3"
    assert said["spark.executor.cores"] == "2"
    assert said["spark.pyspark.driver.python"] == "/opt/venv/bin/python"
    assert "spark.driver.memoryOverhead" not in said, "in client mode the driver is in no container"


def test_agents_that_share_an_executor_get_two_cores_each() -> None:
    said = conf(submission("cluster.agents=5", "cluster.agents_per_executor=2").command())
    assert (said["spark.executor.instances"], said["spark.executor.cores"]) == ("3", "4")


def test_the_single_method_takes_one_executor() -> None:
    assert conf(submission("cluster.agents=4", "method.name=single").command())["spark.executor.instances"] == "1"


def test_cluster_line_says_where_the_driver_finds_its_python_and_how_large_it_is() -> None:
    said = conf(submission(mode="cluster", local_ip="127.0.0.1").command())
    assert said["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] == "/opt/venv/bin/python"
    assert said["spark.yarn.appMasterEnv.SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "spark.pyspark.driver.python" not in said
    # 384 for the JVM, 256 + 4 1/3 models for Python, 1024 + 4 models for the evaluator
    assert said["spark.driver.memoryOverhead"] == f"{384 + 256 + 44 + 1024 + 40}m"


def test_an_archive_brings_the_agents_python() -> None:
    line = submission(archive="hdfs:///env.tar.gz#torch").command()
    assert line[line.index("--archives") + 1] == "hdfs:///env.tar.gz#torch"
    said = conf(line)
    assert said["spark.mpca.cluster.python"] == said["spark.pyspark.python"] == "./torch/bin/python"
    assert said["spark.pyspark.driver.python"] == "/opt/venv/bin/python", "the driver of client mode is here"
    assert split_archive("env.tar.gz") == ("env.tar.gz", "environment")


def test_the_users_spark_settings_win_and_are_not_spelled_as_ours() -> None:
    said = conf(submission("spark.executor.memoryOverhead=3g", "spark.yarn.maxAppAttempts=9").command())
    assert said["spark.executor.memoryOverhead"] == "3g"
    assert said["spark.yarn.maxAppAttempts"] == "9"
    assert not [key for key in said if key.startswith("spark.mpca.spark")]


def test_gpus_are_the_executors_and_never_a_tasks() -> None:
    said = conf(
        submission("cluster.device=cuda", "cluster.agents_per_executor=2", "cluster.agents=4", discovery="./gpus.sh").command()
    )
    assert said["spark.executor.resource.gpu.amount"] == "2"
    assert said["spark.executor.resource.gpu.discoveryScript"] == "./gpus.sh"
    assert not [key for key in said if key.startswith("spark.task.resource")]


SECRETS = (
    "spark.ssl.keyPassword=hunter two",
    "spark.executorEnv.LOGIN=my password is hunter",
    "spark.kerberos.keytab=/home/ann/hunter.keytab",
)


def test_no_secret_is_in_a_line() -> None:
    made = submission(*SECRETS, "run.name=token-model", "spark.ui.enabled=false")
    assert "hunter" not in " ".join(made.command("/opt/spark-submit", "/tmp/secrets.conf"))
    line = made.command("/opt/spark-submit", "/tmp/secrets.conf")
    assert line[line.index("--properties-file") + 1] == "/tmp/secrets.conf"
    keys = {one.partition("=")[0] for one in SECRETS}
    assert keys.isdisjoint(conf(line))
    shown = shlex.split(made.printable("/opt/spark-submit"))
    assert {key: conf(shown)[key] for key in keys} == dict.fromkeys(keys, "***")
    assert {**conf(shown), **dict.fromkeys(keys)} == {**conf(line), **dict.fromkeys(keys)}, "all else is shown as it is run"
    assert conf(shown)["spark.mpca.run.name"] == "token-model"
    assert sorted(made.properties().splitlines()) == [
        r"spark.executorEnv.LOGIN=my\ password\ is\ hunter",
        "spark.kerberos.keytab=/home/ann/hunter.keytab",
        r"spark.ssl.keyPassword=hunter\ two",
    ]
    assert submission().properties() == ""
    assert "--properties-file" not in submission().command("/opt/spark-submit", "")


def test_the_users_own_rule_says_what_is_secret_or_the_clusters() -> None:
    sets = ("spark.zebra=stripes", "spark.ssl.keyPassword=hunter")
    assert submission(*sets).hidden() == {"spark.ssl.keyPassword"}
    assert submission(*sets, "spark.redaction.regex=(?i)ZEBRA").hidden() == {"spark.zebra"}
    assert submission(*sets, defaults={"spark.redaction.regex": "zebra"}).hidden() == {"spark.zebra"}


def test_executors_authenticate_unless_somebody_says_otherwise() -> None:
    made = submission()
    assert made.authenticates_by_default()
    said = conf(made.command())
    assert (said["spark.authenticate"], said["spark.shuffle.service.enabled"]) == ("true", "false")
    off = submission("spark.authenticate=false", "spark.shuffle.service.enabled=true")
    assert not off.authenticates_by_default()
    assert (conf(off.command())["spark.authenticate"], conf(off.command())["spark.shuffle.service.enabled"]) == (
        "false",
        "true",
    )
    cluster = submission(defaults={"spark.authenticate": "false", "spark.shuffle.service.enabled": "true"})
    assert not cluster.authenticates_by_default()
    assert "spark.authenticate" not in conf(cluster.command()), "spark-submit reads it where it stands"
    assert conf(cluster.command())["spark.shuffle.service.enabled"] == "false"


def test_spark_defaults_are_read_as_java_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "# a comment\n! another\n\nspark.a  -Dx=1 -Dy=2\nspark.b=2\n  spark.c : three\nspark.d\n"
    (tmp_path / "spark-defaults.conf").write_text(lines)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    home = SparkHome(tmp_path)
    assert home.defaults() == {"spark.a": "-Dx=1 -Dy=2", "spark.b": "2", "spark.c": "three", "spark.d": ""}
    assert home.defaults_text() == lines


@pytest.mark.parametrize("archive", ["#environment", "env.tar.gz#a/b", "env.tar.gz#..", "env.tar.gz#-x"])
def test_an_archive_name_that_cannot_be_a_folder_is_refused(archive: str) -> None:
    with pytest.raises(ConfigError, match="--archives"):
        split_archive(archive)


def test_each_spark_gets_the_jar_for_its_scala() -> None:
    assert line_of("spark-core_2.12-3.5.4.jar").jar.name == "mpca-spark_2.12.jar"
    assert line_of("spark-core_2.13-4.0.1.jar").jar.name == "mpca-spark_2.13.jar"
    with pytest.raises(EnvironmentRefused, match=r"spark-core_2\.11-2\.4\.8\.jar is for Scala 2\.11, and mpca has one for"):
        line_of("spark-core_2.11-2.4.8.jar")
    with pytest.raises(EnvironmentRefused, match="Scala unknown"):
        line_of("no spark-core jar")


# ---- sizes ---------------------------------------------------------------------------------------------------------------


def test_an_executors_container_has_room_for_slots() -> None:
    # one slot for a snapshot and three for arrivals, of 100 MiB in three shards: 4/3 of the model, and a page each
    slots = slots_bytes(100 * MIB, 3)
    assert slots == pytest.approx(400 * MIB / 3, rel=1e-3)
    one = executor_container(1024 * MIB, 2, 100 * MIB, 3)
    assert one.overhead == pytest.approx((384 + 576) * MIB + 2 * (1024 + 800) * MIB + 2 * slots, abs=MIB)
    assert one.total == one.overhead + 1024 * MIB
    assert "2 agents" in one.line()
    assert "slots" in one.line()


def test_a_large_heap_takes_a_tenth_beside_it_and_cuda_its_own() -> None:
    plain = executor_container(20 << 30, 1, 0, 3, preload=False)
    assert plain.overhead == pytest.approx((2 << 30) + 1024 * MIB, abs=MIB)
    assert executor_container(20 << 30, 1, 0, 3, preload=False, cuda=True).overhead - plain.overhead == 3 << 30
    asked = executor_container(20 << 30, 1, 0, 3, preload=False, agent_memory=7 << 30)
    assert asked.overhead == pytest.approx(9 << 30, abs=MIB)


def test_what_agents_are_forked_from_has_room_of_its_own() -> None:
    one, without = (executor_container(1 << 30, 4, 0, 3, preload=preload) for preload in (True, False))
    assert one.overhead - without.overhead == 576 * MIB
    assert "their parent" in one.line()


def test_more_than_the_largest_container_is_refused_with_both_sizes_and_what_to_change() -> None:
    one = executor_container(6 << 30, 2, 0, 3)
    check_containers([one], one.total, 4)
    with pytest.raises(
        EnvironmentRefused, match=r"executor container of 9\.2 GiB .* gives, 8\.0 GiB: .*lower spark.executor.memory"
    ):
        check_containers([one], 8 << 30, 16)
    with pytest.raises(EnvironmentRefused, match="4 cores is more than the largest that YARN gives, 3"):
        check_containers([one], 64 << 30, 3)


@pytest.mark.parametrize(
    ("optimizer", "models"), [(("name=sgd",), 1), (("name=nesterov", "momentum=0.9"), 2), (("name=adam",), 3)]
)
def test_a_container_has_room_for_optimisers_states_that_are_exchanged(optimizer: tuple[str, ...], models: int) -> None:
    sets = ("model.name=digits_mlp", "method.name=dl4j-averaging", *(f"optimizer.{one}" for one in optimizer))
    kept, averaged = (
        builtin.model_bytes(resolve(DIGITS, (*sets, f"method.updater={updater}")).to_dict()) for updater in ("keep", "average")
    )
    assert averaged == pytest.approx(models * kept, rel=1e-3)  # Adam counts its steps, too


def test_a_session_by_hand_is_told_what_its_containers_lack() -> None:
    config = resolve(DIGITS, ())
    assert executor_budget(config, {}, 100 * MIB).startswith("warning: spark.executor.memoryOverhead should be 2.8 GiB")
    assert executor_budget(config, {"spark.executor.memoryOverhead": "4096"}, 100 * MIB).startswith(
        "executor container: 5.0 GiB = heap 1.0 GiB"
    )


def test_a_run_in_cluster_mode_is_told_what_its_drivers_container_lacks() -> None:
    config = resolve(DIGITS, ())
    budget = partial(driver_budget, config, {}, torch=True, evaluates=False)
    assert budget(100 * MIB).startswith("warning: spark.driver.memoryOverhead should be 1.5 GiB, or YARN may kill the driver")
    unknown = {"spark.driver.memoryOverhead": "640m"}  # as `mpca submit --train` asks
    assert driver_budget(config, unknown, 20 * MIB, torch=False, evaluates=False).startswith("driver container: 1.6 GiB")
    assert driver_budget(config, unknown, 100 * MIB, torch=False, evaluates=False).startswith("warning: ")


def test_a_driver_holds_more_where_a_shard_is_the_whole_model_and_where_agents_ask() -> None:
    def python(**method: object) -> float:
        one = driver_container(0, 1000 * MIB, from_dict(method), torch=False, evaluates=False)
        return (dict(one.parts)["Python"] - 256 * MIB) / (1000 * MIB)

    sizes = [python(name="mpca", shards=24), python(name="mpca"), python(name="diloco"), python(name="async-ps")]
    assert sizes == pytest.approx([4.04, 4.33, 5, 8], abs=0.01)


# ---- the table -------------------------------------------------------------------------------------------------------------


def test_the_administrators_page_has_the_table() -> None:
    page = (ROOT / "docs" / "administrators.md").read_text(encoding="utf-8")
    assert "\n".join(table_rows()) in page, "paste the output of mpca.spark.settings.table_rows into docs/administrators.md"


def test_the_template_for_gateway_hosts_has_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(ROOT / "conf" / "yarn"))
    plain = {one.key: one.value for one in TABLE if one.key != "spark.plugins"}  # without our jar that one stops any session
    assert SparkHome(Path("/nowhere")).defaults() == plain


def test_what_submit_sets_is_what_the_engine_finds_good() -> None:
    for mode in ("client", "cluster"):
        assert advice({**settings(yarn=True), "spark.master": "yarn", "spark.submit.deployMode": mode}) == []
    assert len({one.key for one in TABLE}) == len(TABLE)


def test_a_client_of_two_name_nodes_does_not_wait_for_the_dead_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "spark.hadoop.dfs.client.retry.policy.enabled"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert (settings(yarn=True)[key], key in settings()) == ("true", False)
    row = "<property><name>dfs.ha.namenodes.prod</name><value>a,b</value></property>"
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{row}</configuration>")
    assert (settings(yarn=True)[key], key in settings()) == ("false", False)
    assert advice({**settings(yarn=True), "spark.master": "yarn"}) == []


def test_a_session_by_hand_is_warned_of_what_would_end_it() -> None:
    lines = advice({"spark.master": "yarn", "spark.rpc.askTimeout": "120s", "spark.executor.maxNumFailures": "10"})
    keys = [line.split(" = ")[0] for line in lines]
    assert keys == [
        "spark.locality.wait.process",
        "spark.rpc.askTimeout",
        "spark.rpc.io.connectionTimeout",
        "spark.executor.maxNumFailures",
        "spark.hadoop.dfs.client.retry.policy.enabled",
        "spark.authenticate",
    ]
    assert "120s: should be 20min or more" in lines[1]
    assert [line.split(" = ")[0] for line in advice({"spark.master": "local-cluster[1,2,1024]"})] == keys[:1]
    assert not advice({"spark.master": "spark://h:7077", "spark.locality.wait.process": "2d"})


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({}, "spark.network.crypto.enabled is off: "),
        ({"spark.network.crypto.enabled": "false"}, "spark.network.crypto.enabled is off: "),
        ({"spark.network.crypto.enabled": "true"}, "warning: spark.network.crypto.cipher = not set: "),
        (
            {"spark.network.crypto.enabled": " TRUE", "spark.network.crypto.cipher": "AES/CTR/NoPadding"},
            "warning: spark.network.crypto.cipher = AES/CTR/NoPadding: ",
        ),
    ],
    ids=["nothing", "off", "default", "ctr"],
)
def test_what_others_on_the_network_may_read_or_change_is_said(conf: dict[str, str], says: str) -> None:
    (line,) = in_the_clear(conf)
    assert line.startswith(says)


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.network.crypto.enabled": "true", "spark.network.crypto.cipher": "AES/GCM/NoPadding"},
        {"spark.ssl.rpc.enabled": "true"},
    ],
    ids=["gcm", "tls"],
)
def test_nothing_is_said_of_a_channel_that_is_encrypted_and_checked(conf: dict[str, str]) -> None:
    assert in_the_clear(conf) == []


# ---- YARN's words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("final", "state", "diagnostics", "code"),
    [
        ("SUCCEEDED", "FINISHED", "", 0),
        ("FAILED", "FINISHED", "User application exited with status 4", 4),
        ("FAILED", "FAILED", "AM Container for appattempt_1_0001_000002 exited with  exitCode: 2\nFailing this attempt.", 2),
        ("FAILED", "FAILED", "AM Container for appattempt_1_0001_000002 exited with  exitCode: -104", 1),
        ("FAILED", "FAILED", "", 1),
        ("KILLED", "KILLED", "Application application_1_0001 was killed by user ann at 10.0.0.1", 143),
    ],
)
def test_exit_code_of_an_application(final: str, state: str, diagnostics: str, code: int) -> None:
    assert exit_code(Application("application_1_0001", state, final, diagnostics)) == code


def test_a_kill_for_memory_says_peak_limit_and_setting() -> None:
    text = (
        "Container killed by YARN for exceeding physical memory limits. 2.1 GB of 2 GB physical memory used. "
        "Consider boosting spark.executor.memoryOverhead."
    )
    found = memory_kill(text)
    assert found is not None
    said = "container killed for physical memory: peak 2.1 GB, limit 2 GB; raise cluster.agent_memory or "
    said += "spark.executor.memoryOverhead"
    assert found.advice() == said
    assert loss_reason(text) == f"{said} ({text})"
    assert loss_reason("Executor heartbeat timed out") == "Executor heartbeat timed out"
    assert loss_reason("Command exited with code 137").startswith("Command exited with code 137: killed, by the kernel")
    assert loss_reason("Command exited with code 1") == "Command exited with code 1"
    # YARN's own words name both memories; the one that is over is meant
    both = memory_kill("Current usage: 300.5 MB of 1 GB physical memory used; 2.2 GB of 2.1 GB virtual memory used. Killing")
    assert both is not None
    assert both.kind == "virtual"
    assert "yarn.nodemanager.vmem-check-enabled=false" in both.advice()
    assert memory_kill("Exit code is 137") is None


def test_application_ids_are_found_in_chatter() -> None:
    text = (
        "INFO Client: Submitted application application_1763_0007 (attempt appattempt_1763_0007_000001) application_1763_0007"
    )
    assert application_ids(text) == ["application_1763_0007"]


def test_a_peak_that_is_rounded_to_the_limit_is_a_kill_too() -> None:
    from mpca.spark.yarn.client import loss_reason

    text = "Container killed by YARN for exceeding physical memory limits. 1.9 GB of 1.9 GB physical memory used."
    assert loss_reason(text).startswith("container killed for physical memory: peak 1.9 GB, limit 1.9 GB; ")


@pytest.mark.parametrize(
    ("sets", "warned"),
    [
        ((), False),  # a minute is the default
        (("backup.interval=0",), True),
        (("backup.interval=0", "spark.yarn.maxAppAttempts=2"), True),
        (("backup.interval=0", "spark.yarn.maxAppAttempts=1"), False),
    ],
)
def test_a_run_that_a_second_driver_could_not_go_on_with_is_warned_of(sets: tuple[str, ...], warned: bool) -> None:
    one = submission(*sets, mode="cluster")
    said = no_way_back(one.config, one.settings())
    assert [line.partition(": no backup")[0] for line in said] == ["warning: backup.interval = 0"] * warned


@pytest.mark.parametrize(
    ("sets", "warned"),
    [
        ((), []),
        (("run.dir=hdfs://nn/runs/a", "backup.path=hdfs:///backups"), []),
        (("run.dir=/shared/a",), ["warning: run.dir = /shared/a"]),
        (("run.dir=hdfs://nn/a", "backup.path=file:///data/b"), ["warning: backup.path = file"]),
    ],
)
def test_a_folder_of_the_drivers_host_is_warned_of(sets: tuple[str, ...], warned: list[str]) -> None:
    said = not_shared(submission(*sets, mode="cluster").config)
    assert [line.partition(":")[0] + ":" + line.partition(":")[2].partition(":")[0] for line in said] == warned


def test_a_place_for_which_containers_would_get_no_token_is_refused() -> None:
    places = {"run.dir": "hdfs://own/runs/a", "backup.path": "", "data.path": "hdfs://other:8020/images"}
    key = "spark.kerberos.access.hadoopFileSystems"
    for listed in ("hdfs://other:8020", "hdfs://third, hdfs://other:8020/"):
        check_file_systems(places, "hdfs://own", {key: listed})
        check_file_systems(places, "hdfs://own", {"spark.yarn.access.hadoopFileSystems": listed})
    check_file_systems({"run.dir": "/tmp/a", "data.path": "hdfs:///images", "backup.path": "file:///b"}, "hdfs://own", {})
    for listed in ("", "hdfs://other:9000"):
        with pytest.raises(
            ConfigError,
            match=f"^data.path = 'hdfs://other:8020/images': is on another file system than hdfs://own.*{key}=hdfs://other:8020$",
        ):
            check_file_systems(places, "hdfs://own", {key: listed})
