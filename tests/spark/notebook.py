"""A notebook in one process: its own session does not fit, a run has executors beside it, and it goes on; stopped, as well."""

from __future__ import annotations

import sys

import pytest

import mpca
from mpca.errors import EnvironmentRefused


def train() -> None:
    import torch

    import mpca

    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    for x, y in mpca.shard(data, batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def main(folder: str) -> None:
    from pyspark.sql import SparkSession, functions

    mine = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = mine.config("spark.speculation", "true").getOrCreate()
    numbers, gateway = spark.range(10), spark.sparkContext._gateway
    with pytest.raises(EnvironmentRefused, match=r'\.config\("spark.master", "local-cluster\[2,2,1024]"\)'):
        mpca.Distributor(num_agents=2, spark=spark, run_dir=f"{folder}/refused").run(train)

    result = mpca.Distributor(num_agents=2, objectives=[mpca.MaxCycles(4)], run_dir=f"{folder}/run").run(train)
    assert result.status == "max_cycles"
    assert numbers.filter(functions.col("id") > 3).count() == 6, "it has lived on"
    assert SparkSession.getActiveSession() is spark
    assert mine.getOrCreate() is spark

    spark.stop()
    with mpca.session(executors=1) as other:
        assert other.range(11).count() == 11
    again = mine.getOrCreate()
    assert again.range(12).count() == 12
    assert again.sparkContext._gateway is gateway, "in the JVM of the first one"


if __name__ == "__main__":
    main(sys.argv[1])
