"""Weights & Biases, by its own client: a run of the project that `track.project` names.

The client's own variables say where and as whom: WANDB_BASE_URL, WANDB_ENTITY, WANDB_API_KEY. WANDB_MODE=offline writes files
into ``wandb/`` of the run's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from mpca.extras import extras
from mpca.track.port import Begin
from mpca.track.scalars import Scalar, axis

__all__ = ["WandB"]


class WandB:
    """One run."""

    def __init__(self) -> None:
        with extras():
            import wandb
        self._wandb: Any = wandb

    def begin(self, run: Begin) -> tuple[str, str]:
        quiet = self._wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        self._run = self._wandb.init(
            project=run.project,
            name=run.name,
            id=run.run or None,
            resume="allow" if run.run else None,
            dir=run.folder,
            config={**run.parameters, "mpca.folder": run.where, "mpca.attempt": run.attempt},
            settings=quiet,
            allow_val_change=True,
        )
        for one in ("cycle", "steps", "seconds"):
            self._run.define_metric(one, hidden=True)
        self._run.define_metric("agent*", step_metric="steps")
        for group in ("bytes", "evaluation", "run"):
            self._run.define_metric(f"{group}/*", step_metric="cycle")
        return self._run.id, "" if self._run.offline else self._run.url or ""

    def log(self, scalars: Sequence[Scalar]) -> None:
        for (what, step, t), some in groupby(scalars, key=lambda one: (axis(one.name), one.step, one.t)):
            self._run.log({what: step, "seconds": t, **{one.name: one.value for one in some}})

    def end(self, status: str, reason: str, files: Sequence[str]) -> None:
        for path in map(Path, files):
            kind = "model" if path.suffix == ".safetensors" else "run"
            artifact = self._wandb.Artifact(f"{path.stem}-{self._run.id}", kind)
            artifact.add_file(str(path))
            self._run.log_artifact(artifact)
        self._run.summary.update({"status": status, "reason": reason})
        self._run.finish(exit_code=int(status == "failed"))
