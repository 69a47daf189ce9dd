"""A run on workers that have GPUs, in a process and a session of its own: ``python -m tests.spark.beside_gpus FOLDER CONF``.

CONF is a JSON object of Spark settings. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import mpca
from mpca.spark.run.session import session


def train() -> str:
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    while not mpca.stopping():
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return os.environ["CUDA_VISIBLE_DEVICES"]


def main(folder: Path, conf: str) -> None:
    (folder / "session").mkdir()
    more = json.loads(conf)
    with session(folder / "session", executors=2, agents_per_executor=2, executor_memory=512 << 20, conf=more) as spark:
        result = mpca.Distributor(
            num_agents=4,
            objectives=[mpca.MaxCycles(6)],
            conf={"cluster.agents_per_executor": 2},
            run_dir=folder / "run",
            spark=spark,
        ).run(train)
    print(json.dumps({"cycles": result.summary["cycles"], "devices": sorted(result.returns.values())}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
