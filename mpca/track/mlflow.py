"""MLflow, by its own client: a run of the experiment that `track.project` names, on the server of `track.mlflow_uri`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpca.extras import extras
from mpca.track.port import Begin
from mpca.track.scalars import Scalar

__all__ = ["MLflow", "fitting"]

_AT_ONCE = 100  # parameters of one call: MLflow's limit
_LONGEST_NAME = 250  # characters of a name
_LONGEST = 500  # characters of a parameter that every store takes
_STATUSES = {"failed": "FAILED", "interrupted": "KILLED"}


def fitting(name: str) -> str:
    """The name as MLflow takes it.

    Example:
        >>> fitting("agents//top-5 (%)")
        'agents/top-5 ___'
    """
    parts = (re.sub(r"[^\w. -]", "_", part, flags=re.ASCII) for part in name.split("/"))
    return "/".join(part for part in parts if part not in ("", ".", ".."))


class MLflow:
    """One run."""

    def __init__(self) -> None:
        with extras():
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
            from mlflow.exceptions import MlflowException
        self._connect, self._metric, self._parameter, self._error = MlflowClient, Metric, Param, MlflowException
        self._id = ""

    def begin(self, run: Begin) -> tuple[str, str]:
        self._client = self._connect(tracking_uri=run.uri or None)
        self._wall, self._id = run.wall, self._id or run.run
        if self._id and self._id == run.run and not self._there():  # the server is another one now, or the run was removed
            self._id = ""
        if not self._id:
            held = self._client.get_experiment_by_name(run.project)
            experiment = held.experiment_id if held is not None else self._client.create_experiment(run.project)
            self._id = self._client.create_run(experiment, run_name=run.name, tags={"mpca.folder": run.where}).info.run_id
        self._client.update_run(self._id, status="RUNNING")
        if self._id != run.run:  # else an earlier attempt gave them; another value would be refused
            values = {fitting(name)[:_LONGEST_NAME]: value[:_LONGEST] for name, value in run.parameters.items() if value}
            given = [self._parameter(name, value) for name, value in values.items()]
            for start in range(0, len(given), _AT_ONCE):
                self._client.log_batch(self._id, params=given[start : start + _AT_ONCE])
        self._client.set_tag(self._id, "mpca.attempt", str(run.attempt))
        return self._id, self._url(run)

    def log(self, scalars: Sequence[Scalar]) -> None:
        metrics = [self._metric(fitting(one.name), one.value, round((self._wall + one.t) * 1000), one.step) for one in scalars]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, status: str, reason: str, files: Sequence[str]) -> None:
        self._client.set_tag(self._id, "mpca.status", status)
        self._client.set_tag(self._id, "mpca.reason", reason[:_LONGEST])
        # before the files: a large model, or a store that the client has no package for, would leave the run RUNNING for ever
        self._client.set_terminated(self._id, _STATUSES.get(status, "FINISHED"))
        for path in files:
            self._client.log_artifact(self._id, path)

    def _there(self) -> bool:
        try:
            return bool(self._client.get_run(self._id).info.lifecycle_stage == "active")
        except self._error as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False

    def _url(self, run: Begin) -> str:
        uri = self._client.tracking_uri
        if not uri.startswith("http"):
            return ""
        return f"{uri.rstrip('/')}/#/experiments/{self._client.get_run(self._id).info.experiment_id}/runs/{self._id}"
