"""One attempt of a twin, as a user's script: ``python -m tests.spark.twins.train RUN_DIR END SEED MAX_TIME auto|-``.

Agents train until the file END is there. They work in short bursts, so that both twins have the cores that they want.
"""

from __future__ import annotations

import sys
from typing import Any

import mpca

AGENTS = 4


def network() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def digits(first: int, last: int) -> Any:
    import torch
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images, labels = images[first:last], labels[first:last]
    return torch.utils.data.TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))


#: Whose writers are not those of the others, so that there is an error to be compared.
LEARNT, TOLD = (0, 1200), (1200, 1797)


def train(end: str, seed: int) -> int:
    import time
    from pathlib import Path

    import torch

    torch.manual_seed(seed)
    model = network()
    # Slowly: at the end the loss must still fall, or lost work would not show. Momentum is what a new agent does not have.
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-4, momentum=0.9)
    mpca.attach(model, optimizer)
    update = 0
    for update, (x, y) in enumerate(mpca.shard(digits(*LEARNT), batch_size=32), 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        mpca.log(loss=loss)
        if update % 5 == 0:
            time.sleep(0.25)
            if Path(end).exists():
                break
    return update


def judge(state: Any) -> tuple[float, float]:
    """Error and loss of a model on what was not learnt."""
    import torch

    model = network()
    model.load_state_dict(state)
    x, y = digits(*TOLD).tensors
    with torch.no_grad():
        said = model(x)
    return float((said.argmax(1) != y).float().mean()), float(torch.nn.functional.cross_entropy(said, y))


if __name__ == "__main__":
    run_dir, end, seed, max_time, resume = sys.argv[1:]
    settings = {"backup.interval": "10s", "cluster.cycle_deadline": "10s", "objectives.max_time": max_time}
    distributor = mpca.Distributor(
        AGENTS, run_dir=run_dir, seed=int(seed), conf=settings, resume=None if resume == "-" else resume
    )
    print(distributor.run(train, end, int(seed)).status)
