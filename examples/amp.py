"""Mixed precision on several agents: a small convolutional net tells rings from discs.

    python examples/amp.py

The net is computed in half precision (`torch.autocast`), and its parameters stay float32, as an exchange needs them. On a GPU a
gradient scaler goes with float16; an update that it skips does not count. In the train function, `mpca.attach`, `mpca.shard`
and `mpca.log` are the only lines that take part in a run.
"""

import mpca


def network():
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(128, 2)
    )  # fmt: skip


def drawings(count, seed):
    """float32[count, 1, 16, 16] with noise, and 1 for those of rings."""
    import torch

    chance = torch.Generator().manual_seed(seed)
    rings = torch.randint(0, 2, (count,), generator=chance)
    middles = torch.rand(count, 2, 1, 1, generator=chance) * 6 + 5
    rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    distance = ((rows - middles[:, 0]) ** 2 + (columns - middles[:, 1]) ** 2).sqrt()
    drawn = (distance < 5) & ((distance > 3) | (rings == 0)[:, None, None])
    return (drawn + torch.randn(count, 16, 16, generator=chance) * 0.5).unsqueeze(1), rings


def train(rate=3e-3):
    """Returns the type in which the net was computed, and that of its parameters."""
    import torch
    from torch.nn.functional import cross_entropy

    device = mpca.device().type
    half = torch.float16 if device == "cuda" else torch.bfloat16
    net = network().to(mpca.device())
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=half == torch.float16)

    mpca.attach(net, optimizer)
    for images, rings in mpca.shard(torch.utils.data.TensorDataset(*drawings(2000, seed=1)), batch_size=32):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=half):
            said = net(images.to(mpca.device()))
            loss = cross_entropy(said, rings.to(mpca.device()))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        mpca.log(loss=loss)
    return str(said.dtype), str(next(net.parameters()).dtype)


def evaluate(state):
    import torch

    net = network().eval()
    net.load_state_dict(state)
    images, rings = drawings(500, seed=2)
    with torch.no_grad():
        said = net(images)
    return {"accuracy": float((said.argmax(dim=1) == rings).float().mean())}


if __name__ == "__main__":
    objectives = [mpca.MaxTime("60s"), mpca.Evaluate(evaluate, every="1s"), mpca.Target("accuracy", at_least=0.97)]
    result = mpca.Distributor(num_agents=2, objectives=objectives).run(train)
    print(result.status, result.returns)
