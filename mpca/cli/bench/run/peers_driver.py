"""The driver of `bench peers`, on a node of its own: ``python -m ... PLACE``, where PLACE is JSON with the fields of `Place`.

It prints ``{"ready": true}`` when every executor is there. Then it reads a `Trial` a line from stdin, and answers each with a
line: monotonic seconds of begin and end, updates of all workers together, and [seconds, error] from the begin on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpca.cli.bench.run.peers_train import PEERS, Trial, ddp, evaluate, mpca_agent
from mpca.cli.bench.run.place import Place, cluster_jvms, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main"]

EXECUTOR_BYTES = 768 << 20


def main(place: Place) -> None:
    # TorchDistributor and the progress line print on stdout, which here is for answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    conf = {"spark.executorEnv.GLOO_SOCKET_IFNAME": "eth0" if place.master else "lo", **cluster_jvms(place.work_dir)}
    with open_session(place, EXECUTOR_BYTES, conf) as spark:
        print(json.dumps({"ready": True}), file=answers)
        for number, line in enumerate(sys.stdin):
            trial = Trial(**json.loads(line))
            if trial.peer in PEERS:
                said = _torch_distributor(place, trial)
            else:
                said = _mpca(spark, place, trial, Path(place.work_dir) / f"run-{number}")
            print(json.dumps(said), file=answers)


def _torch_distributor(place: Place, trial: Trial) -> dict[str, Any]:
    from pyspark.ml.torch.distributor import TorchDistributor

    said = TorchDistributor(num_processes=place.agents, local_mode=False, use_gpu=False).run(ddp, trial)
    assert said is not None, "it returns what rank 0 returned"
    return {**said, "updates": place.agents * said["updates"]}


def _mpca(spark: SparkSession, place: Place, trial: Trial, run_dir: Path) -> dict[str, Any]:
    import mpca

    keys = {"method.name": trial.peer} | ({"method.tau": trial.averaged_every} if trial.peer == "sync" else {})
    result = mpca.Distributor(
        num_agents=place.agents,
        objectives=[
            mpca.MaxTime(trial.seconds),
            mpca.Evaluate(evaluate, every=trial.every_s),
            mpca.Target("error", at_most=trial.target),
        ],
        run_dir=run_dir,
        seed=trial.seed,
        conf=keys if trial.peer != "default" else {},
        spark=spark,
    ).run(mpca_agent, trial)
    records = [json.loads(line) for line in (run_dir / "records.jsonl").read_text().splitlines()]
    zero = next(one["t"] for one in records if one["kind"] == "begin")
    agents = result.returns.values()
    return {
        "began": min(one["began"] for one in agents),
        "ended": max(one["ended"] for one in agents),
        "updates": sum(one["updates"] for one in agents),
        "errors": [[max(0.0, one["t"] - zero), one["error"]] for one in result.history if one["kind"] == "evaluation"],
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    main(Place(**json.loads(sys.argv[1])))
