"""Images that `mpca ingest` put on HDFS, streamed from there by agents in YARN's containers while they train."""

from __future__ import annotations

import gc
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mpca
from mpca.cli.dev.hadoop import Hadoop
from mpca.data import load
from mpca.data.manifest import opened
from tests.data.pictures import jpeg
from tests.data.test_ingest import tar_of_tars
from tests.hadoop.support import MPCA, ROOT, application, end_applications, nothing_lives, only, records, submit

pytestmark = [
    pytest.mark.hadoop,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # of pyspark
]

CLASSES, EACH, WITHHELD = 20, 10, 2
RESNET34 = ROOT / "conf" / "imagenet-resnet34.toml"
SMALL_NET = """
[model]
name = "resnet20"
classes = 20
[data]
name = "imagenet"
crop = 64
shorter_edge = 72
read_ahead = "8MiB"
batch_size = 8
[optimizer]
lr = 3e-3
[objectives]
target_error = 0.665     # of 0.95, which is chance among twenty classes: less by 30 %
max_time = "8min"
evaluate_every = "2s"
"""


@pytest.fixture(scope="module")
def photographs(hadoop: Hadoop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of a small set in ImageNet's layout, generated and brought to HDFS as a person would."""
    tar, url = tmp_path_factory.mktemp("source") / "photographs.tar", f"{hadoop.hdfs_url}/datasets/photographs"
    say("generate", str(CLASSES * EACH), str(tar), "--classes", str(CLASSES), "--seed", "3")
    told = json.loads(say("ingest", str(tar), url, "--withheld", str(WITHHELD), "--shorter-edge", "256", "--json"))
    assert told["records"] == {"train": CLASSES * (EACH - WITHHELD), "validation": CLASSES * WITHHELD}
    assert (told["found"], told["bad"]) == ("new", 0)
    return url


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


def say(*words: str) -> str:
    done = subprocess.run([*MPCA, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(hadoop: Hadoop, folder: Path, conf: Path, *sets: str) -> tuple[dict[str, Any], str]:
    """Submit, and wait for its end: what summary and ledger say. Nothing of it may live on."""
    run_dir = folder / "run"
    run = submit(folder, sets=(f"run.dir={run_dir}", *sets), conf=conf)
    try:
        assert run.ended() == 0, run.text()[-4000:]
        id = only(run.text())
    finally:
        run.close()
    nothing_lives(id)
    told = application(hadoop, id)
    assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    return json.loads((run_dir / "summary.json").read_text()), (run_dir / "records.jsonl").read_text()


def test_the_papers_file_trains_three_exchanges_of_resnet34_on_images_from_hdfs(
    hadoop: Hadoop, photographs: str, tmp_path: Path
) -> None:
    sets = ("cluster.device=cpu", "data.batch_size=8", "objectives.max_cycles=9", "model.classes=20", "run.seed=1")
    sets += ("cluster.executor_memory=640MiB",)  # 617 are needed, and the file's GiB are more than two small nodes have
    summary, lines = trained(hadoop, tmp_path, RESNET34, f"data.path={photographs}", *sets)
    assert (summary["status"], summary["cycles"]) == ("max_cycles", 9)
    assert summary["agents_lost"] == 0
    # 21,797,672 parameters (torchvision's figure) less 980 of 1,000 outputs; and two numbers a channel of 8,512 in BatchNorm
    assert summary["model_bytes"] == 4 * (21_797_672 - 980 * 513 + 2 * 8_512)
    cycles = records(lines, "cycle")
    assert [one["shard"] for one in cycles] == 3 * [0, 1, 2], "three exchanges of three shards"
    assert {agent for one in cycles for agent in one["contributors"]} == {"0", "1"}
    assert summary["samples"] == 8 * sum(summary["steps"])
    assert (tmp_path / "run" / "model.safetensors").stat().st_size > 4 * 21_000_000
    assert (tmp_path / "run" / "report.html").exists()


def test_a_small_net_learns_from_images_on_hdfs(hadoop: Hadoop, photographs: str, tmp_path: Path) -> None:
    conf = tmp_path / "small.toml"
    conf.write_text(SMALL_NET)
    summary, lines = trained(hadoop, tmp_path, conf, f"data.path={photographs}", "run.seed=1")
    assert summary["status"] == "reached", summary["reason"]
    assert summary["final_error"] <= 0.665
    assert sum(one["bytes"]["data_read"] for one in records(lines, "cycle")) > 0, "HDFS is where they read"
    first = next(one["error"] for one in records(lines, "evaluation") if one["error"] is not None)
    assert first > 0.8, "it began with chance"
    assert summary["final_error"] <= 0.7 * first


def test_a_dataframe_is_written_to_hdfs_by_its_executors_and_read_from_there(
    spark: Any, hadoop: Hadoop, folder: str, tmp_path: Path
) -> None:
    url = hadoop.hdfs_url + folder
    df = spark.range(60).selectExpr("array(CAST(id AS DOUBLE), 1.0D) AS features", "id % 3 AS label")
    done = mpca.ingest_dataframe(df, url, withheld=2, shard_size="8KiB")
    assert (done.found, done.records, done.conf["data.path"]) == ("new", {"train": 54, "validation": 6}, url)
    assert mpca.ingest_dataframe(df.repartition(4), url, withheld=2, shard_size="8KiB").found == "finished"
    seen = set()
    for split in ("train", "validation"):
        found = load("vectors", split, path=url)
        seen |= {(int(row[0]), int(label)) for both in found.stream(7, epochs=1) for row, label in zip(*both, strict=True)}
        found.data.store.close()
    assert seen == {(number, number % 3) for number in range(60)}
    members = {f"n{number}": {f"{name}.jpg": jpeg(10 * number + name) for name in range(4)} for number in range(2)}
    with opened(url) as store:
        store.write("train.tar", tar_of_tars(tmp_path / "train.tar", members).read_bytes())
    images = mpca.images_in_tar(spark, f"{url}/train.tar")
    done = mpca.ingest_dataframe(images, f"{url}/images", features="image", withheld=1)
    assert (done.classes, done.records, done.bad) == (["n0", "n1"], {"train": 6, "validation": 2}, 0)
    gc.collect()  # of sockets that pyspark leaves open
