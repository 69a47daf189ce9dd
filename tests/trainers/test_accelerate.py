"""A loop of accelerate's: `mpca.attach` with what `Accelerator.prepare` returned, and adapters of peft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import peft
import pytest
import torch
import transformers
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn
from torch.utils.data import TensorDataset

import mpca
from tests.trainers.conftest import Agent

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # of torch, about other packages
BecomeAgent = Callable[..., Agent]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What accelerate keeps for a whole process."""
    yield
    PartialState._reset_state()
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def prepared(**options: Any) -> tuple[Accelerator, nn.Module, torch.optim.Optimizer]:
    accelerator = Accelerator(cpu=True, **options)
    model = nn.Linear(1, 1)
    return accelerator, *accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def batches() -> Any:
    return mpca.shard(TensorDataset(torch.arange(40.0).reshape(-1, 1)), 5, epochs=1)


@pytest.mark.parametrize("options", [{}, {"mixed_precision": "bf16"}], ids=["float32", "bf16"])
def test_what_was_prepared_can_be_attached(agent: BecomeAgent, options: dict[str, str]) -> None:
    one = agent()
    accelerator, model, optimizer = prepared(**options)
    mpca.attach(model, optimizer)
    for (x,) in batches():
        accelerator.backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    assert (one.updates, one.samples) == (4, 20)
    assert [name for name, *_ in one.hello.layout] == ["weight", "bias"]


def test_what_is_attached_before_it_is_prepared_takes_part_too(agent: BecomeAgent) -> None:
    one, model = agent(), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    mpca.attach(model, optimizer)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    for (x,) in batches():
        accelerator.backward(model(x).mean())
        optimizer.step()
    assert one.updates == 4


def test_an_update_is_a_step_of_the_optimizer_not_a_batch(agent: BecomeAgent) -> None:
    one = agent()
    accelerator, model, optimizer = prepared(gradient_accumulation_steps=2)
    mpca.attach(model, optimizer)
    for (x,) in batches():
        with accelerator.accumulate(model):
            accelerator.backward(model(x).mean())
            optimizer.step()
            optimizer.zero_grad()
    assert (one.updates, one.samples) == (2, 20)


def test_a_step_that_the_gradient_scaler_skips_is_no_update(agent: BecomeAgent) -> None:
    one = agent()
    _, model, prepared_optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    optimizer = AcceleratedOptimizer(prepared_optimizer.optimizer, scaler=scaler)
    mpca.attach(model, optimizer)
    for loss in (1.0, float("inf"), 1.0):
        scaler.scale(model(torch.ones(1, 1)).sum() * loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert one.updates == 2


def language_model() -> transformers.GPT2LMHeadModel:
    sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def test_of_a_model_with_adapters_these_alone_are_exchanged(agent: BecomeAgent) -> None:
    one, base = agent(), language_model()
    whole = sum(parameter.numel() for parameter in base.parameters())
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    mpca.attach(model, optimizer)
    model(input_ids=torch.zeros(1, 4, dtype=torch.long), labels=torch.zeros(1, 4, dtype=torch.long)).loss.backward()
    optimizer.step()
    exchanged = [name for name, *_ in one.hello.layout]
    assert len(exchanged) == 4
    assert all(".lora_" in name for name in exchanged)
    assert one.hello.parameters == sum(p.numel() for p in model.parameters() if p.requires_grad) < whole / 20
    assert sum(".base_layer." in name for name in one.hello.local) == 4, "the frozen base stays local, and is saved"
    assert one.updates == 1


def test_tied_weights_of_a_language_model_are_exchanged_once(agent: BecomeAgent) -> None:
    one, model = agent(), language_model()
    mpca.attach(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    assert one.hello.tied == {"lm_head.weight": "transformer.wte.weight"}
