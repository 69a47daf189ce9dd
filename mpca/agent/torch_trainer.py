"""A torch model behind the `Trainer` port: pulls, snapshots and installs, fused over views of its tensors.

There is no flat copy of the model. A shard is a list of one-dimensional views of the tensors themselves (a cut may be inside of
a tensor). The views are made once, and one `torch._foreach_*` call works on all of them. The targets of the pull are one flat
tensor, cut into views of the same lengths. Everything is float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mpca.agent.carrier import carrier_for
from mpca.agent.layout import Entry, Layout
from mpca.agent.optimizers import Optimizers, State
from mpca.agent.tensor_memory import check_overlaps, flat_view, is_dense, memory_order
from mpca.agent.trainer import Later, Wait
from mpca.algorithm import ShardPlan
from mpca.errors import ConfigError
from mpca.methods import How

__all__ = ["TorchTrainer"]

_Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Cut:
    """The part of one entry that lies in one shard: elements `start` to `end` of the flattened tensor."""

    entry: int
    start: int
    end: int


class TorchTrainer:
    """One model, for one agent's loop. `how` says what an arrived joint state does to it."""

    def __init__(
        self,
        layout: Layout,
        plan: ShardPlan,
        how: How,
        optimizers: Optimizers | None = None,
        slots: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        self.bounds = layout.bounds(plan)
        self.parameters = layout.parameters
        self._layout = layout
        self._plan = plan
        self._how = how
        self._optimizers = optimizers or Optimizers()
        self._entries = layout.entries
        self._weights = [entry.tensor for entry in self._entries if entry.kind == "parameter"]
        self._cuts = [self._cut(shard) for shard in range(plan.shards)]
        self._sizes = [tuple(cut.end - cut.start for cut in cuts) for cuts in self._cuts]
        self._carrier = carrier_for(layout.device, max(plan.sizes), slots)
        #: x* for the pull; for the correction y, the state that the next arrived shard answers.
        kept = torch.zeros(_kept_elements(layout, how), device=layout.device)
        self._kept = [kept[min(a, kept.numel()) : min(b, kept.numel())] for a, b in pairwise(plan.bounds)]
        self._pointers: tuple[int, ...] = ()
        self._views: list[list[Tensor]] = []  # by shard, of its parameters
        self._targets: list[list[Tensor]] = []  # by shard, views of `_kept` of the same lengths
        self._buffers: dict[_Cut, tuple[Tensor, tuple[int, tuple[int, ...]], Tensor]] = {}  # itself, where it lies, its view
        self._refresh()
        if how is How.CORRECT:  # before the first snapshot, y is the state that the agent started from
            for shard in range(plan.shards):
                self._answer(shard)

    @staticmethod
    def device_bytes(layout: Layout, plan: ShardPlan, how: How) -> int:
        """Bytes on a GPU beside the model: the targets, and a shard in each direction."""
        return 4 * (_kept_elements(layout, how) + 2 * max(plan.sizes))

    @torch.no_grad()
    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """Eq. 7 for all shards that have a target. ``lerp(x, x*, alpha)`` is ``x - alpha (x - x*)``, in one pass."""
        self._refresh()
        for shard, alpha in pulls:
            if self._views[shard]:
                torch._foreach_lerp_(self._views[shard], self._targets[shard], alpha)

    @torch.no_grad()
    def tilt(self, pulls: tuple[tuple[int, float], ...], optimizer: Any) -> None:
        """Eq. 6 for the parameters of one optimiser. Those of a fused one are still scaled, and so is the tilt."""
        self._refresh()
        mine = {id(one) for group in optimizer.param_groups for one in group["params"]}
        scale = getattr(optimizer, "grad_scale", None)
        for shard, alpha in pulls:
            for cut, local, target in zip(self._cuts[shard], self._views[shard], self._targets[shard], strict=False):
                parameter = self._entries[cut.entry].tensor
                if id(parameter) not in mine or parameter.grad is None:
                    continue
                if parameter.grad.stride() != parameter.stride():  # sparse gradients are refused here by torch
                    parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)
                distance = torch.sub(local, target)
                flat_view(parameter.grad)[cut.start : cut.end].add_(
                    distance if scale is None else distance * scale, alpha=alpha
                )

    @torch.no_grad()
    def snapshot(self, shard: int, out: _Array, later: Later | None = None) -> None:
        if shard >= self._plan.shards:
            self._layout.local.read(self.bounds[shard] - self._layout.total, out)
            return
        self._refresh()
        pieces = self._pieces(shard)
        if not pieces:
            return
        torch._foreach_copy_(self._carrier.outgoing(out, self._sizes[shard]), pieces)
        wait = self._carrier.deliver(out)
        if self._how is How.CORRECT:
            self._answer(shard)
        _leave(wait, later)

    @torch.no_grad()
    def install(self, shard: int, data: _Array, version: int, mode: str, later: Later | None = None) -> None:
        if shard >= self._plan.shards:
            self._layout.local.write(self.bounds[shard] - self._layout.total, data)
            return
        self._refresh()
        if not self._cuts[shard]:
            return
        kept = self._kept[shard]
        wire, wait = self._carrier.incoming(data)
        self._make_states(shard, wire)
        state = wire[: kept.numel()]
        match How.REPLACE if mode == "replace" else self._how:
            case How.PULL | How.MIX | How.TILT | How.EAGER:  # moves nothing yet: `pull` does, or `tilt`, or `agent.eager`
                pass
            case How.REPLACE:
                torch._foreach_copy_(self._pieces(shard), list(wire.split(self._sizes[shard])))
            case How.CORRECT:  # x += x* - y; y is now x*, until the next snapshot
                torch.sub(state, kept, out=kept)
                if self._views[shard]:
                    torch._foreach_add_(self._views[shard], self._targets[shard])
        kept.copy_(state)
        self._carrier.taken()
        _leave(wait, later)

    def reset_optimizer(self) -> None:
        self._optimizers.reset()

    def own(self) -> dict[str, Any]:
        """Tensors of the model in their order of memory, words of local tensors, targets; optimisers are saved beside it."""
        self._refresh()
        words = np.empty(self._layout.local.words, np.float32)
        self._layout.local.read(0, words)
        tensors = {entry.name: flat_view(entry.tensor.detach()) for entry in self._entries if entry.kind != "updater"}
        return {"tensors": tensors, "kept": list(self._kept), "local": torch.from_numpy(words)}

    @torch.no_grad()
    def go_on(self, own: dict[str, Any]) -> None:
        self._refresh()
        model = {entry.name: flat_view(entry.tensor) for entry in self._entries if entry.kind != "updater"}
        ours = {name: view.numel() for name, view in model.items()} | {"kept": [one.numel() for one in self._kept]}
        theirs = {name: held.numel() for name, held in own["tensors"].items()} | {"kept": [one.numel() for one in own["kept"]]}
        if ours != theirs or own["local"].numel() != self._layout.local.words:
            other = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
            raise ConfigError(f"the state saved is of another model: {sorted(other)[:3] or 'its local tensors'} differ")
        for name, view in model.items():
            view.copy_(own["tensors"][name])
        for kept, held in zip(self._kept, own["kept"], strict=True):
            kept.copy_(held)
        self._layout.local.write(0, own["local"].numpy())

    def _answer(self, shard: int) -> None:
        """The next arrived shard answers what the parameters are now. A shard of buffers alone, or of nothing, has none."""
        if self._views[shard]:
            torch._foreach_copy_(self._targets[shard], self._views[shard])

    # ---- views ----

    def _cut(self, shard: int) -> list[_Cut]:
        start, end = self.bounds[shard], self.bounds[shard + 1]
        cuts = []
        for number, entry in enumerate(self._entries):
            low, high = max(start, entry.offset), min(end, entry.offset + entry.size)
            if low < high:
                cuts.append(_Cut(number, low - entry.offset, high - entry.offset))
        return cuts

    def _refresh(self) -> None:
        """Make the views again if a parameter was moved (``p.data = ...``, ``model.to(...)``).

        Every update calls it, so it is one C-level map over the addresses, about 40 ns per tensor (350 behind a step that has
        emptied the caches).
        """
        pointers = tuple(map(Tensor.data_ptr, self._weights))
        if pointers == self._pointers:
            return
        model = [entry for entry in self._entries if entry.kind != "updater"]
        for entry in model:
            tensor = entry.tensor
            if tuple(tensor.shape) != entry.shape or tensor.device != self._layout.device:
                raise self._changed(entry, tensor)
            if entry.kind == "parameter" and tensor.dtype != torch.float32:
                raise self._changed(entry, tensor)
        check_overlaps((entry.name, entry.tensor) for entry in model)
        self._views = [[self._view(cut) for cut in cuts if self._entries[cut.entry].kind == "parameter"] for cuts in self._cuts]
        self._targets = [
            _split_like(kept, views) if kept.numel() else [] for kept, views in zip(self._kept, self._views, strict=True)
        ]
        self._pointers = pointers

    def _changed(self, entry: Entry, tensor: Tensor) -> ConfigError:
        return ConfigError(
            f"a tensor changed after attach: {entry.kind}={entry.name}, shape={list(tensor.shape)}, dtype={tensor.dtype}, "
            f"device={tensor.device}, strides={list(tensor.stride())}; it was {list(entry.shape)} on {self._layout.device}, "
            f"dimensions in memory in the order {list(entry.order)}: call model.to(...) before mpca.attach(model, optimizer)"
        )

    def _looked_up(self, cut: _Cut) -> Tensor:
        """The view of a tensor that may be another one by now. That of a buffer is kept as long as it is the same: to make one
        takes 8 us, and a ResNet-152 has 310. An optimiser's state may not be there yet, and be new zeros each time."""
        entry = self._entries[cut.entry]
        if entry.kind != "buffer":
            return self._view(cut)
        tensor = entry.tensor
        now = tensor.data_ptr(), tensor.stride()
        held = self._buffers.get(cut)
        if held is None or held[0] is not tensor or held[1] != now:
            self._buffers[cut] = held = tensor, now, self._view(cut)
        return held[2]

    def _view(self, cut: _Cut) -> Tensor:
        entry = self._entries[cut.entry]
        tensor = entry.tensor
        # a buffer that was assigned anew, in another order or size
        if memory_order(tensor) != entry.order or not is_dense(tensor) or tensor.numel() != entry.size:
            raise self._changed(entry, tensor)
        return flat_view(tensor)[cut.start : cut.end]

    def _pieces(self, shard: int) -> list[Tensor]:
        """All views of a shard: its parameters, then what is looked up each time (`layout.Buffer`, `optimizers.State`)."""
        others = [self._looked_up(cut) for cut in self._cuts[shard] if self._entries[cut.entry].kind != "parameter"]
        return self._views[shard] + others

    def _make_states(self, shard: int, wire: Tensor) -> None:
        """Let the optimisers have the state that arrives before their own first update."""
        for cut in self._cuts[shard]:
            entry = self._entries[cut.entry]
            if isinstance(entry.source, State) and not entry.source.made:
                start = entry.offset + cut.start - self.bounds[shard]
                if wire[start : start + cut.end - cut.start].any():
                    entry.source.make()


def _kept_elements(layout: Layout, how: How) -> int:
    return 0 if how in (How.REPLACE, How.EAGER) else layout.parameters


def _leave(wait: Wait | None, later: Later | None) -> None:
    """Leave what is to be waited for to who asked for that, or wait now."""
    if wait is None:
        return
    if later is None:
        wait()
    else:
        later(wait)


def _split_like(flat: Tensor, pieces: list[Tensor]) -> list[Tensor]:
    return list(flat.split([piece.numel() for piece in pieces]))
