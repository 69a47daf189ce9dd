"""What `MpcaEstimator` ships: `train` runs in every agent, `Evaluation` in the evaluator's process. Neither imports Spark.

Neither knows anything that a user's own train function could not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

import mpca
from mpca import data
from mpca.data.evaluation_loader import EvaluationLoader
from mpca.ml.code import Recipe
from mpca.ml.predict import scores

__all__ = ["Evaluation", "train"]


def train(recipe: Recipe, batch_size: int, epochs: int | None) -> None:
    """Train for so many epochs, or until an objective of the run is reached."""
    device = mpca.device()
    model = recipe.module().to(device)
    if isinstance(recipe.loss, torch.nn.Module):
        recipe.loss.to(device)  # it may have weights of the classes
    optimizer = recipe.optimizer(model.parameters(), **recipe.optimizer_args)
    mpca.attach(model, optimizer)
    updates = 0
    for features, labels in mpca.dataset("train", batch_size, epochs=epochs):
        if len(labels) == 1 < batch_size and updates:
            continue  # the rest after the last epoch: BatchNorm would refuse a batch of one row, and so end the run
        optimizer.zero_grad()
        loss = recipe.loss_of(model(features.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        updates += 1
        mpca.log(loss=loss.detach())


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Error, accuracy and loss of a joint model on the split "validation"; what it opens stays open for the next time."""

    recipe: Recipe
    data: dict[str, Any]  # arguments of `mpca.data.load`
    batch_size: int
    _open: list[tuple[torch.nn.Module, EvaluationLoader]] = field(default_factory=list)

    def __call__(self, state: dict[str, Any]) -> dict[str, float]:
        if not self._open:
            split: Any = data.load(split="validation", **self.data)
            self._open.append((self.recipe.module(), EvaluationLoader(split, self.batch_size)))
        model, loader = self._open[0]
        model.load_state_dict(state)
        model.eval()
        rows, wrong, loss = 0, 0, 0.0
        with torch.inference_mode():
            for features, labels in loader:
                outputs = model(features)
                rows += len(labels)
                wrong += int((scores(outputs).argmax(1) != labels).sum())
                loss += float(self.recipe.loss_of(outputs, labels)) * len(labels)
        return {"error": wrong / rows, "accuracy": 1 - wrong / rows, "loss": loss / rows}
