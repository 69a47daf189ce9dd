"""What every peer of `bench peers` trains: one net, one data set, one pace, and loops that differ in the exchange alone.

An update takes C seconds, as on an accelerator that this machine does not have: the points of `Paced` wait for their share.
Two thirds of C lie in the backward pass, where DDP sends the gradients of later layers while it computes those of earlier ones.
A worker that is held up by the network is behind that timetable and does not wait.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mpca.data.generated import warped_digits
from mpca.models.training import create_optimizer, evaluate_classifier

__all__ = ["PEERS", "Pace", "Paced", "Trial", "ddp", "evaluate", "mpca_agent", "net"]

#: Peers without Spark's executors in the exchange.
PEERS = ("ddp", "ddp-local-sgd")
_FORWARD = 1 / 3  # of C
_LOOK_EVERY = 10  # updates after which DDP's workers agree whether to go on
_TESTED = 2000  # samples of an evaluation


@dataclass(frozen=True)
class Trial:
    """One training: who, how fast, how long."""

    peer: str  # one of PEERS, or a name of mpca's methods
    rate: float
    seed: int
    step_s: float  # C
    seconds: float
    every_s: float  # between two looks at the model
    batch: int
    optimizer: str
    target: float  # error at which mpca's run may end; DDP's models are evaluated after the training
    averaged_every: int = 10  # updates between two averages of local SGD


class _Point(torch.autograd.Function):
    """Does nothing, and calls somebody on the way forward and back."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, pace: Pace, ahead: float, back: float) -> torch.Tensor:
        context.pace, context.back = pace, back
        pace.wait(ahead)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        context.pace.wait(context.back)
        return gradients[0], None, None, None


class Pace:
    """The timetable of one update."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._began = 0.0

    def begin(self) -> None:
        self._began = time.monotonic()

    def wait(self, share: float) -> None:
        """Wait until this share of C is over."""
        left = self._began + share * self._step_s - time.monotonic()
        if left > 0:
            time.sleep(left)


class Paced(nn.Module):
    """Layers, each with its equal share of C forward and back."""

    def __init__(self, layers: nn.Sequential, pace: Pace) -> None:
        super().__init__()
        self.layers, self._pace = layers, pace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.requires_grad_(self.training)  # else the first point has no way back
        count = len(self.layers)
        for number, layer in enumerate(self.layers, 1):
            ahead = _FORWARD * number / count
            back = _FORWARD + (1 - _FORWARD) * (count - number + 1) / count
            x = _Point.apply(layer(x), self._pace, ahead, back) if self.training else layer(x)
        return x


def net(seed: int) -> nn.Sequential:
    """float32[n, 1, 12, 12] -> logits float32[n, 10]; 275 k parameters, 1.05 MiB, no buffers."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Sequential(nn.Flatten(), nn.Linear(144, 512), nn.ReLU()),
        nn.Sequential(nn.Linear(512, 384), nn.ReLU()),
        nn.Linear(384, 10),
    )


class _Worker:
    """Model, optimiser and batches of one worker; a batch is drawn from the whole set, by seed and rank."""

    def __init__(self, trial: Trial, rank: int) -> None:
        torch.set_num_threads(1)
        self.pace = Pace(trial.step_s)
        self.model: nn.Module = Paced(net(trial.seed), self.pace)
        self.optimizer = create_optimizer(self.model, trial.optimizer, lr=trial.rate)
        images, labels = warped_digits("train", trial.seed)
        self._images, self._labels = torch.from_numpy(images), torch.from_numpy(labels)
        self._draws = torch.Generator().manual_seed(1000 * trial.seed + rank)
        self._batch = trial.batch

    def update(self) -> None:
        self.pace.begin()
        some = torch.randint(len(self._labels), (self._batch,), generator=self._draws)
        self.optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.model(self._images[some].clone()), self._labels[some]).backward()
        self.optimizer.step()


def evaluate(state: dict[str, Any]) -> dict[str, float]:
    """Error and loss on the test set, of a model as `Paced` names it."""
    images, labels = warped_digits("test", 0)
    some = torch.from_numpy(images[:_TESTED]), torch.from_numpy(labels[:_TESTED])
    return evaluate_classifier(Paced(net(0), Pace(0.0)), state, *some)


def mpca_agent(trial: Trial) -> dict[str, Any]:
    """The train function of mpca's agents.

    Returns:
        Monotonic seconds of begin and end, and updates.
    """
    import mpca

    worker = _Worker(trial, mpca.rank())
    mpca.attach(worker.model, worker.optimizer)
    began, updates = time.monotonic(), 0
    while not mpca.stopping():
        worker.update()
        updates += 1
    return {"began": began, "ended": time.monotonic(), "updates": updates}


def ddp(trial: Trial) -> dict[str, Any] | None:
    """The train function of TorchDistributor: DDP on gloo as it is delivered, or with local SGD.

    Returns:
        Of rank 0: monotonic seconds of begin and end, updates, and [seconds, error] of the model as it was then. It is
        evaluated after the training, so no worker waits for that.
    """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    worker = _Worker(trial, dist.get_rank())
    parallel = DistributedDataParallel(worker.model)
    worker.model = parallel
    averages = _local_sgd(parallel, worker, trial) if trial.peer == "ddp-local-sgd" else None
    kept: list[tuple[float, dict[str, torch.Tensor]]] = []
    dist.barrier()
    began = time.monotonic()
    updates, over = 0, torch.zeros(1)
    held = sys.getrefcount(over)
    while not over:
        worker.update()
        updates += 1
        now = time.monotonic() - began
        # Local SGD averages after its first update, then after every n; in between there is no joint model.
        whole = averages is None or (updates - 1) % trial.averaged_every == 0
        if whole and dist.get_rank() == 0 and now >= len(kept) * trial.every_s:
            kept.append((now, {name: value.clone() for name, value in parallel.module.state_dict().items()}))
        if updates % _LOOK_EVERY == 0:
            over.fill_(now > trial.seconds)
            dist.all_reduce(over, dist.ReduceOp.MAX)
    ended = time.monotonic()
    rank = dist.get_rank()
    # A thread of gloo still refers to the last tensor. `destroy_process_group` joins no thread of a group that DDP's reducer
    # keeps, and one that lets go of a tensor while Python ends aborts the process (torch 2.15, 1 of 8 runs).
    while sys.getrefcount(over) > held:
        time.sleep(0.001)
    dist.destroy_process_group()
    if rank != 0:
        return None
    errors = [[at, evaluate(state)["error"]] for at, state in kept]
    return {"began": began, "ended": ended, "updates": updates, "errors": errors}


def _local_sgd(parallel: Any, worker: _Worker, trial: Trial) -> Any:
    """torch's own: gradients stay local from the first update on, and parameters are averaged every n updates."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    alone, _ = dist.new_subgroups(group_size=1)
    parallel.register_comm_hook(PostLocalSGDState(None, alone, 0, post_local_gradient_allreduce=False), post_localSGD_hook)
    averager = PeriodicModelAverager(period=trial.averaged_every, warmup_steps=0)
    worker.optimizer = PostLocalSGDOptimizer(worker.optimizer, averager)
    return averager
