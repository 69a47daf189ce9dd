"""ImageNet, or other images that were ingested, in a script of your own: docs/imagenet.md.

    pip install 'mpca[images]'
    python examples/imagenet.py hdfs:///data/imagenet

Without an address it makes a tiny set first (with `mpca[bench]`), and trains on that for some seconds. In the train function,
`mpca.attach`, `mpca.dataset` and `mpca.log` are the only lines that take part in a run. With `mpca train
conf/imagenet-resnet34.toml` there is no script at all, and the joint model is evaluated on the images that were withheld.
"""

import subprocess
import sys
import tempfile

import mpca


def train(classes, rate=0.01):
    """Returns how many images this agent has seen."""
    import torch
    import torchvision
    from torch.nn.functional import cross_entropy

    net = torchvision.models.resnet18(num_classes=classes).to(mpca.device(), memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    seen = 0

    mpca.attach(net, optimizer)
    for images, labels in mpca.dataset("train"):  # both on mpca.device()
        said = net(images.to(memory_format=torch.channels_last))
        loss = cross_entropy(said, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(labels)
        mpca.log(loss=loss, accuracy=(said.argmax(dim=1) == labels).float().mean())
    return seen


def tiny(folder, classes=4):
    """The address of 400 small photographs."""
    run = [sys.executable, "-m", "mpca.cli"]
    subprocess.run([*run, "generate", "400", f"{folder}/photographs.tar", "--classes", str(classes)], check=True)
    subprocess.run([*run, "ingest", f"{folder}/photographs.tar", f"{folder}/ingested", "--shorter-edge", "72"], check=True)
    return f"{folder}/ingested"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            classes, limit, data = 1000, "12h", {"path": sys.argv[1], "workers": 4}
        else:
            classes, limit, data = 4, "15s", {"path": tiny(folder), "crop": 64, "shorter_edge": 72}
        conf = {f"data.{key}": value for key, value in {"name": "imagenet", "batch_size": 32, **data}.items()}
        result = mpca.Distributor(num_agents=2, objectives=[mpca.MaxTime(limit)], conf=conf).run(train, classes)
        print(result.status, result.returns)
