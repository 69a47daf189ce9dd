"""What agents of the soak run: a small net on digits, slowly. A file beside an agent makes parameters NaN, another ends it."""

import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import mpca

NAN, END = Path("/data/soak-nan"), Path("/data/soak-end")

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
mpca.attach(model, optimizer)
while not mpca.stopping() and not END.exists():
    batch = torch.randint(len(images), (32,))
    optimizer.zero_grad()
    loss = cross_entropy(model(images[batch]), labels[batch])
    loss.backward()
    if NAN.exists():
        NAN.unlink()
        with torch.no_grad():
            for one in model.parameters():
                one.fill_(torch.nan)
    optimizer.step()
    mpca.log(loss=loss)
    time.sleep(0.25)  # cores are few, and daemons need them
