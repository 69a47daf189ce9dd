"""Runs in a stack against the same runs alone: torch's own modules, gradients, optimisers and buffers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from mpca import data, models
from mpca.errors import ConfigError
from mpca.models import OPTIMIZERS
from mpca.models.stacked import Stack
from mpca.models.training import evaluate_classifier

NETS = {
    "mixture_mlp": "mixture",
    "warped_convnet": "warped-digits",
    "warped_resnet": "warped-digits",
    "warped_resnet_plain": "warped-digits",
}
SEEDS, RATES, BATCH = [3, 4, 3], [0.01, 0.01, 0.02], 6
OFFICIAL = {
    "adam": lambda of, lr: torch.optim.Adam(of, lr),
    "adamw": lambda of, lr: torch.optim.AdamW(of, lr),
    "nesterov": lambda of, lr: torch.optim.SGD(of, lr, momentum=0.9, nesterov=True),
    "sgd": lambda of, lr: torch.optim.SGD(of, lr),
}


pytestmark = pytest.mark.usefixtures("one_thread")


def stack(net: str, seeds: list[int] = SEEDS, rates: list[float] = RATES, optimizer: str = "adam") -> Stack:
    return Stack(lambda: models.create(net), seeds, rates, optimizer)


def alone(net: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return models.create(net)


def batches(net: str, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Samples and labels of each step, for three runs."""
    samples, labels = data.load(NETS[net], "test").tensors
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        index = torch.randint(len(labels), (3, BATCH), generator=generator)
        yield samples[index], labels[index]


def flat(net: nn.Module) -> torch.Tensor:
    """As agents exchange it: parameters, then floating-point buffers."""
    floats = [one for one in net.buffers() if one.is_floating_point()]
    return torch.cat([one.detach().flatten() for one in (*net.parameters(), *floats)])


def rows(runs: Stack) -> torch.Tensor:
    """The flat vector of each run, by `read`."""
    out = np.empty(runs.elements * runs.runs, np.float32)
    runs.read(0, runs.elements, out)
    return torch.from_numpy(out.reshape(-1, runs.runs).T.copy())


@pytest.mark.parametrize("net", NETS)
def test_runs_begin_where_torch_begins(net: str) -> None:
    for row, seed in zip(rows(stack(net)), SEEDS, strict=True):
        assert torch.equal(row, flat(alone(net, seed)))


@pytest.mark.parametrize("net", NETS)
def test_gradients_and_buffers_are_those_of_autograd_on_the_net_itself(net: str) -> None:
    runs = stack(net)
    [(samples, labels)] = batches(net, 1)
    gradients = runs.gradient(samples, labels)
    for run, seed in enumerate(SEEDS):
        module = alone(net, seed)
        functional.cross_entropy(module(samples[run]), labels[run]).backward()
        expected = torch.cat([p.grad.flatten() for p in module.parameters()])
        torch.testing.assert_close(gradients[run, : len(expected)], expected, rtol=1e-4, atol=2e-6)
        torch.testing.assert_close(rows(runs)[run], flat(module), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", ["mixture_mlp", "warped_resnet"])
def test_updates_are_those_of_torchs_optimiser(net: str, optimizer: str) -> None:
    runs = stack(net, optimizer=optimizer)
    modules = [alone(net, seed) for seed in SEEDS]
    official = [OFFICIAL[optimizer](one.parameters(), rate) for one, rate in zip(modules, RATES, strict=True)]
    for samples, labels in batches(net, 2):
        runs.step(samples, labels)
        for run, (module, its) in enumerate(zip(modules, official, strict=True)):
            its.zero_grad()
            functional.cross_entropy(module(samples[run]), labels[run]).backward()
            its.step()
    for row, module in zip(rows(runs), modules, strict=True):
        # Adam divides by a gradient's size: where that is almost 0, rounding decides
        assert (row - flat(module)).abs().quantile(0.99) < 1e-5
        assert (row - flat(module)).abs().max() < 2e-2


@pytest.mark.parametrize("net", NETS)
def test_three_runs_in_a_stack_are_bit_for_bit_three_stacks_of_one(net: str) -> None:
    together = stack(net)
    singles = [stack(net, [seed], [rate]) for seed, rate in zip(SEEDS, RATES, strict=True)]
    for samples, labels in batches(net, 5):
        together.step(samples, labels)
        for run, one in enumerate(singles):
            one.step(samples[run : run + 1], labels[run : run + 1])
    for row, one in zip(rows(together), singles, strict=True):
        assert torch.equal(row, rows(one)[0])


def test_a_twin_trains_alike_and_apart() -> None:
    first = stack("warped_resnet")
    second = first.twin()
    x0 = rows(first)
    for samples, labels in batches("warped_resnet", 2):
        first.step(samples, labels)
    assert torch.equal(rows(second), x0)
    for samples, labels in batches("warped_resnet", 2):
        second.step(samples, labels)
    assert torch.equal(rows(second), rows(first))


def test_elements_are_read_and_written_run_by_run_within_an_element() -> None:
    runs = stack("warped_resnet")
    every = rows(runs)
    first, last = runs.parameters - 3, runs.parameters + 2  # parameters and buffers
    piece = np.empty((last - first) * 3, np.float32)
    runs.read(first, last, piece)
    assert torch.equal(torch.from_numpy(piece), every[:, first:last].T.flatten())
    piece += 1
    runs.write(first, last, piece)
    every[:, first:last] += 1
    assert torch.equal(rows(runs), every)


def test_a_pull_moves_every_run_and_no_buffer() -> None:
    runs = stack("warped_resnet")
    before, target = rows(runs), np.arange(6 * 3, dtype=np.float32)
    runs.aim(10, 16, target)
    runs.pull(10, 16, 0.25)
    before[:, 10:16] += 0.25 * (torch.from_numpy(target.reshape(6, 3).T.copy()) - before[:, 10:16])
    torch.testing.assert_close(rows(runs), before, rtol=1e-6, atol=1e-7)


def test_an_optimiser_that_decays_weights_leaves_buffers_to_batch_norm() -> None:
    decayed = Stack(lambda: models.create("warped_resnet"), SEEDS, RATES, "adamw", {"weight_decay": 20.0})
    untouched = stack("warped_resnet")
    [(samples, labels)] = batches("warped_resnet", 1)
    decayed.step(samples, labels)
    untouched.gradient(samples, labels)
    assert torch.equal(decayed.state, untouched.state)
    assert decayed.weights.norm() < 0.9 * untouched.weights.norm()


def test_a_reset_optimiser_begins_anew() -> None:
    [first, second] = batches("mixture_mlp", 2)
    used, fresh = stack("mixture_mlp"), stack("mixture_mlp")
    used.step(*first)
    used.write(0, fresh.elements, rows(fresh).T.numpy().flatten())
    used.reset_optimizer()
    for one in (used, fresh):
        one.step(*second)
    assert torch.equal(rows(used), rows(fresh))


def test_errors_are_those_of_the_net_itself() -> None:
    runs = stack("warped_resnet")
    samples, labels = (one[:700] for one in data.load("warped-digits", "test").tensors)
    for batch in batches("warped_resnet", 3):
        runs.step(*batch)
    out = np.empty(runs.elements * 3, np.float32)
    runs.read(0, runs.elements, out)
    for error, row in zip(runs.errors(out, samples, labels), rows(runs), strict=True):
        module = alone("warped_resnet", 0)
        sizes = [one.numel() for one in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point()))]
        parts = iter(row.split(sizes))
        named = [*module.named_parameters(), *((name, b) for name, b in module.named_buffers() if b.is_floating_point())]
        state = {name: next(parts).view_as(one) for name, one in named}
        whole = {**module.state_dict(), **state}
        assert evaluate_classifier(module, whole, samples, labels)["error"] == pytest.approx(error, abs=2 / 700)


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("nesterov", 1), ("adam", 2), ("adamw", 2)])
def test_the_state_of_optimisers_may_be_a_part_of_the_vector(optimizer: str, states: int) -> None:
    """Whoever takes it goes on, run by run, as the one whose it was."""
    first, plain = (Stack(lambda: models.create("warped_resnet"), SEEDS, RATES, optimizer, {}, more) for more in (True, False))
    steps = int(optimizer.startswith("adam"))
    assert first.elements == plain.elements + states * first.parameters + steps
    told = list(batches("warped_resnet", 6))
    for samples, labels in told[:3]:
        first.step(samples, labels)
        plain.step(samples, labels)
    taken, twin = rows(first), first.twin()
    torch.testing.assert_close(taken[:, : plain.elements], rows(plain), rtol=0, atol=0)
    assert taken[:, plain.elements + states * first.parameters :].tolist() == [[3.0]] * 3 if steps else True
    twin.write(0, first.elements, taken.T.numpy().flatten())
    for samples, labels in told[3:]:
        for one in (first, plain, twin):
            one.step(samples, labels)
    torch.testing.assert_close(rows(twin), rows(first), rtol=0, atol=0)
    torch.testing.assert_close(rows(plain), rows(first)[:, : plain.elements], rtol=0, atol=0)
    samples, labels = (one[:50] for one in data.load("warped-digits", "test").tensors)
    of_all, of_model = (one.errors(rows(one).T.numpy().flatten(), samples, labels) for one in (first, plain))
    assert of_all.tolist() == of_model.tolist()


def test_a_run_whose_optimiser_has_no_numbers_any_more_has_diverged_too() -> None:
    runs = Stack(lambda: models.create("mixture_mlp"), SEEDS, RATES, "adam", {}, exchanges_optimizer=True)
    for samples, labels in batches("mixture_mlp", 2):
        runs.step(samples, labels)
    flat = rows(runs)
    flat[1, runs.parameters + 5] = float("inf")
    runs.write(0, runs.elements, flat.T.numpy().flatten())
    found = rows(runs)
    assert runs.diverged.tolist() == [False, True, False]
    assert not found[1, :-1].any()
    torch.testing.assert_close(found[[0, 2]], flat[[0, 2]], rtol=0, atol=0)


def test_a_run_that_diverges_is_set_to_zero_and_said_and_the_others_go_on() -> None:
    runs, others = stack("mixture_mlp"), stack("mixture_mlp")
    runs.weights.data[1, 5] = torch.nan
    expected = rows(others)
    expected[1] = 0
    assert torch.equal(rows(runs), expected)
    assert runs.diverged.tolist() == [False, True, False]


def test_what_cannot_be_stacked_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'adam'"):
        stack("mixture_mlp", optimizer="adamv")
    odd = Stack(lambda: nn.Sequential(nn.Linear(32, 10), nn.Tanh()), [0], [0.1], "sgd")
    samples, labels = next(batches("mixture_mlp", 1))
    with pytest.raises(TypeError, match=r"no stacked form of a module: name='1', module=Tanh\(\)"):
        odd.gradient(samples[:1], labels[:1])
