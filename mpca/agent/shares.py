"""This agent's share of a data set, by what its process knows of the run: numbers, seed, readers. Alone: everything.

Not for what a share is: `mpca.data.share`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpca.agent.context import current
from mpca.errors import ConfigError

if TYPE_CHECKING:
    from mpca.agent.reading import Reading
    from mpca.data.share import Share
    from mpca.data.share_iterable import IterableShare

__all__ = ["free_reading", "make_share", "share_of_loader"]

#: Options of a DataLoader that its share keeps, with their defaults.
_KEPT = {
    "num_workers": 0,
    "pin_memory": False,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "prefetch_factor": None,
    "in_order": True,
}


def free_reading() -> Reading | None:
    """The list of readers for a share that shall follow it: the first share of a function."""
    context = current()
    return None if context is None or context.loop.reading.stream is not None else context.loop.reading


def make_share(
    dataset: Any,
    batch_size: int,
    count: int | None,
    reads: Reading | None,
    loader: dict[str, Any],
    stopping: Callable[[], bool] | None = None,
    steady: bool = False,
) -> Share | IterableShare:
    """As `mpca.shard`.

    Args:
        dataset: map-style, or torch's IterableDataset.
        batch_size: largest number of samples of a batch.
        count: number of epochs of one iteration; None: no end.
        reads: the list of readers that the share follows; None: it is always divided among all agents.
        loader: arguments of `torch.utils.data.DataLoader`.
        stopping: ends an iteration; None: the end of the run does.
        steady: its length is that of an epoch of all agents, whoever is lost.
    """
    from mpca.data.epochs import Epochs
    from mpca.data.share import Share

    context = current()
    agent, agents, seed, incarnation = 0, 1, 0, 0
    if context is not None:
        start = context.start
        agent, agents, seed, incarnation = start.agent, start.agents, start.seed, start.incarnation

    def samples(count: int) -> None:
        if context is not None:
            context.loop.samples += count

    epochs = Epochs(agent, agents, count, None if reads is None else reads.readers, steady)
    common: dict[str, Any] = {
        "epochs": epochs,
        "stopping": stopping or (lambda: context is not None and context.loop.stopping),
        "count": samples,
        **loader,
    }
    torch_data = sys.modules.get("torch.utils.data")  # a program with an IterableDataset has imported this already
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        from mpca.data.share_iterable import IterableShare

        share: Share | IterableShare = IterableShare(dataset, batch_size, **common)
    else:
        share = Share(dataset, batch_size, seed=seed, incarnation=incarnation, **common)
    if reads is not None:
        reads.stream = epochs
    return share


def share_of_loader(loader: object, remedy: str) -> object:
    """The share of the data set of a trainer's DataLoader; an iteration is one epoch, and the trainer ends it when it stops.

    Args:
        loader: whose data set, batch size, collate function and workers are taken. Its sampler is replaced. What is no
            DataLoader, such as a share, is returned as it is.
        remedy: what to do about a sampler that cannot be replaced, for the error.

    Raises:
        ConfigError: the loader has a sampler of the user's own, or one of a part of the data set, or makes no batches.
    """
    from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, default_collate

    if not isinstance(loader, DataLoader):
        return loader
    batches, size = loader.batch_sampler, loader.batch_size
    iterable = isinstance(loader.dataset, IterableDataset)
    if batches is not None and not iterable:
        sampler, size = (batches.sampler, batches.batch_size) if type(batches) is BatchSampler else (batches, 1)
        if not (
            isinstance(sampler, (RandomSampler, SequentialSampler))
            and not getattr(sampler, "replacement", False)
            and (not hasattr(loader.dataset, "__len__") or len(sampler) == len(loader.dataset))
        ):
            raise ConfigError(
                f"a sampler that is not divided among agents: sampler={type(sampler).__name__}; leave it out, and each agent "
                f"reads its share in an order of its own; or {remedy}"
            )
    if size is None:
        raise ConfigError(f"a loader without batches is not divided among agents: batch_size=None; give it one, or {remedy}")
    options = {name: found for name, usual in _KEPT.items() if (found := getattr(loader, name, usual)) != usual}
    if loader.collate_fn is not default_collate:
        options["collate_fn"] = loader.collate_fn
    if iterable:
        options["splits_itself"] = True  # else torch's loader would have given each of its samples by every worker
        options["drop_last"] = loader.drop_last  # its last batch may be small
    # Lightning validates after as many batches as it was told of when it began; a shorter epoch would have no validation.
    return make_share(loader.dataset, size, 1, free_reading(), options, stopping=lambda: False, steady=True)
