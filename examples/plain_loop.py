"""An ordinary training loop on several agents: a small net learns on which side of a wave a point lies.

    python examples/plain_loop.py

In the train function, `mpca.attach`, `mpca.shard` and `mpca.log` are the only lines that take part in a run. The run ends when
`evaluate` finds the joint model good enough.
"""

import mpca


def network():
    from torch import nn

    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def points(count, seed):
    """Places in the plane, and 1 for those above the wave."""
    import torch

    places = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    return places, (places[:, 1] > (3 * places[:, 0]).sin()).long()


def train(rate=3e-3):
    """Returns this agent's number of updates."""
    import torch
    from torch.nn.functional import cross_entropy

    net = network().to(mpca.device())
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    updates = 0

    mpca.attach(net, optimizer)
    for places, above in mpca.shard(torch.utils.data.TensorDataset(*points(4000, seed=1)), batch_size=32):
        optimizer.zero_grad()
        loss = cross_entropy(net(places.to(mpca.device())), above.to(mpca.device()))
        loss.backward()
        optimizer.step()
        updates += 1
        mpca.log(loss=loss)
    return updates


def evaluate(state):
    """Of the joint model, in a process of the driver's: any numbers by name."""
    import torch
    from torch.nn.functional import cross_entropy

    net = network()
    net.load_state_dict(state)
    places, above = points(1000, seed=2)
    with torch.no_grad():
        said = net(places)
    return {"accuracy": float((said.argmax(dim=1) == above).float().mean()), "loss": float(cross_entropy(said, above))}


if __name__ == "__main__":
    objectives = [mpca.MaxTime("60s"), mpca.Evaluate(evaluate, every="1s"), mpca.Target("accuracy", at_least=0.97)]
    result = mpca.Distributor(num_agents=2, objectives=objectives).run(train)
    print(result.status, result.returns, sorted(result.model_state))
