"""`Distributor(...).run(train)`: a user's own train function, or script, on many agents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpca.api.launch import Ended, Job, launch, resolve
from mpca.api.shipping import ship
from mpca.config.spark import JUDGED
from mpca.driver.callbacks import Callback, check_callbacks
from mpca.driver.objectives import DumpModel, EarlyStopping, Evaluate, Goals, KeepBest, MaxCycles, MaxTime, Objective, Target
from mpca.errors import BadRecords, RunFailed
from mpca.methods import Method
from mpca.spark.yarn.submitted import settings_of, submitted_session

__all__ = ["Distributor", "Result"]

_SIGNALLED = 128
_SIGINT = 130


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    status: str
    """"reached", "early_stopping", "max_time" or "max_cycles"."""
    reason: str
    run_dir: Path | str
    """A URL when it is on HDFS."""
    summary: dict[str, Any]
    """As in summary.json."""
    history: list[dict[str, Any]] = field(repr=False)
    """What was measured, oldest first, each with `kind` and `t`. "evaluation", of the joint model: cycle, seconds, error, loss,
    and the other numbers as metrics; "metrics", what agents gave to `mpca.log`: metrics, the means over agents by name. Of this
    attempt: of a run that was resumed, `records.jsonl` has all."""
    returns: dict[int, Any] = field(repr=False)
    """What the train function returned, by agent, tensors in host memory; the functions in `summary["cut_off"]` did not
    return."""
    model_state: dict[str, Any] | None = field(repr=False)
    """The joint model as tensors under the model's own names, ready for `load_state_dict`."""


class Distributor:
    """Trains one model on many agents, on executors of this machine or of a Spark session.

    Args:
        num_agents: how many agents; each trains on its own share of the data.
        use_gpu: whether each agent trains on a GPU.
        method: how the agents train together, such as ``mpca.DiLoCo(period=50)``; None: as `conf` says, by default
            ``mpca.NesterovMPCA()``.
        objectives: what to reach, and what to do beside training: Target, MaxTime, MaxCycles, Evaluate,
            EarlyStopping, KeepBest, DumpModel.
        min_agents: the run pauses while fewer agents are alive.
        run_dir: the run's folder itself; ``runs/<name>-<time>`` if not given. A folder that exists is refused.
        name: of the run, in the folder's name and in the Spark UI.
        seed: of the initial parameters and, with an agent's number, of that agent's data.
        conf: a TOML file, or ``{"section.key": value}``, for everything else; see the README.
        resume: "auto", or the path of a backup to go on from.
        spark: a SparkSession; None takes the one of the spark-submit that started this program, or starts executors on this
            machine.
        callbacks: objects that hear of cycles, evaluations, lost agents and the end; see `mpca.Callback`.

    Example:
        >>> Distributor(num_agents=4, objectives=[MaxTime("60s")]).conf.objectives.max_time
        60.0
    """

    def __init__(
        self,
        num_agents: int | None = None,
        use_gpu: bool = False,
        method: Method | None = None,
        objectives: Iterable[Objective] = (),
        min_agents: int | None = None,
        run_dir: str | Path | None = None,
        name: str | None = None,
        seed: int | None = None,
        conf: str | Path | Mapping[str, Any] | None = None,
        resume: str | None = None,
        spark: Any = None,
        callbacks: Iterable[Callback] = (),
    ) -> None:
        goals = list(objectives)
        Goals.of(goals)  # wrong objectives are refused here, where the caller wrote them
        values: dict[str, Any] = dict(conf) if isinstance(conf, Mapping) else {}
        arguments = {"cluster.agents": num_agents, "cluster.min_agents": min_agents, "run.name": name, "run.seed": seed}
        values.update({key: value for key, value in arguments.items() if value is not None})
        if use_gpu:
            values["cluster.device"] = "cuda"
        if method is not None:
            values.update({f"method.{key}": value for key, value in method.to_dict().items()})
        for one in goals:
            values.update(_settings(one))
        others = [str(one) for one in goals if isinstance(one, Target) and one.metric != "error"]
        values.update({"objectives.targets": ", ".join(others)} if others else {})
        path = None if conf is None or isinstance(conf, Mapping) else Path(conf)
        spark = spark if spark is not None else submitted_session()
        session = None if spark is None else {key: one for key, one in settings_of(spark).items() if key not in JUDGED}
        self.conf = resolve(path, [f"{key}={_text(value)}" for key, value in values.items()], session)
        self._evaluate = next((one for one in goals if isinstance(one, Evaluate)), None)
        self._spark, self._resume = spark, resume
        self._run_dir = run_dir
        self._callbacks = check_callbacks(callbacks)

    def run(self, train: Callable[..., Any] | str | Path, *args: Any, **kwargs: Any) -> Result:
        """Run ``train(*args, **kwargs)`` in every agent until an objective is reached or all functions have returned.

        Args:
            train: a function, which should import what it needs inside; or the path of a script. It may return data: None,
                bools, numbers (numpy's too), texts, bytes, lists, tuples and dicts of these, numpy arrays of numbers and torch
                tensors, 64 MiB in all. Of what else it returns, the place and the type are named, and the run has failed; its
                model and records are saved.

        Raises:
            ConfigError, EnvironmentRefused: refused before an agent was started.
            BadRecords: more records were unreadable than data.max_bad_fraction allows; names the first ones.
            RunFailed: the run failed, or it cut train functions off while they worked behind their loop. The text begins with
                the root
                cause; an agent's traceback follows.
            KeyboardInterrupt: Ctrl-C; the joint model is in the run folder.
        """
        from mpca.report import ProgressLine

        job = Job(
            self.conf, ship(train, args, kwargs), self._evaluate, self._run_dir, self._resume, self._spark, self._callbacks
        )
        with ProgressLine(sys.stdout) as progress:
            ended = launch(job, on_status=progress.update, on_output=progress.output, on_stage=progress.say)
        return _result(ended)


def _result(ended: Ended) -> Result:
    if ended.exit_code == _SIGINT:
        raise KeyboardInterrupt(f"the joint model is in {ended.run_dir}")
    if ended.exit_code > _SIGNALLED:
        raise SystemExit(ended.exit_code)
    if ended.exit_code:
        error = BadRecords if ended.exit_code == BadRecords.exit_code else RunFailed
        raise error(f"{ended.reason}\nrun folder: {ended.run_dir}")
    return Result(
        status=ended.summary["status"],
        reason=ended.reason,
        run_dir=ended.run_dir,
        summary=ended.summary,
        history=ended.history,
        returns=ended.returns,
        model_state=_tensors(ended),
    )


def _tensors(ended: Ended) -> dict[str, Any] | None:
    if not ended.model_state:
        return None
    from safetensors.torch import load, load_file

    if isinstance(ended.run_dir, str):  # on HDFS; there is no need to fetch the model from there
        from safetensors.numpy import save

        state: dict[str, Any] = load(save(ended.model_state))
    else:
        state = load_file(ended.run_dir / "model.safetensors")
    return state


def _text(value: Any) -> str:
    """A value as text for `--set`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settings(one: Objective) -> dict[str, str]:
    """The configuration's keys that an objective stands for."""
    if isinstance(one, Target):
        return {"objectives.target_error": repr(one.bound)} if one.metric == "error" else {}  # the others are one key together
    if isinstance(one, EarlyStopping):
        return {"objectives.early_stopping": str(one), "objectives.patience": str(one.patience)}
    if isinstance(one, KeepBest):
        return {"objectives.keep_best": str(one)}
    if isinstance(one, MaxTime):
        return {"objectives.max_time": f"{one.seconds:.6f}s"}
    if isinstance(one, MaxCycles):
        return {"objectives.max_cycles": str(one.cycles)}
    if isinstance(one, Evaluate):
        return {"objectives.evaluate_every": f"{one.every:.6f}s"}
    assert isinstance(one, DumpModel)
    return {"backup.path": one.path or "", "backup.interval": f"{one.interval:.6f}s", "backup.keep": str(one.keep)}
