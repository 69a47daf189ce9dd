"""Paths and URLs: taken apart, shown without what is secret, and hdfs:// found over WebHDFS by Hadoop's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpca.cli.dev.daemons import SERVICE, HadoopSetup
from mpca.cli.dev.rendering import PORTS, render
from mpca.errors import ConfigError
from mpca.storage import Location
from mpca.storage.locations import webhdfs_of


def test_a_path_is_local_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("runs/a").text == str(tmp_path / "runs" / "a")
    assert Location.parse(f"file://{tmp_path}/x/").path == f"{tmp_path}/x"
    assert Location.parse(tmp_path).is_local


def test_a_url_is_taken_apart() -> None:
    one = Location.parse("webhdfs://ann@nn1:9870/runs/a/")
    assert (one.scheme, one.authority, one.path, one.user) == ("webhdfs", "nn1:9870", "/runs/a", "ann")
    assert one.text == "webhdfs://nn1:9870/runs/a"
    assert (one.parent / "b").text == "webhdfs://nn1:9870/runs/b"
    assert one.name == "a"
    assert Location.parse("hdfs:///runs").text == "hdfs:///runs"
    assert Location.parse("hdfs://nn1").parent.text == "hdfs://nn1/"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nfs://host/x", "nfs://host/x; known: a path of this machine, file://, hdfs://"),
        (
            "s3a://bucket/x",
            "renamed at once, so that a backup is whole, and that only one of two creates a file, which is its lock; s3a",
        ),
        ("ofs://ozone/vol/x", "FILE_SYSTEM_OPTIMIZED, but nobody has tried; known: a path of this machine, file://, hdfs://"),
        ("file://host/x", "file:///path"),
        ("webhdfs:///x", "webhdfs://HOST:9870/path"),
        ("hdfs://nn1/a/../b", "'..'"),
    ],
)
def test_what_no_store_serves_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Location.parse(text)
    assert says in str(caught.value)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="password") as caught:
        Location.parse("hdfs://ann:secret@nn1/x")
    assert "secret" not in str(caught.value)


def test_hdfs_of_a_secured_cluster_is_found_over_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = ("services", "keystore", "keystore_password", "truststore")
    names = ("realm", "instance", "krb5_conf", *stores, "token_renewal_ms", "token_ms")
    values = dict.fromkeys(names, "X")
    render(tmp_path, namenode="nn1", resourcemanager="rm1", data=tmp_path, realm=values)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert webhdfs_of(Location.parse("hdfs:///a")).text == "swebhdfs://nn1:9870/a"
    two = HadoopSetup(tmp_path, tmp_path, "", PORTS, ha=True).ha_values
    render(tmp_path, namenode="nn1", resourcemanager="rm1", data=tmp_path, ha=two, realm=values)
    assert webhdfs_of(Location.parse("hdfs:///a")).text == "swebhdfs://nn1:9870;nn1:9871/a"
    assert "RULE:[2:$1@$0](hdfs@X)s/.*/hdfs/ " in (tmp_path / "core-site.xml").read_text()


def test_hdfs_is_found_over_webhdfs_by_the_rendered_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render(tmp_path, namenode="nn1", resourcemanager="rm1", data=tmp_path)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert webhdfs_of(Location.parse("hdfs:///a")).text == "webhdfs://nn1:9870/a"
    assert webhdfs_of(Location.parse("hdfs://nn1:8020/a")).text == "webhdfs://nn1:9870/a"
    with pytest.raises(ConfigError, match=r"is for hdfs://nn1:8020; write it as webhdfs://HOST:9870/path"):
        webhdfs_of(Location.parse("hdfs://other:8020/a"))


def test_a_name_service_is_all_its_name_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "dfs.ha.namenodes.prod": "a, b",
        "dfs.namenode.http-address.prod.a": "nn1:9870",
        "dfs.namenode.http-address.prod.b": "nn2:9870",
    }
    rows = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{rows}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert webhdfs_of(Location.parse("hdfs://prod/a")).authority == "nn1:9870;nn2:9870"
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR is not set"):
        webhdfs_of(Location.parse("hdfs://prod/a"))


def test_a_web_address_that_lacks_the_host_has_that_of_its_name_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "dfs.ha.namenodes.prod": "a,b",
        "dfs.namenode.rpc-address.prod.a": "nn1:8020",
        "dfs.namenode.rpc-address.prod.b": "nn2:8020",
        "dfs.namenode.http-address.prod.b": "0.0.0.0:50070",
    }
    rows = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{rows}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert webhdfs_of(Location.parse("hdfs://prod/a")).authority == "nn1:9870;nn2:50070"


def test_a_cluster_with_two_name_nodes_is_found_by_the_rendered_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = HadoopSetup(tmp_path, tmp_path, "", PORTS, ha=True)
    render(tmp_path, namenode="nn1", resourcemanager="rm1", data=tmp_path, ha=setup.ha_values)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    for url in ("hdfs:///a", f"hdfs://{SERVICE}/a"):
        assert webhdfs_of(Location.parse(url)).text == "webhdfs://nn1:9870;nn1:9871/a"
