"""Configuration files of a Hadoop cluster from one set of templates, for daemons on this machine and in containers alike.

Rendered files have only values and no ``${...}``, so that every reader, Java or not, reads the same. Settings that differ
between two daemons on one machine are on their command lines (`daemons.py`).
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PORTS", "render"]

#: Hadoop's own ports. Those of NodeManagers are fixed, so that a restarted NodeManager finds its containers again.
PORTS: Mapping[str, int] = {
    "namenode_rpc": 8020,
    "namenode_http": 9870,
    "datanode_data": 9866,
    "datanode_http": 9864,
    "datanode_ipc": 9867,
    "resourcemanager_rpc": 8032,
    "resourcemanager_scheduler": 8030,
    "resourcemanager_tracker": 8031,
    "resourcemanager_admin": 8033,
    "resourcemanager_http": 8088,
    "nodemanager_rpc": 8041,
    "nodemanager_localizer": 8040,
    "nodemanager_http": 8042,
    "journalnode_rpc": 8485,
    "journalnode_http": 8480,
    "kdc": 88,
}
_TEMPLATES = Path(__file__).with_name("templates")


class _Template(string.Template):
    """``@{name}``: a dollar sign is Hadoop's own."""

    delimiter = "@"


def render(
    folder: Path,
    *,
    namenode: str,
    resourcemanager: str,
    data: Path,
    ports: Mapping[str, int] = PORTS,
    node_memory_mb: int = 8192,
    node_vcores: int = 16,
    node_expiry_s: int = 60,
    ha: Mapping[str, object] | None = None,
    realm: Mapping[str, object] | None = None,
) -> None:
    """Write the configuration folder that daemons and clients read.

    Args:
        folder: HADOOP_CONF_DIR; made if it does not exist.
        namenode: host of the NameNode, as clients reach it.
        resourcemanager: host of the ResourceManager.
        data: a folder in which each daemon has a folder for what it must not lose.
        ports: of every service; the keys of `PORTS`.
        node_memory_mb: MiB that a NodeManager offers.
        node_vcores: vcores that a NodeManager offers; they may be more than the machine's cores.
        node_expiry_s: seconds without a heart-beat after which YARN gives a node up, with all that runs there. On two busy
            cores a NodeManager that is started again takes up to half a minute.
        ha: `HadoopSetup.ha_values` of a cluster with two NameNodes and two ResourceManagers, whose files have the properties of
            ``templates/ha`` too.
        realm: `Realm.values` of a secured cluster, whose files have the properties of ``templates/secure`` too.
    """
    values = {
        "namenode": namenode,
        "resourcemanager": resourcemanager,
        "data": str(data),
        "node_memory_mb": node_memory_mb,
        "node_vcores": node_vcores,
        "node_expiry_ms": 1000 * node_expiry_s,
        **ports,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for template in sorted(_TEMPLATES.glob("*.*")):
        (folder / template.name).write_text(_Template(template.read_text()).substitute(values))
    for kind, more in (("ha", ha), ("secure", realm)):
        for template in sorted((_TEMPLATES / kind).iterdir() if more is not None else ()):
            text, there = _Template(template.read_text()).substitute({**values, **(more or {})}), folder / template.name
            if there.is_file():  # of two properties with one name the last counts
                text = there.read_text().replace("</configuration>", text.partition("<configuration>")[2].lstrip("\n"))
            there.write_text(text)
