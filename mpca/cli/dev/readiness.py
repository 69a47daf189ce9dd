"""Asks daemons over HTTP whether they work, and waits until they do."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from mpca.cli.dev.daemons import LOOPBACK, WORKERS, HadoopSetup
from mpca.cli.dev.realm import Realm

__all__ = ["active", "active_resourcemanager", "get_json", "jmx", "ready", "resourcemanager_url", "wait_until"]

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the daemons are on this machine
_TIMEOUT_S = 5.0


def get_json(url: str, realm: Realm | None = None) -> Any:
    """Fetch a page; in a realm as the superuser of HDFS.

    Raises:
        OSError: there is no answer, or an error.
    """
    if realm is not None:
        return json.loads(realm.fetch(url))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - of our own daemons
    with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)


def jmx(setup: HadoopSetup, name: str, namenode: str | None = None) -> dict[str, Any]:
    """A bean of a NameNode, by its name; empty if there is no such bean. Without `namenode` of the active one."""
    namenode = namenode or active(setup)
    page = f"{setup.hdfs_web(namenode)}/jmx?qry=Hadoop:service=NameNode,name={name}"
    beans = get_json(page, setup.realm)["beans"]
    return dict(beans[0]) if beans else {}


def active(setup: HadoopSetup) -> str:
    """The active NameNode; of one alone, that one, whatever it is.

    Raises:
        OSError: none is active.
    """
    if len(setup.namenodes) == 1:
        return setup.namenodes[0]
    for one in setup.namenodes:
        with contextlib.suppress(OSError):
            if jmx(setup, "NameNodeStatus", one).get("State") == "active":
                return one
    raise ConnectionError("no NameNode is active")


def resourcemanager_url(setup: HadoopSetup, name: str) -> str:
    """A ResourceManager's web pages."""
    return f"http://{LOOPBACK}:{setup.port(name, 'resourcemanager_http')}"


def active_resourcemanager(setup: HadoopSetup) -> str:
    """The active ResourceManager; of one alone, that one, whatever it is.

    Raises:
        OSError: none is active.
    """
    if len(setup.resourcemanagers) == 1:
        return setup.resourcemanagers[0]
    for one in setup.resourcemanagers:
        with contextlib.suppress(OSError):
            if _cluster_info(setup, one)["haState"] == "ACTIVE":
                return one
    raise ConnectionError("no ResourceManager is active")


def ready(setup: HadoopSetup, name: str) -> bool:
    """Whether a daemon works for others: a DataNode is live to the NameNode, a NodeManager is running to the RM."""
    try:
        return _CHECKS[name.rstrip("12")](setup, name)
    except (OSError, ValueError, KeyError):  # there is no answer, or an incomplete one
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Look at a condition again and again, for `timeout_s` seconds at most.

    Returns:
        Whether it holds.
    """
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def _namenode(setup: HadoopSetup, name: str) -> bool:
    state = jmx(setup, "NameNodeStatus", name).get("State")
    if not setup.ha:
        return state == "active"
    # In safe mode it cannot take the other one's place. Of one alone the DataNodes are asked, which it waits for.
    return state in ("active", "standby") and jmx(setup, "NameNodeInfo", name)["Safemode"] == ""


def _journalnode(setup: HadoopSetup, name: str) -> bool:
    page = f"{setup.hdfs_web(name, 'journalnode_http')}/jmx?qry=Hadoop:service=JournalNode,*"
    return bool(get_json(page, setup.realm)["beans"])


def _datanode(setup: HadoopSetup, name: str) -> bool:
    info = jmx(setup, "NameNodeInfo")
    port = setup.port(name, "datanode_data")
    live = [node["xferaddr"] for node in json.loads(info["LiveNodes"]).values() if node["lastContact"] <= 3]
    return info["Safemode"] == "" and any(address.endswith(f":{port}") for address in live)


def _resourcemanager(setup: HadoopSetup, name: str) -> bool:
    info = _cluster_info(setup, name)
    return info["state"] == "STARTED" and info["haState"] in (("ACTIVE", "STANDBY") if setup.ha else ("ACTIVE",))


def _cluster_info(setup: HadoopSetup, name: str) -> dict[str, Any]:
    return dict(get_json(f"{resourcemanager_url(setup, name)}/ws/v1/cluster/info", setup.realm)["clusterInfo"])


def _nodemanager(setup: HadoopSetup, name: str) -> bool:
    page = f"{resourcemanager_url(setup, active_resourcemanager(setup))}/ws/v1/cluster/nodes"
    nodes = get_json(page, setup.realm)["nodes"] or {}
    host = WORKERS[int(name[-1]) - 1]
    listed = any(node["nodeHostName"] == host and node["state"] == "RUNNING" for node in nodes.get("node", []))
    # The ResourceManager lists a killed NodeManager for a while, so ask the NodeManager too.
    mine = get_json(f"http://{host}:{setup.port(name, 'nodemanager_http')}/ws/v1/node/info", setup.realm)
    return listed and mine["nodeInfo"]["nodeHealthy"]


def _kdc(setup: HadoopSetup, name: str) -> bool:
    assert setup.realm is not None
    return setup.realm.answers()


_CHECKS = {
    "journalnode": _journalnode,
    "kdc": _kdc,
    "namenode": _namenode,
    "datanode": _datanode,
    "resourcemanager": _resourcemanager,
    "nodemanager": _nodemanager,
}
