"""A train script that says which devices its agent was given, and goes on until a file appears: ``devices.py FOLDER``."""

import os
import sys
import time
from pathlib import Path

import torch

import mpca

folder = Path(sys.argv[1])
(folder / f"agent-{mpca.rank()}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
mpca.attach(model, optimizer)
while not mpca.stopping() and not (folder / "end").exists():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.5)
