"""A function in one agent on an executor of this machine, where HDFS is read as it is in a run. Not for what it measures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpca
from mpca.cli.bench.run.waiting import STEP_S
from mpca.errors import MpcaError

__all__ = ["in_agent"]

#: One agent that trains alone. Its run ends well once a cycle was committed, and that comes after the function.
_ALONE = (
    "cluster.agents=1",
    "method.name=single",
    "cluster.executor_memory=512MiB",
    "cluster.start_timeout=1h",
    "objectives.max_cycles=1",
    "run.name=bench",
)


def in_agent(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns, which is data (`Distributor.run`); what it prints goes to stderr.

    Raises:
        MpcaError: the run did not end well.
    """
    from mpca.api.launch import Job, launch, resolve
    from mpca.api.shipping import ship

    with tempfile.TemporaryDirectory(prefix="mpca-bench-") as folder:
        payload = ship(_attached, (function, *arguments), {})
        ended = launch(Job(resolve(None, _ALONE), payload, run_dir=Path(folder) / "run"))
    if ended.exit_code != 0:
        raise MpcaError(f"bench run failed: {ended.reason}")
    return ended.returns[0]


def _attached(function: Callable[..., Any], *arguments: Any) -> Any:
    from mpca.models.bench import Weights
    from mpca.models.training import create_optimizer

    model = Weights(4)
    optimizer = create_optimizer(model, "sgd", lr=0.0)
    mpca.attach(model, optimizer)  # it is there; before its first step nothing is asked of it
    result = function(*arguments)
    while not mpca.stopping():
        time.sleep(STEP_S)
        optimizer.step()
    return result
