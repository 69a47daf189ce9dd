"""A train script that goes on until a file appears: ``until.py FILE``."""

import sys
import time
from pathlib import Path

import torch

import mpca

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
mpca.attach(model, optimizer)
while not mpca.stopping() and not Path(sys.argv[1]).exists():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.5)  # a cycle each: two cores are shared with another run
