"""A train script whose agent 1 first takes more memory than its container has and, started again, makes a mistake."""

import sys
import time
from pathlib import Path

import torch

import mpca

been_here = Path(sys.argv[1])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
mpca.attach(model, optimizer)
steps = 0
hoard = []
while not mpca.stopping():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)  # stands for a step's work
    steps += 1
    if mpca.rank() == 1 and steps > 50:
        if been_here.exists() and not hoard:
            raise ValueError("the user's own mistake")
        been_here.touch()
        if len(hoard) < 40:
            hoard.append(b"x" * (64 << 20))  # every page of it is written
