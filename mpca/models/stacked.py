"""Many runs of one small net at once: equal nets with parameters of their own, computed together by batched products.

A net of 7 k parameters costs torch more for its calls than for its numbers. R runs that differ by learning rate or seed do
the same operations, so one call can do them all: 25 runs of `mixture_mlp` take 5 times as long as one. The nets are those of
`small.py`; the gradient is autograd's; the optimisers are torch's own, fused, one parameter group for each learning rate.

Outside of this file the runs are one flat vector, *element-major*: all runs' first element, then all runs' second. So a shard
that is a range of a run's elements is a range of this vector too. Inside, run by run.

Not for agents: nothing here is exchanged. `sim/science` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from mpca.checks import nearest, refused
from mpca.models import OPTIMIZERS
from mpca.models.small import Residual

__all__ = ["Stack", "one_thread"]

_Floats = npt.NDArray[np.float32]
_Tensors = dict[str, Tensor]

_LIMIT = 1e4  # a run with a parameter beyond this has diverged
_AT_ONCE = 250  # samples of an evaluation
#: Numbers in a line of the processor's cache. Every run begins at one, so that vector instructions round all runs alike: a run
#: in a stack is bit for bit the run alone.
_LINE = 16


def one_thread() -> None:
    """Let torch use one thread in this process, and take numbers below 1e-38 as 0, which would be slow to compute with.

    With more threads equal seeds may give other sums.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


class Stack:
    """R runs of a net.

    Args:
        create: makes the net, with parameters from torch's generator.
        seeds: of that generator, one a run.
        rates: learning rates, one a run; runs with equal ones should be neighbours.
        optimizer: a name of `models.OPTIMIZERS`.
        settings: keywords of torch's optimiser, beside the learning rate.
        exchanges_optimizer: whether the flat vector has the optimisers' state too, behind the buffers: what torch keeps of each
            parameter, and Adam's number of steps once.

    Raises:
        ConfigError: no such optimiser.
        TypeError: the net has a module that cannot be stacked.
    """

    def __init__(
        self,
        create: Callable[[], nn.Module],
        seeds: Sequence[int],
        rates: Sequence[float],
        optimizer: str,
        settings: Mapping[str, Any] = {},
        exchanges_optimizer: bool = False,
    ) -> None:
        if optimizer not in OPTIMIZERS:
            raise refused("optimizer", optimizer, f"no such optimizer; {nearest(optimizer, OPTIMIZERS)}")
        nets = {seed: _drawn(create, seed) for seed in set(seeds)}
        self.net = nets[seeds[0]]
        self.runs = len(seeds)
        self._shapes = {name: tuple(one.shape) for name, one in self.net.named_parameters()}
        self._buffers = {name: tuple(one.shape) for name, one in self.net.named_buffers() if one.is_floating_point()}
        weights = torch.stack([_flat(nets[seed].named_parameters(), self._shapes) for seed in seeds])
        self.parameters = weights.shape[1]
        #: By run, and behind its parameters zeros that nothing reads.
        self.weights = functional.pad(weights, (0, -self.parameters % _LINE)).requires_grad_()
        self.state = torch.stack([_flat(nets[seed].named_buffers(), self._buffers) for seed in seeds])
        self._model = self.parameters + self.state.shape[1]  # elements
        #: Runs whose parameters were no numbers any more, or huge.
        self.diverged = np.zeros(self.runs, bool)
        self._targets = self._loss = torch.zeros(0)
        ends = np.cumsum([0] + [len(list(equal)) for _, equal in groupby(rates)]).tolist()
        self._groups = [slice(a, b) for a, b in pairwise(ends)]
        self._rates = [rates[one.start] for one in self._groups]
        kind, own = OPTIMIZERS[optimizer]
        self._kind, self._settings = getattr(torch.optim, kind), {**own, **settings}
        self._exchanged: tuple[str, ...] = ()
        if exchanges_optimizer:
            moments = ("momentum_buffer",) if self._settings.get("momentum") else ()
            with_most = ("max_exp_avg_sq",) if self._settings.get("amsgrad") else ()
            self._exchanged = moments if kind == "SGD" else ("exp_avg", "exp_avg_sq", *with_most, "step")
        self.elements = self._model + sum(1 if key == "step" else self.parameters for key in self._exchanged)
        self.reset_optimizer()

    def twin(self) -> Stack:
        """The same runs with a copy of their parameters and a new optimiser. Drawing the parameters again would take 0.2 s."""
        twin = copy(self)
        twin.weights, twin.state = self.weights.detach().clone().requires_grad_(), self.state.clone()
        twin.diverged, twin._targets = self.diverged.copy(), torch.zeros(0)
        twin.reset_optimizer()
        return twin

    # ---- training ----

    def reset_optimizer(self) -> None:
        """Forget the optimiser's state."""
        self._parts = [self.weights.detach()[one] for one in self._groups]
        groups = [{"params": [part], "lr": rate} for part, rate in zip(self._parts, self._rates, strict=True)]
        self._optimizer = self._kind(groups, fused=True, **{"lr": self._rates[0], **self._settings})
        #: By key: of all runs, of which the optimiser has views. All runs of an agent have made as many steps.
        self._moments = {
            key: torch.zeros(self.runs, 1) if key == "step" else torch.zeros_like(self.weights.detach())
            for key in self._exchanged
        }
        for part, rows in zip(self._parts, self._groups, strict=True):
            for key, whole in self._moments.items():
                self._optimizer.state[part][key] = whole[rows.start, 0] if key == "step" else whole[rows]

    def gradient(self, samples: Tensor, labels: Tensor) -> Tensor:
        """The gradient of each run's mean loss, float32[R, columns of `weights`]. Buffers are updated.

        Args:
            samples: float32[R, batch, ...], each run's own.
            labels: int64[R, batch].
        """
        logits = self._logits(samples, self.weights, self.state, training=True)
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / labels.shape[1]
        found: Tensor = torch.autograd.grad(loss, self.weights)[0]
        self._loss = loss.detach()
        return found

    def step(self, samples: Tensor, labels: Tensor, tilts: Sequence[tuple[int, int, float]] = ()) -> float:
        """One update of each run; arguments as those of `gradient`. Gives the sum of the runs' losses before it.

        `tilts` (first element, last element, alpha) tilt the gradient towards what `aim` set (eq. 6).
        """
        gradient = self.gradient(samples, labels)
        for first, last, alpha in tilts:
            distance = self.weights.detach()[:, first:last] - self._targets[:, first:last]
            gradient[:, first:last].add_(distance, alpha=alpha)
        for part, rows in zip(self._parts, self._groups, strict=True):
            part.grad = gradient[rows]
        self._optimizer.step()
        return float(self._loss)

    @torch.no_grad()
    def aim(self, first: int, last: int, target: _Floats) -> None:
        """Set what elements `first` to `last` of every run are pulled or tilted towards; element-major."""
        if not self._targets.numel():
            self._targets = torch.zeros_like(self.weights)
        self._targets[:, first:last] = torch.from_numpy(target).view(-1, self.runs).t()

    @torch.no_grad()
    def pull(self, first: int, last: int, alpha: float) -> None:
        """Eq. 7 for elements `first` to `last` of every run."""
        self.weights[:, first:last].lerp_(self._targets[:, first:last], alpha)

    # ---- the flat vector ----

    @torch.no_grad()
    def read(self, first: int, last: int, out: _Floats) -> None:
        """Copy elements `first` to `last` of every run into `out`, element-major; a run that diverged is 0 first."""
        least, most = self.weights.aminmax(dim=1)
        sane = (least > -_LIMIT) & (most < _LIMIT)  # not true of a NaN
        for key, whole in self._moments.items():
            if key == "step":
                for rows in self._groups:
                    whole[rows] = whole[rows.start].clone()
            else:
                sane &= torch.isfinite(whole).all(dim=1)
        if not bool(sane.all()):
            self.diverged |= ~sane.numpy()
            for tensor in (self.weights, self.state, *(one for key, one in self._moments.items() if key != "step")):
                tensor[~sane] = 0
        flat = torch.from_numpy(out).view(-1, self.runs)
        for tensor, low, high, offset in self._spans(first, last):
            flat[low - first : high - first] = tensor[:, low - offset : high - offset].t()

    @torch.no_grad()
    def write(self, first: int, last: int, data: _Floats) -> None:
        """The reverse of `read`."""
        flat = torch.from_numpy(data).view(-1, self.runs)
        for tensor, low, high, offset in self._spans(first, last):
            tensor[:, low - offset : high - offset] = flat[low - first : high - first].t()

    @torch.no_grad()
    def errors(self, flat: _Floats, samples: Tensor, labels: Tensor) -> npt.NDArray[np.float64]:
        """Share of wrong answers of each run of a flat vector.

        Args:
            flat: float32[elements x R], element-major.
            samples: float32[n, ...], the same for all runs.
            labels: int64[n].
        """
        rows = torch.from_numpy(flat).view(-1, self.runs).t().contiguous()
        wrong = torch.zeros(self.runs, dtype=torch.int64)
        for some, answers in zip(samples.split(_AT_ONCE), labels.split(_AT_ONCE), strict=True):
            every = some.expand(self.runs, *some.shape)
            logits = self._logits(every, rows[:, : self.parameters], rows[:, self.parameters : self._model], training=False)
            wrong += (logits.argmax(dim=2) != answers).sum(dim=1)
        return wrong.numpy() / len(labels)

    def _spans(self, first: int, last: int) -> Iterator[tuple[Tensor, int, int, int]]:
        """Where elements `first` to `last` lie: tensor, first and last element in it, element at which the tensor begins."""
        moments = [(one, 1 if key == "step" else self.parameters) for key, one in self._moments.items()]
        begins = 0
        for tensor, width in ((self.weights, self.parameters), (self.state, self.state.shape[1]), *moments):
            low, high = max(first, begins), min(last, begins + width)
            if low < high:
                yield tensor, low, high, begins
            begins += width

    # ---- the net ----

    def _logits(self, samples: Tensor, weights: Tensor, state: Tensor, training: bool) -> Tensor:
        """float32[R, batch, classes]. Between layers: float32[R, batch, n], or float32[R, channels, h, w, batch] for images.

        The batch comes last, so that rows of pixels are copied in long pieces.
        """
        x = samples.movedim(1, 4) if samples.dim() == 5 else samples
        named = {**_named(weights, self._shapes), **_named(state, self._buffers)}
        return _apply(self.net, "", x, named, training)


def _drawn(create: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return create()


def _flat(tensors: Iterator[tuple[str, Tensor]], shapes: Mapping[str, tuple[int, ...]]) -> Tensor:
    return torch.cat([torch.zeros(0), *(one.detach().flatten() for name, one in tensors if name in shapes)])


def _named(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> _Tensors:
    """Views of float32[R, elements] by name: float32[R, ...]."""
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    *parts, _ = flat.split([*sizes, flat.shape[1] - sum(sizes)], dim=1)
    return {name: part.view(-1, *shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


def _apply(module: nn.Module, path: str, x: Tensor, named: _Tensors, training: bool) -> Tensor:
    """`module.forward` for all runs; `path` is the module's name, with a dot behind it."""
    found: Tensor
    if isinstance(module, nn.Sequential):
        for name, child in module.named_children():
            x = _apply(child, f"{path}{name}.", x, named, training)
        return x
    if isinstance(module, nn.Linear):
        return torch.baddbmm(named[f"{path}bias"].unsqueeze(1), x, named[f"{path}weight"].transpose(1, 2))
    if isinstance(module, nn.ReLU):
        return torch.relu(x)
    if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3) and module.padding == (1, 1) and module.stride == (1, 1):
        found = _Convolution.apply(x, named[f"{path}weight"], named.get(f"{path}bias"))
        return found
    if isinstance(module, nn.MaxPool2d) and module.kernel_size == 2:
        found = _Largest.apply(x)
        return found
    if isinstance(module, nn.BatchNorm2d) and module.momentum is not None:
        return _normalise(module, path, x, named, training)
    if isinstance(module, nn.Flatten):
        return x.flatten(1, 3).transpose(1, 2)
    if isinstance(module, Residual):
        return torch.relu(x + _apply(module.body, f"{path}body.", x, named, training))
    raise TypeError(f"no stacked form of a module: name={path[:-1]!r}, module={module}")


def _normalise(module: nn.BatchNorm2d, path: str, x: Tensor, named: _Tensors, training: bool) -> Tensor:
    """Every channel of every run is one channel of torch's own function."""
    running = [named[f"{path}{name}"] for name in ("running_mean", "running_var")]
    mean, variance = (one.flatten().clone() for one in running)  # torch changes them in place
    scale, shift = named[f"{path}weight"].flatten(), named[f"{path}bias"].flatten()
    assert module.momentum is not None
    flat = x.reshape(1, len(scale), -1)
    found = functional.batch_norm(flat, mean, variance, scale, shift, training, module.momentum, module.eps)
    if training:
        for one, new in zip(running, (mean, variance), strict=True):
            one.copy_(new.view_as(one))
    return found.view_as(x)


class _Convolution(torch.autograd.Function):
    """3 x 3, one pixel of padding, as one batched product over columns of patches (im2col)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        height, width = x.shape[2:4]
        patches = functional.pad(x, (0, 0, 1, 1, 1, 1)).unfold(2, height, 1).unfold(3, width, 1)  # [R, c, 3, 3, b, h, w]
        columns = patches.permute(0, 1, 2, 3, 5, 6, 4).reshape(len(x), 9 * x.shape[1], -1)
        kernel = weight.flatten(2)
        out = torch.bmm(kernel, columns) if bias is None else torch.baddbmm(bias.unsqueeze(2), kernel, columns)
        ctx.save_for_backward(columns, kernel)
        ctx.shape = x.shape
        return out.view(*weight.shape[:2], *x.shape[2:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        columns, kernel = ctx.saved_tensors
        runs, channels, height, width, batch = ctx.shape
        gradient = gradients[0].flatten(2)
        of_x = None
        if ctx.needs_input_grad[0]:
            parts = torch.bmm(kernel.transpose(1, 2), gradient).view(runs, channels, 3, 3, height, width, batch)
            padded = gradient.new_zeros(runs, channels, height + 2, width + 2, batch)
            for row in range(3):
                for column in range(3):
                    padded[:, :, row : row + height, column : column + width] += parts[:, :, row, column]
            of_x = padded[:, :, 1:-1, 1:-1]
        of_weight = torch.bmm(gradient, columns.transpose(1, 2)).view(runs, -1, channels, 3, 3)
        return of_x, of_weight, gradient.sum(dim=2) if ctx.needs_input_grad[2] else None


class _Largest(torch.autograd.Function):
    """Max pooling of 2 x 2: first of two rows, then of two columns. Of equal pixels the first one gets the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        above, below = x[:, :, ::2], x[:, :, 1::2]
        rows = torch.maximum(above, below)
        left, right = rows[:, :, :, ::2], rows[:, :, :, 1::2]
        ctx.save_for_backward(above >= below, left >= right)
        return torch.maximum(left, right)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        is_above, is_left = ctx.saved_tensors
        of_rows = _given(gradients[0], is_left, dim=3)
        return _given(of_rows, is_above, dim=2)


def _given(gradient: Tensor, first: Tensor, dim: int) -> Tensor:
    """A gradient given to the first or the second of two neighbours along `dim`."""
    taken = gradient.where(first, gradient.new_zeros(()))
    return torch.stack([taken, gradient - taken], dim=dim + 1).flatten(dim, dim + 1)
