"""Lightning's Trainer on several agents: two spirals are told apart.

    pip install 'mpca[lightning]'
    python examples/lightning_fit.py

`strategy=Strategy()` is the only line that takes part in a run. The Trainer has no last epoch: the run's objectives end it.
"""

import mpca


def network():
    from torch import nn

    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def spirals(points, seed):
    """Points in the plane, and which spiral each lies on."""
    import torch

    chance = torch.Generator().manual_seed(seed)
    turn = torch.rand(points, generator=chance) * 2 * torch.pi
    which = torch.randint(0, 2, (points,), generator=chance)
    angle = turn + torch.pi * which
    places = torch.stack([angle.cos(), angle.sin()], dim=1) * (0.2 + turn / 4).unsqueeze(1)
    return places + torch.randn(points, 2, generator=chance) * 0.02, which


def train(epochs=-1, rate=3e-3):
    """Returns the number of updates."""
    import lightning
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader, TensorDataset

    from mpca.lightning import Strategy

    class Spirals(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch, batch_idx):
            places, which = batch
            loss = cross_entropy(self.network(places), which)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=rate)

    trainer = lightning.Trainer(
        strategy=Strategy(), max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Spirals(), DataLoader(TensorDataset(*spirals(4000, seed=1)), batch_size=64, shuffle=True))
    return trainer.global_step


def evaluate(state):
    import torch

    net = network()
    net.load_state_dict({name.removeprefix("network."): tensor for name, tensor in state.items()})
    places, which = spirals(1000, seed=2)
    with torch.no_grad():
        said = net(places)
    return {"accuracy": float((said.argmax(dim=1) == which).float().mean())}


if __name__ == "__main__":
    objectives = [mpca.MaxTime("60s"), mpca.Evaluate(evaluate, every="1s"), mpca.Target("accuracy", at_least=0.98)]
    result = mpca.Distributor(num_agents=2, objectives=objectives).run(train)
    print(result.status, result.returns)
