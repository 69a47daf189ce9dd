"""A Pipeline of `pyspark.ml` with mpca as its last stage: fitted, saved, loaded, and used on a DataFrame. Tiny data.

    pip install 'mpca[ml]'
    python examples/pipeline.py

On a cluster the session is yours, and `store` of the estimator is a folder that driver and executors share: docs/pipelines.md.
"""

import tempfile

import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import StandardScaler, VectorAssembler

import mpca
from mpca.ml import MpcaEstimator


def flowers(spark):
    """Three species whose petals differ, as text; every fifth flower is put aside to evaluate on."""
    species = "element_at(array('iris', 'lily', 'rose'), CAST(id % 3 AS INT) + 1) AS species"
    measures = "randn(1) + id % 3 * 4 AS petal_cm", "randn(2) - id % 3 * 2 AS sepal_cm"
    return spark.range(600).selectExpr(species, *measures, "id % 5 = 0 AS aside")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, mpca.session(executors=2) as spark:
        df = flowers(spark).cache()
        pipeline = Pipeline(
            stages=[
                VectorAssembler(inputCols=["petal_cm", "sepal_cm"], outputCol="measures"),
                StandardScaler(inputCol="measures", outputCol="features", withMean=True),
                MpcaEstimator(
                    model=torch.nn.Linear,  # or a function of a module of yours that makes a net
                    modelArgs={"in_features": 2, "out_features": 3},
                    learningRate=0.05,
                    labelCol="species",
                    probabilityCol="probability",
                    validation="aside",
                    evaluateEvery="0.5s",
                    objectives=[mpca.Target("accuracy", at_least=0.95), mpca.MaxTime("30s")],
                    numAgents=2,
                ),
            ]
        )
        pipeline.fit(df).save(f"{folder}/flowers")

        model = PipelineModel.load(f"{folder}/flowers")
        out = model.transform(df).cache()
        out.select("petal_cm", "sepal_cm", "species", "prediction", "probability").show(5, truncate=False)
        right = out.filter("prediction = species").count() / out.count()
        print(f"right: {right:.1%}")
