"""Which sessions are refused, and in which words. No Spark is started here."""

from __future__ import annotations

import ast
import re

import pytest

from mpca.errors import ConfigError, EnvironmentRefused
from mpca.spark.jvm.jar import PLUGIN, own_line
from mpca.spark.run.checks import check_driver_host, check_given, check_heaps, check_session
from mpca.spark.settings import advice

GOOD = {"spark.plugins": PLUGIN, "spark.jars": str(own_line().jar), "spark.master": "local-cluster[4,2,1024]"}


def refusal(conf: dict[str, str], **wanted) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_session({**GOOD, **conf}, **wanted)
    return caught.value


def test_a_session_with_room_passes() -> None:
    check_session(GOOD, agents=4)
    check_session({**GOOD, "spark.master": "local-cluster[2, 4, 1024]"}, agents=4, agents_per_executor=2)
    check_session({**GOOD, "spark.master": "yarn", "spark.executor.cores": "2", "spark.executor.instances": "4"}, agents=4)
    check_session({**GOOD, "spark.master": "spark://host:7077"}, agents=4)  # its executors say how many cores they have


def test_other_plugins_beside_ours_pass() -> None:
    check_session({**GOOD, "spark.plugins": f"com.example.Other, {PLUGIN}"})


@pytest.mark.parametrize(("key", "value"), [("spark.speculation", "true"), ("spark.dynamicAllocation.enabled", "TRUE")])
def test_what_would_take_a_run_apart_is_refused(key, value) -> None:
    error = refusal({key: value})
    assert str(error).startswith(f"{key} = {value!r}: must be false (Spark session): ")
    assert error.key == key


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]"])
def test_a_master_without_executors_of_their_own_is_refused(master) -> None:
    assert str(refusal({"spark.master": master}, agents=4)) == (
        f"spark.master = {master!r}: must be a cluster, since agents need executors apart from the driver (Spark session): "
        "use local-cluster[4,2,1024], or mpca.session(), or leave `spark` out: then executors are started on this machine"
    )


def test_one_core_for_an_agent_is_refused() -> None:
    assert "gives an executor 1 cores and must give 2" in str(refusal({"spark.master": "local-cluster[4,1,1024]"}))
    assert "gives an executor 1 cores and must give 2" in str(refusal({"spark.master": "yarn"}))  # YARN's default
    error = refusal({"spark.master": "yarn", "spark.executor.cores": "2"}, agents_per_executor=2)
    assert str(error).startswith("spark.executor.cores = '2': gives an executor 2 cores and must give 4")
    assert "must give 4" in str(refusal({"spark.task.cpus": "2"}))
    error = refusal({"spark.executor.cores": "1"})  # of a worker that has two
    assert str(error).startswith("spark.executor.cores = '1': gives an executor 1 cores and must give 2")


def test_more_agents_than_there_is_room_for_is_refused() -> None:
    assert "has room for 4 agents and the run wants 5" in str(refusal({}, agents=5))
    error = refusal({"spark.master": "yarn", "spark.executor.cores": "2", "spark.executor.instances": "2"}, agents=3)
    assert error.key == "spark.executor.instances"
    assert "ask for 3 executors or fewer agents" in str(error)


def test_too_small_a_limit_on_results_is_refused_with_what_is_needed() -> None:
    assert "must be 16.0 MiB or more" in str(refusal({"spark.driver.maxResultSize": "1m"}))
    error = refusal({"spark.driver.maxResultSize": "256m"}, agents=4, reducer="tree", shard_bytes=100 << 20)
    assert "must be 316.0 MiB or more, or 0 for no limit" in str(error)
    check_session({**GOOD, "spark.driver.maxResultSize": "256m"}, agents=4, reducer="ranges", shard_bytes=100 << 20)
    check_session({**GOOD, "spark.driver.maxResultSize": "0"}, agents=4, reducer="tree", shard_bytes=100 << 20)
    check_session({**GOOD, "spark.driver.maxResultSize": "1073741824"})


def test_a_session_without_plugin_or_jar_is_refused_with_what_to_add() -> None:
    for conf in ({**GOOD, "spark.plugins": ""}, {**GOOD, "spark.jars": "other.jar"}):
        with pytest.raises(EnvironmentRefused, match=f"start the session with spark.plugins={PLUGIN} and spark.jars="):
            check_session(conf)


@pytest.mark.parametrize(
    ("options", "least"),  # what Runtime.maxMemory says is 450 MiB or more from there on: looked at with Java 17
    [("", 450), ("-XX:+UseG1GC", 450), ("-XX:+UseSerialGC -Da=b", 466), ("-XX:+UseParallelGC", 507)],
)
@pytest.mark.parametrize("jvm", ["executor", "driver"])
def test_a_heap_in_which_spark_would_not_start_is_refused(jvm: str, options: str, least: int) -> None:
    conf = {f"spark.{jvm}.extraJavaOptions": options}
    check_heaps({**conf, f"spark.{jvm}.memory": f"{least}m"})
    with pytest.raises(ConfigError, match=rf"spark.{jvm}.memory\)? = '{least - 1}m': must be {least}m or more"):
        check_heaps({**conf, f"spark.{jvm}.memory": f"{least - 1}m"})


def proposed(text: str) -> dict[str, str]:
    return dict(re.findall(r'\.config\("(.+)", "(.*)"\)', text))


def test_a_session_of_ones_own_is_told_all_at_once_with_code_that_makes_it_fit() -> None:
    own = {"spark.master": "local[*]", "spark.plugins": "com.example.Other", "spark.speculation": "true", "spark.app.name": "x"}
    wanted = {"agents": 4, "agents_per_executor": 2, "reducer": "tree"}
    with pytest.raises(EnvironmentRefused, match="its settings cannot change while it lives") as caught:
        check_given(own, **wanted)
    head, block = str(caught.value).split("\n\n")
    assert [line.split(" = ")[0].strip() for line in head.splitlines()[1:-1]] == [
        *("spark.plugins", "spark.jars", "spark.speculation", "spark.master"),
    ]
    ast.parse(block)
    made = proposed(block)
    assert made["spark.plugins"] == f"com.example.Other,{PLUGIN}"
    assert made["spark.master"] == "local-cluster[2,4,1024]"
    check_given({**own, **made}, **wanted)
    assert advice({**own, **made}) == [], "and nothing is left to warn about"


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.master": "yarn", "spark.executor.instances": "1"},
        {"spark.master": "yarn", "spark.executor.cores": "4", "spark.dynamicAllocation.enabled": "true"},
        {"spark.master": "local-cluster[3,2,1024]", "spark.executor.cores": "1"},
        {"spark.master": "local[*]", "spark.executor.cores": "1"},
        {"spark.master": "local-cluster[1,1,512]", "spark.driver.maxResultSize": "1m"},
        {"spark.master": "spark://host:7077", "spark.executor.cores": "1", "spark.task.cpus": "2"},
    ],
)
def test_what_is_proposed_fits_in_every_place(conf: dict[str, str]) -> None:
    with pytest.raises(EnvironmentRefused) as caught:
        check_given(conf, agents=3, agents_per_executor=1, reducer="ranges")
    made = proposed(str(caught.value))
    check_given({**conf, **made}, agents=3, agents_per_executor=1, reducer="ranges")


def test_a_worker_of_a_proposed_cluster_has_room_for_the_executor_that_is_asked_for() -> None:
    asked = {**GOOD, "spark.master": "local[*]", "spark.executor.memory": "4g", "spark.executor.cores": "8"}
    with pytest.raises(EnvironmentRefused) as caught:
        check_given(asked, agents=2, agents_per_executor=1, reducer="ranges")
    assert proposed(str(caught.value))["spark.master"] == "local-cluster[2,8,4096]"


def test_executors_that_nobody_counted_are_two_on_yarn() -> None:
    session = {**GOOD, "spark.master": "yarn", "spark.executor.cores": "2"}
    check_session(session, agents=2)
    error = refusal(session, agents=8)
    assert str(error).startswith("spark.executor.instances = 2: has room for 2 agents and the run wants 8")


@pytest.mark.parametrize("service", ["true", "false"])
def test_executors_that_are_told_to_authenticate_are_kept_from_a_shuffle_service_that_may_not(service: str) -> None:
    shared = {"spark.dynamicAllocation.enabled": "true", "spark.shuffle.service.enabled": service}
    with pytest.raises(EnvironmentRefused) as caught:
        check_given({**GOOD, "spark.master": "yarn", **shared}, agents=2, agents_per_executor=1, reducer="ranges")
    made = proposed(str(caught.value))
    assert made["spark.authenticate"] == "true"
    assert made.get("spark.shuffle.service.enabled", "as it is") == ("false" if service == "true" else "as it is")


@pytest.mark.parametrize(("submitted", "more"), [(True, {}), (False, {"spark.databricks.clusterUsageTags.clusterId": "1"})])
def test_where_the_jvm_comes_before_the_program_it_is_told_lines_for_the_one_that_makes_it(
    submitted: bool, more: dict[str, str]
) -> None:
    own = {"spark.master": "yarn", "spark.speculation": "true", **more}
    wanted = {"agents": 2, "agents_per_executor": 1, "reducer": "ranges", "submitted": submitted}
    with pytest.raises(EnvironmentRefused, match="here as lines of spark-defaults") as caught:
        check_given(own, **wanted)
    assert "SparkSession.builder" not in str(caught.value)
    made = dict(line.split(" ") for line in str(caught.value).split("\n\n")[1].splitlines())
    assert made["spark.jars"] == str(own_line().jar)
    check_given({**own, **made}, **wanted)


@pytest.mark.parametrize("key", ["spark.driver.host", "spark.driver.bindAddress"])
def test_a_driver_of_which_this_machine_does_not_know_the_name_is_refused(key: str) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]", ""):
        check_driver_host({key: host})
    with pytest.raises(ConfigError, match=rf"^{key} = 'no-such.invalid': must be an address of this machine, or a name that "):
        check_driver_host({key: "no-such.invalid"})
    with pytest.raises(ConfigError, match=rf"^{key} = '::1': must have brackets .*: \[::1\]$"):
        check_driver_host({key: "::1"})
