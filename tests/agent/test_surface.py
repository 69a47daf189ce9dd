"""The functions that a train function calls, outside an agent: all of it runs alone."""

from __future__ import annotations

import subprocess
import sys

import cloudpickle
import pytest
import torch

import mpca
from mpca.errors import ConfigError


def test_alone_attach_does_nothing_and_the_rest_is_of_one_agent() -> None:
    model = torch.nn.Linear(2, 2).to(torch.bfloat16)  # would be refused in an agent
    mpca.attach(model, torch.optim.SGD(model.parameters(), lr=1.0))
    mpca.log(loss=1.0)
    mpca.samples(3)
    assert (mpca.agent(), mpca.agents(), mpca.stopping()) == (0, 1, False)
    assert isinstance(mpca.device(), torch.device)
    assert sum(len(batch) for batch in mpca.shard(list(range(10)), batch_size=4, epochs=2)) == 20


def test_data_without_a_configuration_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"data\.name .* mpca\.shard\(dataset\)"):
        mpca.data("train")


def test_function_that_uses_the_surface_can_be_shipped() -> None:
    namespace: dict = {"mpca": mpca}
    exec("def train():\n    return mpca.agent(), mpca.agents(), mpca.data", namespace)
    assert cloudpickle.loads(cloudpickle.dumps(namespace["train"]))() == (0, 1, mpca.data)


def test_import_of_mpca_is_cheap() -> None:
    script = "import sys, mpca; print([name for name in ('torch', 'pyspark', 'numpy') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
