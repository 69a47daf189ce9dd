"""What an agent does with a GPU, on a stand-in of one that refuses what a real one refuses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import mpca
from mpca.agent import cuda
from mpca.agent.cuda import CudaCarrier, CudaJpegs, device_of, first_gpu, make_current, refused_when_full
from mpca.agent.layout import read_layout
from mpca.agent.torch_trainer import TorchTrainer
from mpca.algorithm import pull
from mpca.errors import EnvironmentRefused
from mpca.methods import How
from tests.gpu.standin import StandIn

PACKAGE = Path(mpca.__file__).parent


@pytest.fixture
def gpu() -> Iterator[StandIn]:
    with StandIn() as one:
        yield one


def test_no_other_file_touches_cuda() -> None:
    named = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == "cuda")
        or (isinstance(node, (ast.Import, ast.ImportFrom)) and "torch.cuda" in ast.unparse(node).replace(" import ", "."))
    }
    assert named == {"agent/cuda.py", "ml/predict.py"}  # the second one runs in a task of Spark, where no agent is


def test_the_stand_in_refuses_what_the_real_one_refuses(gpu: StandIn) -> None:
    """The first line is what an agent on a GPU did once, and ended by."""
    with pytest.raises(ValueError, match=r"Expected a torch\.device with a specified index or an integer, but got:cuda"):
        torch.cuda.set_device("cuda")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(1)
    there, here = torch.ones(2, device="cuda"), torch.ones(2)
    assert (there.device, here.device, (there * 2).device) == (cuda.device_of("cuda"), torch.device("cpu"), there.device)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        there + here
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        there.numpy()
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(1 << 50, device="cuda")


def test_a_copy_beside_is_not_there_before_it_was_waited_for(gpu: StandIn) -> None:
    beside, done = torch.cuda.Stream(), torch.cuda.Event()
    there, here = torch.ones(2, device="cuda"), torch.zeros(2, pin_memory=True)
    with torch.cuda.stream(beside):
        here.copy_(there, non_blocking=True)
        done.record(beside)
    assert here.tolist() == [0, 0]
    done.synchronize()
    assert here.tolist() == [1, 1]


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_the_gpu_of_an_agent_is_the_first_that_it_sees(gpu: StandIn, name: str) -> None:
    make_current(device_of(name))
    assert device_of(name) == first_gpu() == mpca.device() == torch.device("cuda", 0)


def test_the_cpu_needs_no_gpu() -> None:
    make_current(device_of("cpu"))
    assert device_of("cpu") == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_an_agent_says_so() -> None:
    assert first_gpu() == torch.device("cpu")
    with pytest.raises(EnvironmentRefused, match=r"torch finds no GPU on this node: torch=\S+, built .*cluster.device=cpu"):
        make_current(device_of("cuda"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_torchvision_that_decodes_nothing_there_is_refused(gpu: StandIn) -> None:
    with pytest.raises(
        EnvironmentRefused, match=r"^torchvision does not decode JPEGs on this GPU: torchvision=\S+, .*data\.decoder=cpu$"
    ):
        CudaJpegs(torch.device("cuda", 0))


def test_what_does_not_fit_is_refused_with_the_numbers(gpu: StandIn) -> None:
    torch.cuda.set_per_process_memory_fraction(2**-10)
    with (
        pytest.raises(
            EnvironmentRefused, match="for the exchange: need_bytes=8388608, free_bytes=1048576, total_bytes=1073741824"
        ),
        refused_when_full(torch.device("cuda", 0), 8 << 20),
    ):
        CudaCarrier(torch.device("cuda", 0), 1 << 20)


def test_shards_of_any_length_cross_both_ways_again_and_again(gpu: StandIn) -> None:
    carrier = CudaCarrier(torch.device("cuda", 0), 8)
    chance = np.random.default_rng(1)
    for length in (8, 3, 1, 8, 5):
        sent, out = chance.normal(size=length).astype(np.float32), np.empty(length, np.float32)
        arrived, uploaded = carrier.incoming(sent)
        kept = arrived.clone()
        carrier.taken()
        carrier.outgoing(out, (out.size,))[0].copy_(kept * 2)
        delivered = carrier.deliver(out)
        for wait in (uploaded, delivered):
            assert wait is not None
            wait()
        np.testing.assert_array_equal(out, sent * 2)
        sent[:] = np.nan  # the executor writes the next one
        np.testing.assert_array_equal(kept.cpu().numpy() * 2, out)


@pytest.mark.parametrize("how", How)
def test_a_model_on_a_gpu_is_read_pulled_and_replaced_as_one_in_memory(gpu: StandIn, how: How) -> None:
    def make(device: str) -> tuple[nn.Module, TorchTrainer]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
        model = model.to(memory_format=torch.channels_last).to(device)
        layout = read_layout(model)
        assert layout.device == device_of(device)
        return model, TorchTrainer(layout, layout.plan(3, False), how)

    (there, trainer), (here, reference) = make("cuda"), make("cpu")
    assert trainer.bounds == reference.bounds
    chance = np.random.default_rng(2)
    for version, mode in enumerate(("install", "replace", "install"), start=1):
        for shard in range(len(trainer.bounds) - 1):
            length = trainer.bounds[shard + 1] - trainer.bounds[shard]
            data = chance.normal(size=length).astype(np.float32) if shard < 3 else np.arange(length, dtype=np.float32)
            seen = [np.empty(length, np.float32) for _ in "ab"]
            for one, out in zip((trainer, reference), seen, strict=True):
                if shard < 3 or mode == "replace":
                    one.install(shard, data.copy(), version, mode)
                one.pull(((shard, 0.3),) if shard < 3 and how is How.PULL else ())
                one.snapshot(shard, out)
            np.testing.assert_array_equal(*seen)
    for name, tensor in here.state_dict().items():
        assert torch.equal(tensor, there.state_dict()[name].cpu()), name
    assert there[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_the_pull_on_a_gpu_is_that_of_the_algorithm(gpu: StandIn) -> None:
    model = nn.Linear(5, 3).to("cuda")
    layout = read_layout(model)
    trainer = TorchTrainer(layout, layout.plan(1, False), How.PULL)
    expected, target = np.empty(18, np.float32), np.linspace(-1, 1, 18, dtype=np.float32)
    trainer.snapshot(0, expected)
    trainer.install(0, target, 1, "install")
    for _ in range(3):
        trainer.pull(((0, 0.2),))
        pull(expected, target, 0.2)
    out = np.empty(18, np.float32)
    trainer.snapshot(0, out)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-7)
