"""`mpca.ml` on real executors: pipelines that are fitted, saved, loaded and transform, and what they refuse."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import simplejpeg
import torch
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import BinaryClassificationEvaluator, MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import DoubleType, StringType

import mpca
from mpca.errors import ConfigError
from mpca.ml import MpcaEstimator, MpcaModel, trust_pickles
from tests.ml import nets

cloudpickle.register_pickle_by_value(nets)
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark leaves its own to the collector
    pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool:ResourceWarning"),  # of its CrossValidator
    pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning"),  # pyspark 3.5 compares pandas' so
]


@pytest.fixture(autouse=True)
def _sockets_are_collected_here() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _runs_lie_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("runs"))
    yield
    os.chdir(before)


@pytest.fixture(scope="module")
def animals(spark) -> DataFrame:
    """Two clouds of points that a line divides; a fifth is put aside. In few partitions: each may import torch anew."""
    df = spark.range(0, 400, 1, 2).selectExpr(
        "IF(id % 2 = 0, 'wolf', 'bee') AS animal",
        "randn(7) + IF(id % 2 = 0, 3, -3) AS x",
        "randn(8) AS y",
        "id % 10 < 2 AS aside",
    )
    return df.localCheckpoint()


def estimator(**params: Any) -> MpcaEstimator:
    """With a method whose joint model is what the agents have, however short the training is."""
    given = {"model": nets.two, "batchSize": 20, "learningRate": 0.02, "numAgents": 2, "labelCol": "animal", "epochs": 20}
    return MpcaEstimator(**{**given, "method": "sync", **params})


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    added = {"probabilityCol": "chance", "predictionIndexCol": "guess", "labelIndexCol": "truth"}
    last = estimator(validation="aside", evaluateEvery="1s", rawPredictionCol="scores", seed=5, **added)
    return Pipeline(stages=[VectorAssembler(inputCols=["x", "y"], outputCol="features"), last])


@pytest.fixture(scope="module")
def fitted(pipeline: Pipeline, animals: DataFrame) -> PipelineModel:
    return pipeline.fit(animals)


@pytest.fixture(scope="module")
def model(fitted: PipelineModel) -> MpcaModel:
    return fitted.stages[-1]


@pytest.fixture(scope="module")
def points(fitted: PipelineModel, animals: DataFrame) -> DataFrame:
    """With vectors."""
    return fitted.stages[0].transform(animals)


def numbers(df: DataFrame, column: str = "scores") -> list[list[float]]:
    return [row[0].toArray().tolist() for row in df.select(column).collect()]


def test_a_pipeline_learns_and_adds_its_columns(fitted: PipelineModel, model: MpcaModel, animals: DataFrame) -> None:
    out = fitted.transform(animals)
    assert out.columns == [*animals.columns, "features", "scores", "chance", "prediction", "guess", "truth"]
    assert [type(out.schema[name].dataType) for name in ("prediction", "guess")] == [StringType, DoubleType]
    assert model.classes == ["bee", "wolf"]
    judge = MulticlassClassificationEvaluator(labelCol="truth", predictionCol="guess", metricName="accuracy")
    assert judge.evaluate(out) > 0.95
    assert BinaryClassificationEvaluator(labelCol="truth", rawPredictionCol="scores").evaluate(out) > 0.98
    for row in out.select("prediction", "guess", "animal", "truth", "chance").collect():
        assert row.prediction == model.classes[int(row.guess)] == model.classes[int(row.chance.argmax())]
        assert row.animal == model.classes[int(row.truth)]
        assert row.chance.sum() == pytest.approx(1)


def test_executors_predict_in_evaluation_what_the_module_does_here(model: MpcaModel, points: DataFrame) -> None:
    features = torch.tensor(np.array(numbers(points, "features")), dtype=torch.float32)
    assert not model.module.training
    expected = model.module(features).detach().numpy()
    assert np.allclose(numbers(model.transform(points)), expected, atol=1e-5)
    few = model.copy().setTransformBatchSize(3)
    assert np.allclose(numbers(few.transform(points)), expected, atol=1e-5), "whatever the batches"
    arrays = points.selectExpr("array(x, y) AS features")
    assert np.allclose(numbers(model.transform(arrays)), expected, atol=1e-5), "arrays of the same numbers"


def test_the_run_was_evaluated_on_the_rows_that_the_column_names(model: MpcaModel) -> None:
    found = [one for one in model.history if one["kind"] == "evaluation"]
    assert found[-1]["error"] < 0.05
    assert found[-1]["metrics"]["accuracy"] == pytest.approx(1 - found[-1]["error"])
    summary = json.loads((Path(model.run_dir) / "summary.json").read_text())
    assert (summary["num_agents"], summary["seed"]) == (2, 5)
    assert summary["samples"] == 20 * 320


def test_a_pipeline_that_was_saved_transforms_as_before(
    pipeline: Pipeline, fitted: PipelineModel, animals: DataFrame, tmp_path: Path
) -> None:
    fitted.save(str(tmp_path / "fitted"))
    (stage,) = (tmp_path / "fitted" / "stages").glob("1_*")
    assert {one.name for one in stage.iterdir() if not one.name.startswith(".")} == {"metadata", "model.safetensors"}
    again = PipelineModel.load(str(tmp_path / "fitted"))
    assert numbers(again.transform(animals)) == numbers(fitted.transform(animals))
    assert again.stages[-1].extractParamMap().keys() == fitted.stages[-1].extractParamMap().keys()
    assert again.uid == fitted.uid
    pipeline.save(str(tmp_path / "plan"))
    read = Pipeline.load(str(tmp_path / "plan")).getStages()[-1]
    ours = pipeline.getStages()[-1]
    assert {one.name: value for one, value in read.extractParamMap().items()} == {
        one.name: value for one, value in ours.extractParamMap().items()
    }


def test_a_tuner_fits_each_fold_on_shards_that_are_written_once(animals: DataFrame, tmp_path: Path) -> None:
    df = animals.filter("NOT aside").selectExpr("array(x, y) AS features", "IF(animal = 'wolf', 1, 0) AS label")
    one = estimator(labelCol="label", numAgents=1, epochs=20, store=str(tmp_path / "store"))
    grid = ParamGridBuilder().addGrid(one.learningRate, [1e-9, 0.05]).addGrid(one.modelArgs, [{"hidden": 4}]).build()
    judge = MulticlassClassificationEvaluator(metricName="accuracy")
    tuned = CrossValidator(estimator=one, estimatorParamMaps=grid, evaluator=judge, numFolds=2, seed=1).fit(df)
    assert tuned.avgMetrics[1] > max(0.9, tuned.avgMetrics[0])
    assert tuned.bestModel.module[0].out_features == 4
    assert len(list((tmp_path / "store").glob("data-*"))) == 3, "of two folds, and of all rows"
    tuned.save(str(tmp_path / "tuned"))
    again = CrossValidatorModel.load(str(tmp_path / "tuned"))
    assert again.transform(df).select("prediction").collect() == tuned.transform(df).select("prediction").collect()
    assert [found[again.getEstimator().modelArgs] for found in again.getEstimatorParamMaps()] == [{"hidden": 4}] * 2


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Red and blue ones, and one that is none."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("pictures")
    for number in range(48):
        pixels = rng.integers(0, 60, (24, 32, 3), dtype=np.uint8)
        pixels[..., 0 if number % 2 else 2] += 180
        name = f"{'red' if number % 2 else 'blue'}-{number}.jpg"
        (folder / name).write_bytes(simplejpeg.encode_jpeg(pixels, 95, "RGB", "444"))
    (folder / "red-none.jpg").write_bytes(b"no picture")
    return folder


def test_images_with_labels_of_text_until_a_goal_is_reached(spark, pictures: Path) -> None:
    colour = "regexp_extract({}, '([a-z]+)-[^/]*$', 1) AS colour"
    files = (
        spark.read.format("binaryFile")
        .load(f"{pictures}/*.jpg")
        .selectExpr("content", "path", colour.format("path"))
        .coalesce(2)
    )
    goals = [mpca.Target("accuracy", at_least=0.99), mpca.MaxTime("60s")]
    sizes = {"cropSize": 16, "shorterEdge": 20, "batchSize": 8, "numAgents": 1}
    one = estimator(model=nets.image_net, featuresCol="content", labelCol="colour", learningRate=0.05, **sizes)
    for param in (one.epochs, one.method):
        one.clear(param)
    model = one.setObjectives(goals).setValidation(0.3).setEvaluateEvery("0.5s").fit(files)
    assert json.loads((Path(model.run_dir) / "summary.json").read_text())["status"] == "reached"
    out = {row.path.rpartition("/")[2]: row for row in model.transform(files).collect()}
    assert out.pop("red-none.jpg").prediction is None
    assert all(row.prediction == row.colour for row in out.values())
    paths = spark.createDataFrame([Row(content=str(one)) for one in sorted(pictures.glob("*-1*.jpg"))]).coalesce(2)
    told = [(row.prediction, row.content) for row in model.transform(paths).collect()]
    assert all(f"/{prediction}-" in path for prediction, path in told)
    pixels = (
        spark.read.format("image").load(f"{pictures}/*-2*.jpg").selectExpr("image", colour.format("image.origin")).coalesce(2)
    )
    found = model.setFeaturesCol("image").transform(pixels).select("prediction", "colour").collect()
    assert len(found) == 11
    assert all(row.prediction == row.colour for row in found)
    with pytest.raises(ConfigError, match="column 'image' is of type double, on which mpca cannot train"):
        model.transform(pixels.selectExpr("1.5D AS image"))


# ---- what is refused -----------------------------------------------------------------------------------------------------

THREE = "IF(x > 4, 'cat', animal) AS animal"


@pytest.mark.parametrize(
    ("columns", "params", "says"),
    [
        (["array(x, y) AS feature", "animal"], {}, r"^the DataFrame has no column 'features': did you mean"),
        (
            ["array(IF(x > 3, null, x), y) AS features", "animal"],
            {},
            r"^column 'features' holds null, NaN or infinite numbers: \d+ rows, first partition \d+, row \d+; fill them",
        ),
        (
            ["IF(x > 3, null, array(x, y)) AS features", "animal"],
            {},
            r"^column 'features' is null: \d+ rows, first partition \d+, row \d+; leave such rows out: df.na.drop\(subset=",
        ),
        (
            ["array(x, y) AS features", "animal", "x"],
            {"validation": "x"},
            "^column 'x' is of type double: true, or 1, puts a row aside to evaluate on; cast it to boolean$",
        ),
        (
            ["array(x, y) AS features", THREE],
            {},
            r"^model = 'tests.ml.nets:two': has 2 outputs, and column 'animal' has 3 classes \(bee, cat, wolf\): make",
        ),
        (
            ["array(x, y) AS features", "animal"],
            {"model": nets.Line, "modelArgs": {"inputs": 3}},
            r"^model = 'tests.ml.nets:Line': cannot take a batch of float32 of shape \(2,\) \(column .features.\): .*mat1",
        ),
        (
            ["array(x, y) AS features", "IF(x > 3, null, animal) AS animal"],
            {},
            r"^column 'animal' is null: \d+ rows, first partition \d+, row \d+; leave such rows out: df.na.drop\(subset=",
        ),
    ],
    ids=["column", "null-inside", "null", "validation", "classes", "shape", "null-label"],
)
def test_rows_on_which_the_model_cannot_be_trained_are_refused(
    animals: DataFrame, columns: list[str], params: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        estimator(**params).fit(animals.selectExpr(*columns))


def test_fewer_rows_than_agents_are_refused(animals: DataFrame) -> None:
    one = animals.selectExpr("array(x, y) AS features", "animal").limit(1)
    with pytest.raises(ConfigError, match=r"^numAgents = 2: fewer rows than agents: there are 1 to train on; give more"):
        estimator().fit(one)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["x AS z"], "^the DataFrame has no column 'features': known: z$"),
        (["x AS features"], "^column 'features' is of type double, on which mpca cannot train; give a vector"),
        (
            ["CAST(animal AS binary) AS features"],
            r"^column 'features' is of type binary, and the model was fitted on float32 of",
        ),
        (
            ["array(x) AS features", "y AS scores"],
            r"^the DataFrame has a column 'scores' already: set rawPredictionCol to another",
        ),
    ],
    ids=["column", "type", "images", "taken"],
)
def test_columns_that_do_not_fit_are_refused_before_there_is_a_job(
    model: MpcaModel, animals: DataFrame, columns: list[str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        model.transform(animals.selectExpr(*columns))


def test_a_row_that_does_not_fit_ends_the_job_with_a_sentence(model: MpcaModel, animals: DataFrame) -> None:
    says = r"ConfigError: column 'features' is null: partition \d+, row \d+; leave such rows out: df.na.drop"
    with pytest.raises(PySparkException, match=says):
        model.transform(animals.selectExpr("IF(x > 3, null, array(x, y)) AS features").coalesce(1)).collect()


def test_labels_that_only_fit_or_only_transform_has(model: MpcaModel, points: DataFrame) -> None:
    wolves = model.transform(points.filter("animal = 'wolf'")).select("truth", "chance").collect()
    assert {(row.truth, len(row.chance)) for row in wolves} == {(1.0, 2)}, "the numbers that fit gave"
    cats = points.limit(5).withColumn("animal", points.animal.substr(1, 1))
    says = r"column 'animal' has the label [bw], which fit did not see \(it saw bee, wolf\): leave such rows out"
    with pytest.raises((PySparkException, Py4JJavaError), match=says):
        model.transform(cats).select("truth").collect()
    nobody = points.limit(5).selectExpr("features", "CAST(null AS STRING) AS animal")
    with pytest.raises((PySparkException, Py4JJavaError), match="column 'animal' has the label null, which fit did not see"):
        model.transform(nobody).select("truth").collect()
    assert model.copy({model.labelIndexCol: ""}).transform(cats).count() == 5, "predictions need no label"
    assert "truth" not in model.transform(points.drop("animal")).columns


@pytest.fixture
def saved(model: MpcaModel, tmp_path: Path) -> str:
    path = str(tmp_path / "model")
    model.save(path)
    return path


def edited(path: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the metadata of a saved stage; Hadoop's own checksums go."""
    folder = Path(path) / "metadata"
    (part,) = folder.glob("part-*")
    told = json.loads(part.read_text())
    change(told)
    part.write_text(json.dumps(told) + "\n")
    (folder / f".{part.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda told: told["mpca"].update(format=2, version="9.1"),
            "saved by mpca 9.1, has format 2, this mpca reads 1: use a newer",
        ),
        (lambda told: told["paramMap"].update(beamWidth=3), "not of this version, .*: MpcaModel has no Param 'beamWidth': "),
        (lambda told: told["paramMap"].update(model="tests.ml.nets:six"), "not of this version, .*tests.ml.nets has no 'six'"),
        (
            lambda told: told["paramMap"].update(modelArgs={"hidden": 9}),
            r"not of this version, .* makes another module than was trained: it has '0",
        ),
        (
            lambda told: told.update({"class": "pyspark.ml.PipelineModel"}),
            "holds a pyspark.ml.PipelineModel, and not a mpca.ml.Mpca",
        ),
        (lambda told: told.pop("mpca"), "^damaged: .*/metadata: 'mpca'; save the stage again"),
        (lambda told: told.pop("uid"), "^damaged: .*/metadata: KeyError: 'uid'; save the stage again"),
    ],
    ids=["format", "param", "code", "arguments", "class", "facts", "uid"],
)
def test_a_saved_model_of_another_version_is_refused(saved: str, change: Callable[[dict[str, Any]], Any], says: str) -> None:
    edited(saved, change)
    with pytest.raises(ConfigError, match=says):
        MpcaModel.load(saved)


def test_a_damaged_model_is_refused(saved: str, model: MpcaModel, points: DataFrame) -> None:
    file = Path(saved) / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ConfigError, match=r"^damaged: .*/model.safetensors: bytes=\d+, sha256=\w+; saved were \d+, \w+; save"):
        MpcaModel.load(saved)
    file.unlink()
    with pytest.raises(ConfigError, match=r"^damaged: .*/model.safetensors: it does not exist; save"):
        MpcaModel.load(saved)
    with pytest.raises(ConfigError, match="exists already: save elsewhere, or by write"):
        model.save(saved)
    model.write().overwrite().save(saved)
    assert numbers(MpcaModel.load(saved).transform(points)) == numbers(model.transform(points))
    edited(saved, lambda told: None)
    (part,) = (Path(saved) / "metadata").glob("part-*")
    part.write_text("{")
    with pytest.raises(ConfigError, match=r"^damaged: .*/metadata: .*; save the stage again"):
        MpcaModel.load(saved)
    shutil.rmtree(saved)
    with pytest.raises(
        ConfigError, match=r"^no saved MpcaModel: .*/metadata does not exist; give the path that save was given"
    ):
        MpcaModel.load(saved)


def test_code_without_an_import_path_is_pickled_on_request_alone(model: MpcaModel, points: DataFrame, tmp_path: Path) -> None:
    one, path = model.copy({model.model: lambda hidden=8: nets.two(hidden)}), str(tmp_path / "model")
    with pytest.raises(
        ConfigError, match=r"^model = <function .* has no import path, by which load would find it: define it in a"
    ):
        one.save(path)
    one.setSavePickle(True).save(path)
    with pytest.raises(
        ConfigError, match=r"/code.pkl is pickled code, which runs when it is loaded: if you trust who wrote it"
    ):
        MpcaModel.load(path)
    with trust_pickles():
        again = MpcaModel.load(path)
    assert numbers(again.transform(points)) == numbers(model.transform(points))
