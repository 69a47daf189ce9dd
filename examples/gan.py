"""A generative adversarial net on several agents: two models and two optimisers, exchanged and saved together.

    python examples/gan.py

Alone, `train` is an ordinary GAN script; `mpca.attach` and `mpca.shard` are the only lines that take part in a run.
"""

import mpca


def train(rate=2e-3, updates=3000):
    """Learn a circle of radius 1; returns the norms of both models' parameters, which end up alike in all agents."""
    import torch
    from torch import nn
    from torch.nn.functional import binary_cross_entropy_with_logits, leaky_relu

    angles = torch.rand(4096) * 2 * torch.pi
    circle = torch.utils.data.TensorDataset(torch.stack([angles.cos(), angles.sin()], dim=1))

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 32), nn.Linear(32, 1)

        def forward(self, points):
            return self.last(leaky_relu(self.first(points), 0.2))

    generator = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    discriminator = Discriminator()
    optimizers = [torch.optim.Adam(model.parameters(), lr=rate, betas=(0.5, 0.99)) for model in (generator, discriminator)]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: max(0.0, 1 - done / updates)) for optimizer in optimizers
    ]

    mpca.attach({"generator": generator, "discriminator": discriminator}, optimizers)
    for (real,) in mpca.shard(circle, batch_size=64):
        fake = generator(torch.randn(len(real), 8))

        optimizers[1].zero_grad()
        said = discriminator(torch.cat([real, fake.detach()]))
        truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
        loss = binary_cross_entropy_with_logits(said, truth)
        loss.backward()
        optimizers[1].step()

        optimizers[0].zero_grad()
        binary_cross_entropy_with_logits(discriminator(fake), torch.ones(len(real), 1)).backward()
        optimizers[0].step()  # the last step of the batch: here the update ends, and the exchange may take place

        for schedule in schedules:
            schedule.step()
        mpca.log(discriminator=loss)
    models = {"generator": generator, "discriminator": discriminator}
    return {name: float(nn.utils.parameters_to_vector(one.parameters()).norm()) for name, one in models.items()}


if __name__ == "__main__":
    result = mpca.Distributor(num_agents=2, objectives=[mpca.MaxTime("30s")]).run(train)
    print(result.status, result.returns)
    generator = {
        name.removeprefix("generator."): tensor for name, tensor in result.model_state.items() if name.startswith("generator.")
    }  # for generator.load_state_dict
    print(sorted(generator))
