"""DataFrames written as shards by the executors, and streamed: every row once, in any order, and clear words for bad ones."""

from __future__ import annotations

import gc
import io
import json
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import mpca
from mpca import data
from mpca.data.decode import decode
from mpca.data.manifest import load_index, load_manifest, store_at
from mpca.errors import BadRecords, ConfigError, JvmError
from mpca.spark.data.dataframes import IngestedData
from tests.data.pictures import folders
from tests.data.test_ingest import tar_of_tars
from tests.support.fake_executor import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark leaves its own to the collector
]
VECTOR = VectorUDT()


@pytest.fixture(autouse=True)
def _sockets_are_collected_here() -> Iterator[None]:
    yield
    gc.collect()


def table(spark: Any, rows: list[tuple], features: Any = VECTOR, label: Any = None, parts: int = 3) -> DataFrame:
    schema = StructType([StructField("features", features), StructField("label", label or IntegerType())])
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, parts), schema)


def files(target: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in target.iterdir()}


def arrays(target: Path) -> dict[str, list[tuple[tuple, int]]]:
    """What other tools see: the .npy and .cls members of every tar, by split."""
    found: dict[str, list[tuple[tuple, int]]] = {}
    for path in sorted(target.glob("*.tar")):
        with tarfile.open(path) as tar:
            members = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
        for name, npy in members.items():
            if name.endswith(".npy"):
                label = int(members[name.removesuffix(".npy") + ".cls"])
                values = np.load(io.BytesIO(npy))
                found.setdefault(path.name.partition("-")[0], []).append((tuple(values.ravel().tolist()), label))
    return found


def test_vectors_are_written_once_each_whatever_order_they_come_in(spark, tmp_path: Path) -> None:
    rows = [(DenseVector([number, number / 2, -1.0]), number % 3) for number in range(90)]
    rows[7] = (SparseVector(3, [0, 1, 2], [7.0, 3.5, -1.0]), 1)  # the same numbers
    told: list[tuple[int, int]] = []
    options: dict[str, Any] = {"withheld": 4, "shard_size": "64KiB", "seed": 5}
    one = mpca.ingest_dataframe(
        table(spark, rows), str(tmp_path / "one"), on_progress=lambda *done: told.append(done), **options
    )
    assert (one.found, one.name, one.classes, one.bad) == ("new", "vectors", ["0", "1", "2"], 0)
    assert one.records == {"train": 78, "validation": 12}
    assert told[-1] == (90, 90)
    found = arrays(tmp_path / "one")
    expected = Counter(((float(number), number / 2, -1.0), number % 3) for number in range(90))
    assert Counter(found["train"] + found["validation"]) == expected
    assert Counter(label for _, label in found["validation"]) == {0: 4, 1: 4, 2: 4}
    numbers = [values[0] for values, _ in found["train"]]
    assert numbers != sorted(numbers)

    other = mpca.ingest_dataframe(table(spark, rows[::-1], parts=5), str(tmp_path / "other"), **options)
    assert files(tmp_path / "other") == files(tmp_path / "one")
    assert mpca.ingest_dataframe(table(spark, rows, parts=1), other.path, **options).found == "finished"
    with pytest.raises(ConfigError, match="holds a data set of another source, or with other options"):
        mpca.ingest_dataframe(table(spark, rows[1:]), other.path, **options)

    batches = list(data.load("vectors", "train", 1, path=one.path).stream(10, epochs=1))
    assert {tuple(images.shape) for images, _ in batches} == {(10, 3), (8, 3)}
    streamed = [(tuple(values.tolist()), int(label)) for both in batches for values, label in zip(*both, strict=True)]
    assert Counter(streamed) == Counter(found["train"])
    assert len(data.load("vectors", "test", 1, path=one.path)) == 12
    with pytest.raises(ConfigError, match=r"data.name = 'imagenet': .* holds numbers: set it to 'vectors'"):
        data.load("imagenet", "train", 1, path=one.path)


def test_nested_arrays_and_names_of_classes(spark, tmp_path: Path) -> None:
    rows = [([[number, 2], [3, 4]], "wolf" if number % 2 else "bee") for number in range(8)]
    df = table(spark, rows, ArrayType(ArrayType(LongType())), StringType()).selectExpr("features AS tokens", "label AS animal")
    done = mpca.ingest_dataframe(df, str(tmp_path / "set"), features="tokens", label="animal")
    assert done.classes == ["bee", "wolf"]
    (batch,) = data.load("vectors", "train", path=done.path).stream(8, epochs=1)
    assert batch[0].shape == (8, 2, 2)
    assert str(batch[0].dtype) == "torch.int64"
    assert sorted(zip(batch[0][:, 0, 0].tolist(), batch[1].tolist(), strict=True)) == [(n, n % 2) for n in range(8)]


def test_images_as_bytes_as_paths_as_pixels_and_in_a_tar_of_tars(spark, tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=2, each=6)
    (source / "class0" / "text.jpg").write_bytes(b"this is no picture")
    pattern = f"{source}/*/*.jpg"
    by_class = "CAST(regexp_extract({}, 'class([0-9])', 1) AS INT) AS label"
    binary = spark.read.format("binaryFile").load(pattern).selectExpr("content AS image", by_class.format("path"))
    paths = spark.createDataFrame([Row(image=str(one), label=int(one.parent.name[-1])) for one in source.glob("*/*.jpg")])
    pixels = spark.read.format("image").load(pattern).selectExpr("image", by_class.format("image.origin"))
    members = {one.name: {file.name: file.read_bytes() for file in sorted(one.glob("*.jpg"))} for one in source.iterdir()}
    tars = mpca.images_in_tar(spark, str(tar_of_tars(tmp_path / "train.tar", members)))
    kept = {one.read_bytes() for one in source.glob("*/0*.jpg")}
    for name, df in (("binary", binary), ("paths", paths), ("pixels", pixels), ("tars", tars)):
        done = mpca.ingest_dataframe(df, str(tmp_path / name), features="image", withheld=1)
        # One of each class is withheld by its digest, before anybody looks inside: the bad one may be among them.
        assert sum(done.records.values()) == 12, name
        assert done.records["validation"] in (1, 2), name
        assert done.bad == 1, name
        (bad,) = [json.loads(line) for line in (tmp_path / name / "bad.jsonl").read_text().splitlines()]
        assert bad["file"].startswith("partition "), name
        assert bad["reason"], name
        if name != "binary":
            assert bad["file"].endswith("class0/text.jpg"), name
        store = store_at(done.path)
        manifest = load_manifest(store)
        found = set()
        for split, of in manifest.splits.items():
            index = load_index(store, manifest, split)
            entries = [index.entry(number) for number in range(len(index))]
            found |= {store.read_range(of.shards[0].name, one.offset, one.length) for one in entries}
        if name == "pixels":  # encoded anew, from what Spark decoded
            shown = sorted(decode(one, 256).mean(axis=(0, 1)).round().tolist() for one in found)
            assert np.allclose(shown, sorted(decode(one, 256).mean(axis=(0, 1)).round().tolist() for one in kept), atol=2)
        else:
            assert found == kept
        train = data.load("imagenet", "train", path=done.path, crop=32)
        images, labels = next(iter(train.stream(done.records["train"], epochs=1)))
        assert images.shape == (done.records["train"], 3, 32, 32)
        assert Counter(labels.tolist()) == {0: done.records["train"] - 5, 1: 5}


GOOD = [([1.0, 2.0], number % 2) for number in range(6)]
DOUBLES = ArrayType(DoubleType())


@pytest.mark.parametrize(
    ("rows", "label", "options", "says"),
    [
        ([*GOOD, ([1.0, 2.0], None)], None, {}, r"column 'label' is null: 1 row, first partition 2, row 2; leave such"),
        (GOOD, BinaryType(), {}, "column 'label' is of type binary: labels are whole numbers"),
        (GOOD, None, {"features": "featurs"}, "no column 'featurs': did you mean 'features'"),
        (GOOD, None, {"features": "label"}, r"column 'label' is of type int, on which mpca cannot train; .*VectorAssembler"),
        ([], None, {}, "the DataFrame has no rows"),
    ],
)
def test_columns_and_rows_that_cannot_be_trained_on_are_refused(
    spark, tmp_path: Path, rows: list, label: Any, options: dict, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        mpca.ingest_dataframe(table(spark, rows, DOUBLES, label), str(tmp_path / "set"), **options)
    assert not (tmp_path / "set").exists()


def test_a_failure_of_the_users_own_is_told_in_a_line(spark, tmp_path: Path) -> None:
    def broken(row: Any) -> Any:
        raise KeyError("no such patient")

    df = spark.createDataFrame(table(spark, GOOD, DOUBLES).rdd.map(broken), "features array<double>, label int")
    with pytest.raises(JvmError, match=r"mpca: looking at the rows failed: KeyError: 'no such patient'$"):
        mpca.ingest_dataframe(df, str(tmp_path / "set"))


def test_one_that_was_broken_off_goes_on_and_gives_the_same_bytes(spark, tmp_path: Path) -> None:
    """Dozens of shards, cancelled when two of them are there."""
    rng, paths = np.random.default_rng(5), []
    for number in range(40):
        path = tmp_path / f"{number}.jpg"  # libjpeg decodes it at an eighth: to scale it, a dozen processes would load torch
        path.write_bytes(simplejpeg.encode_jpeg(rng.integers(0, 256, (512, 512, 3), dtype=np.uint8), colorspace="RGB"))
        paths.append(path)
    df = table(spark, [(str(path), number % 2) for number, path in enumerate(paths)], StringType())
    options: dict[str, Any] = {"shard_size": "400KiB", "shorter_edge": 64}
    mpca.ingest_dataframe(df, str(tmp_path / "whole"), **options)
    failed: list[BaseException] = []
    target = tmp_path / "set"

    def attempt() -> None:
        try:
            mpca.ingest_dataframe(df, str(target), **options)
        except BaseException as error:
            failed.append(error)

    def noted() -> list[Path]:
        return [target / note.name.removesuffix(".json") for note in target.glob("_ingest/train*.json")]

    thread = threading.Thread(target=attempt)
    thread.start()
    try:
        wait_until(lambda: len(noted()) > 1, "shards are done", deadline_s=120)
        spark.sparkContext.cancelAllJobs()
    finally:
        thread.join(60)
    assert isinstance(failed[0], JvmError)
    assert "cancelled" in str(failed[0])
    assert not (target / "manifest.json").exists(), "half of it is no data set"
    before = {path: path.stat().st_mtime_ns for path in noted()}
    assert mpca.ingest_dataframe(df, str(target), **options).found == "resumed"
    assert {path: path.stat().st_mtime_ns for path in before} == before, "what was complete was not written again"
    assert files(target) == files(tmp_path / "whole")


@pytest.fixture(scope="module")
def points(spark, tmp_path_factory: pytest.TempPathFactory) -> IngestedData:
    """Two clouds of points that a line divides, made by SQL."""
    df = spark.range(400).selectExpr("id % 2 AS label", "array(randn(7) + IF(id % 2 = 0, 3, -3), randn(8)) AS features")
    return mpca.ingest_dataframe(df, str(tmp_path_factory.mktemp("points") / "set"), withheld=20)


def line() -> Callable[[], list[int]]:
    """A train function that travels by its code."""

    def train() -> list[int]:
        import torch

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mpca.attach(model, optimizer)
        for features, labels in mpca.dataset("train", 20):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
        return list(features.shape)

    return train


def test_agents_train_on_a_dataframe(spark, points: Any, tmp_path: Path) -> None:
    assert points.records == {"train": 360, "validation": 40}
    result = mpca.Distributor(
        num_agents=2, objectives=[mpca.MaxCycles(20)], conf=points.conf, run_dir=tmp_path / "run", spark=spark
    ).run(line())
    assert result.status == "max_cycles"
    assert result.returns == {0: [20, 2], 1: [20, 2]}
    assert result.summary["samples"] >= 20 * sum(result.summary["steps"]) > 0
    features, labels = next(iter(data.load("vectors", "test", path=points.path).stream(40, epochs=1)))
    weights, bias = result.model_state["weight"], result.model_state["bias"]
    assert ((features @ weights.T + bias).argmax(1) == labels).float().mean() > 0.9


def test_too_many_bad_records_are_an_exception_of_their_own(spark, points: Any, tmp_path: Path) -> None:
    for name, content in files(Path(points.path)).items():
        changed = bytearray(content)
        if name == "train-000000.tar":
            changed[512 + 130] ^= 1  # in the numbers of the first record
        (tmp_path / name).write_bytes(bytes(changed))
    conf = {**points.conf, "data.path": tmp_path}
    distributor = mpca.Distributor(num_agents=2, conf=conf, run_dir=tmp_path / "run", spark=spark)
    says = r"too many bad records: 1 of 1\d\d .*max_bad_fraction=0; train-000000.tar:\w+ at 512: wrong checksum"
    with pytest.raises(BadRecords, match=says) as caught:
        distributor.run(line())
    assert caught.value.exit_code == 4
    assert str(caught.value).endswith(f"run folder: {tmp_path / 'run'}")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    named = [json.loads(line) for line in (tmp_path / "run" / "bad.jsonl").read_text().splitlines()]
    assert [(one["record"].partition(":")[0], one["reason"].partition(":")[0]) for one in named] == [
        ("train-000000.tar", "wrong checksum")
    ]
    assert summary["bad_records"] == 1
