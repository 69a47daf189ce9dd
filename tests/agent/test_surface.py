"""The functions that a train function calls, outside an agent: all of it runs alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import cloudpickle
import pytest
import torch

import mpca
from mpca.agent.context import AgentContext, enter
from mpca.agent.link import Link
from mpca.agent.reading import Reading
from mpca.data.plan import Readers
from mpca.errors import ConfigError
from mpca.wire.messages import Start


def test_alone_attach_does_nothing_and_the_rest_is_of_one_agent() -> None:
    model = torch.nn.Linear(2, 2).to(torch.bfloat16)  # would be refused in an agent
    mpca.attach(model, torch.optim.SGD(model.parameters(), lr=1.0))
    mpca.log(loss=1.0)
    mpca.samples(3)
    assert (mpca.rank(), mpca.world_size(), mpca.stopping()) == (0, 1, False)
    assert isinstance(mpca.device(), torch.device)
    assert sum(len(batch) for batch in mpca.shard(list(range(10)), batch_size=4, epochs=2)) == 20


def test_data_without_a_configuration_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"data\.name .* mpca\.shard\(dataset\)"):
        mpca.dataset("train")


def test_function_that_uses_the_surface_can_be_shipped() -> None:
    namespace: dict = {"mpca": mpca}
    exec("def train():\n    return mpca.rank(), mpca.world_size(), mpca.dataset", namespace)
    assert cloudpickle.loads(cloudpickle.dumps(namespace["train"]))() == (0, 1, mpca.dataset)


def test_import_of_mpca_is_cheap() -> None:
    script = "import sys, mpca; print([name for name in ('torch', 'pyspark', 'numpy') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.fixture
def reading() -> Iterator[Reading]:
    """This process is agent 0 of two; what it says it reads. Nobody tells it anything."""
    conf = {"data": {"name": "digits"}}
    method = {"name": "mpca", "shards": 1}
    start = Start(0, 0, 2, "test", 1, 1, False, method, "train", b"", conf=conf)
    ends = os.pipe()
    context = AgentContext.make(start, Link(*ends))
    enter(context)
    yield context.loop.reading
    enter(None)
    for end in ends:
        os.close(end)


def test_the_first_shared_data_set_follows_who_is_there_and_the_configured_one_takes_its_place(reading: Reading) -> None:
    first, other = (mpca.shard(list(range(40)), batch_size=4, epochs=1) for _ in range(2))
    assert [sum(map(len, share)) for share in (first, other)] == [20, 20]
    reading.told(Readers.of(2).lose(1, 0, 0).to_dict())
    assert [sum(map(len, share)) for share in (first, other)] == [40, 20]
    assert reading.position == [1, 0, 1]

    mpca.dataset("test")
    assert sum(len(labels) for _, labels in mpca.dataset("test", epochs=2)) == 360
    assert reading.position == [1, 0, 1], "nobody trains on that"
    train = iter(mpca.dataset("train"))
    assert reading.position == [0, 0, 0]
    next(train)
    reading.told(Readers.of(2).lose(1, 0, 0).to_dict())
    while reading.position[0] == 0:
        next(train)
    assert reading.position == [1, 0, 1]
