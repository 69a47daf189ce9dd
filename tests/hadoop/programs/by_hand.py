"""A user's own program: a Distributor, with nothing said of the cluster, which spark-submit's line knows."""

import time

import mpca


def train() -> int:
    import torch

    torch.manual_seed(3 + mpca.rank())
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    mpca.attach(model, optimizer)
    while not mpca.stopping():
        x = torch.randn(32, 4)
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        mpca.log(loss=loss)
        time.sleep(0.01)  # the cores are for whoever still starts
    return mpca.rank()


def evaluate(state: dict) -> dict:
    """Distance from weights of one, as a share."""
    distance = float(abs(state["weight"] - 1.0).max())
    return {"error": min(1.0, distance), "loss": distance}


if __name__ == "__main__":
    result = mpca.Distributor(objectives=[mpca.Target("error", at_most=0.05), mpca.Evaluate(evaluate, every="200ms")]).run(
        train
    )
    print("by hand:", result.status, result.summary["num_agents"], result.run_dir)
