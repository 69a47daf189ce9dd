"""A train script that goes through the run's images until a file appears: ``streaming.py FILE``."""

import sys
import time
from pathlib import Path

import torch

import mpca

model = torch.nn.Linear(3 * 32 * 32, 100)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
mpca.attach(model, optimizer)
for images, labels in mpca.dataset("train"):
    if mpca.stopping() or Path(sys.argv[1]).exists():
        break
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images.flatten(1)), labels).backward()
    optimizer.step()
    time.sleep(0.2)  # two cores are shared with daemons that start
