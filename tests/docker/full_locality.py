"""Each agent reads from its own host what lies there: on three workers with one replica of every shard, by HDFS's own count.

Collected only when the file is named: ``make test-docker-full``.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from dockerized.cluster import Cluster

from tests.docker.support import Run, nothing_runs_on_workers

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]
IMAGES, CLASSES = 600, 20
SET = "/datasets/photographs"
#: In the client. Every shard in a folder written again with one replica, by chance on any worker; and the host of each.
ALONE = """
import json, sys
import hdfs, requests
web = "http://namenode:9870"
client = hdfs.InsecureClient(web, user="root", root=sys.argv[1])
hosts = {}
for name in client.list("."):
    if name.startswith("train") and name.endswith(".tar"):
        with client.read(name) as reader:
            shard = reader.read()
        client.write(name, shard, overwrite=True, replication=1)
        told = requests.get(f"{web}/webhdfs/v1{sys.argv[1]}/{name}?op=GETFILEBLOCKLOCATIONS&user.name=root").json()
        (block,) = told["BlockLocations"]["BlockLocation"]
        (host,) = block["hosts"]
        hosts[name] = host.partition(".")[0]
print(json.dumps(hosts))
"""
#: In the client. What part of the bytes the plan gives to agents that are not on their host.
PLANNED = """
import json, sys
from dataclasses import replace
from mpca.data.manifest import store_at
from mpca.data.plan import Readers, shares
from mpca.data.shards import span
from mpca.data.stream_reader import ShareReader, SplitData
from mpca.data.cache import RecordCache
url, hosts, homes, epochs = sys.argv[1], *map(json.loads, sys.argv[2:])
data = SplitData.open(store_at(url), "train")
names = [data.shard_name(shard) for shard in range(len(data.index.starts) - 1)]
readers = replace(Readers.of(len(homes)), shard_hosts=tuple((hosts[name],) for name in names))
for agent, host in homes.items():
    readers = readers.settle(int(agent), 0, host)
reader = ShareReader(data, seed=0, agent=0, agents=len(homes), incarnation=0, window_bytes=1 << 20, cache=RecordCache(0))
read = far = 0
for epoch in range(epochs):
    for agent, share in shares(reader._cut, readers, seed=0, epoch=epoch).items():
        for unit in share:
            size = span([data.index.entry(number) for number in range(unit.first, unit.first + unit.count)])[1]
            read += size
            far += size * (hosts[names[unit.shard]] != homes[str(agent)])
print(far / read)
"""


def said(cluster: Cluster, *words: str) -> str:
    done = cluster.run("client", *words, timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_lies_on_an_agents_host_is_read_from_there(cluster: Cluster) -> None:
    mpca, tar, url = ("python", "-m", "mpca.cli"), str(cluster.work / "photographs.tar"), f"hdfs://namenode:8020{SET}"
    said(cluster, *mpca, "generate", str(IMAGES), tar, "--classes", str(CLASSES))
    said(cluster, *mpca, "ingest", tar, url, "--shorter-edge", "256", "--shard-size", "1MiB", "--withheld", "2")
    hosts = json.loads(said(cluster, "python", "-c", ALONE, SET))
    print("shards on each worker:", Counter(hosts.values()))

    run = Run(
        cluster,
        "near",
        *("model.name=resnet20", "model.classes=20", "data.name=imagenet", f"data.path={url}", "data.batch_size=8"),
        *("data.crop=64", "data.shorter_edge=72", "data.read_ahead=2MiB"),
        *("objectives.target_error=0", "objectives.max_time=75s", "objectives.evaluate_every=30s"),
    )
    try:
        assert run.submitted.ended() == 0, run.submitted.text()[-4000:]
    finally:
        run.submitted.close()
    summary = json.loads((run.folder / "summary.json").read_text())
    read = sum(one["bytes"]["data_read"] for one in run.seen("cycle"))
    remote = sum(one["bytes"]["data_remote"] for one in run.seen("cycle"))
    places = run.places()
    assert len(set(places.values())) == 2, "agents on two workers"
    planned = float(said(cluster, "python", "-c", PLANNED, url, json.dumps(hosts), json.dumps(places), "4"))
    anyhow = 1 - sum(Counter(hosts.values())[host] for host in places.values()) / 2 / len(hosts)
    print(f"read {read} bytes, from other hosts {remote / read:.2f}; planned {planned:.2f}, dealt anyhow {anyhow:.2f}")
    assert summary["samples"] > 2 * IMAGES, "epochs enough to tell"
    assert remote / read == pytest.approx(planned, abs=0.08)
    assert planned < anyhow - 0.15, "or there is nothing to see"
    nothing_runs_on_workers(cluster)
