"""A program for ``spark-submit --proxy-user``: ``proxied.py ROWS RUN``, both on HDFS. First what is refused, then a run."""

import sys
import time

from pyspark.sql import SparkSession

import mpca
from mpca.storage import Location
from mpca.storage.locations import webhdfs_of


def train() -> None:
    import torch

    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    mpca.attach(model, optimizer)
    while not mpca.stopping():
        optimizer.zero_grad()
        model(torch.randn(32, 4)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)  # the cores are for whoever still starts


if __name__ == "__main__":
    rows, run = sys.argv[1:]
    web = f"{webhdfs_of(Location.parse(run)).parent.text}/web"
    short = {"backup.interval": "2s", "objectives.max_time": "10s"}
    frame = SparkSession.builder.getOrCreate().createDataFrame([([float(i)], i % 2) for i in range(40)], ["features", "label"])
    try:
        mpca.ingest_dataframe(frame, rows, withheld=2)
    except mpca.MpcaError as error:
        print("refused:", error)
    try:
        mpca.Distributor(run_dir=web).run(train)
    except mpca.MpcaError as error:
        print("refused:", error)
    print("the run:", mpca.Distributor(run_dir=run, conf=short).run(train).status)
