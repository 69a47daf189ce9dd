"""What a train function calls: `attach` and its small neighbours, exported as `mpca.attach`, `mpca.log`, ...

Outside an agent process all of it works as for a run of one agent that exchanges with nobody: `attach` does nothing.
torch is imported only by what needs it.
"""

from __future__ import annotations

import glob
import logging
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

from mpca.agent.context import AgentContext, current
from mpca.agent.seeds import seed_everything
from mpca.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from mpca.agent.reading import Reading
    from mpca.data.share import Share
    from mpca.data.share_iterable import IterableShare
    from mpca.data.stream import Stream

__all__ = ["agent", "agents", "attach", "data", "device", "files", "log", "samples", "shard", "stopping"]

_log = logging.getLogger("mpca.agent")


def attach(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Let this agent's model take part in the run: after every `optimizer.step()` it may be read and pulled.

    Blocks until all agents agree on the initial parameters. With several optimisers the first one attached counts.

    Raises:
        ConfigError: the model cannot be exchanged; the text names the tensor and the remedy.
        EnvironmentRefused: too little memory for the parameter slots.
    """
    context = current()
    if context is None or context.attached:
        return
    _join(context, model)
    context.attached = True
    loop = context.loop
    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: loop.between_batches())


def _join(context: AgentContext, model: torch.nn.Module) -> None:
    import torch

    from mpca import __version__
    from mpca.agent.layout import read_layout
    from mpca.agent.torch_trainer import TorchTrainer
    from mpca.shm import Segment
    from mpca.wire.messages import Hello

    start = context.start
    layout = read_layout(model)
    plan = layout.plan(start.shards, start.layer_aligned)
    segment = Segment(plan.bounds, start.agent)
    hello = Hello(
        agent=start.agent,
        incarnation=start.incarnation,
        pid=os.getpid(),
        python=platform.python_version(),
        torch=torch.__version__,
        mpca=__version__,
        x0_hash=layout.sha256(),
        layout=layout.rows(),
        local=layout.local,
        tied=layout.tied,
        bounds=list(plan.bounds),
        parameters=layout.parameters,
        segment_fd=segment.fd,
        segment_bytes=segment.size_bytes,
        slots=segment.slots,
    )
    context.loop.join(TorchTrainer(layout, plan, context.method.arrival), segment, hello)
    # Until here every agent drew the same numbers, so that all make the same x_0; from here on each draws its own.
    seed_everything(start.seed, start.agent, start.incarnation)


def log(**metrics: Any) -> None:
    """Report the newest values of numbers, such as ``log(loss=loss)``; tensors are read only when they are sent."""
    context = current()
    if context is None:
        return
    for name, value in metrics.items():
        # Not float(): on a GPU that waits for the device at every step.
        context.metrics[name] = value.detach() if hasattr(value, "detach") else float(value)


def agent() -> int:
    """This agent's number, 0 when alone."""
    context = current()
    return 0 if context is None else context.start.agent


def agents() -> int:
    """How many agents the run wants, 1 when alone."""
    context = current()
    return 1 if context is None else context.start.agents


def stopping() -> bool:
    """Whether the run is to end; a loop over `mpca.data` or `mpca.shard` ends by itself."""
    context = current()
    return False if context is None else context.loop.stopping


def samples(count: int) -> None:
    """Count samples of a batch for images/s. `mpca.data` and `mpca.shard` count by themselves."""
    context = current()
    if context is not None:
        context.loop.samples += count


def device() -> torch.device:
    """Where this agent's model belongs; alone, the first GPU if there is one."""
    import torch

    context = current()
    if context is not None:
        return torch.device(context.start.device)
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def shard(dataset: Any, batch_size: int = 32, *, epochs: int | None = None, **loader: Any) -> Share | IterableShare:
    """This agent's batches of a map-style data set, shuffled anew each epoch; ends when the run does.

    Args:
        dataset: anything with ``len`` and indices; or a torch `IterableDataset`, of which this agent gets every
            `agents()`-th sample, in the data set's own order.
        batch_size: samples of one batch, at most.
        epochs: how often an iteration goes through the share; None: until the run ends (alone: for ever). The next
            iteration is of the next epoch, so ``for epoch in range(90): for x, y in share`` shuffles anew each time.
        loader: passed on to `torch.utils.data.DataLoader`, such as ``num_workers=2``.

    The first data set that is shared so is the one whose epochs follow agents that are lost or join (`mpca.data.epochs`);
    any other is dealt to as many agents as the run wants.

    Raises:
        ConfigError: neither kind of data set, or fewer samples than agents.
    """
    context = current()
    reads = None if context is None or context.loop.reading.stream is not None else context.loop.reading
    return _shard(dataset, batch_size, epochs, reads, loader)


def _shard(
    dataset: Any, batch_size: int, count: int | None, reads: Reading | None, loader: dict[str, Any]
) -> Share | IterableShare:
    from mpca.data.epochs import Epochs
    from mpca.data.share import Share

    epochs = Epochs(agent(), agents(), count, None if reads is None else reads.membership)
    torch_data = sys.modules.get("torch.utils.data")  # who has such a data set has imported it
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        from mpca.data.share_iterable import IterableShare

        share: Share | IterableShare = IterableShare(
            dataset, batch_size, epochs=epochs, stopping=stopping, count=samples, **loader
        )
    else:
        context = current()
        start = None if context is None else context.start
        share = Share(
            dataset,
            batch_size,
            seed=0 if start is None else start.seed,
            incarnation=0 if start is None else start.incarnation,
            epochs=epochs,
            stopping=stopping,
            count=samples,
            **loader,
        )
    if reads is not None:
        reads.stream = epochs
    return share


def files(pattern: str) -> list[str]:
    """This agent's share of the files that a pattern names (``**`` for any folders), sorted; together the agents have all.

    Raises:
        ConfigError: no such file, or fewer than agents.
    """
    found = sorted(glob.glob(pattern, recursive=True))
    if len(found) < agents():
        raise ConfigError(f"fewer files than agents: {len(found)} files for {agents()} agents, pattern={pattern!r}")
    return found[agent() :: agents()]


def data(split: str = "train", batch_size: int | None = None) -> Share | IterableShare | Stream:
    """This agent's batches of the data set that the run's configuration names (section [data]).

    Raises:
        ConfigError: no configuration names one.
    """
    from mpca.data import load, own_options

    context = current()
    section, seed = ({}, 0) if context is None else (context.start.conf.get("data", {}), context.start.seed)
    if not section.get("name"):
        raise ConfigError(
            f"no data set is configured: mpca.data({split!r}) reads data.name of the run's configuration; "
            "set it, or pass a data set of your own to mpca.shard(dataset)"
        )
    found = load(section["name"], split, seed, **own_options(section))
    batch_size = batch_size or section.get("batch_size", 32)
    reads = context.loop.reading if context is not None and split == "train" else None  # of others everybody reads its own
    if not hasattr(found, "stream"):
        return _shard(found, batch_size, None, reads, {})
    start = None if context is None else context.start
    stream = found.stream(
        batch_size,
        agent=agent(),
        agents=agents(),
        incarnation=0 if start is None else start.incarnation,
        stopping=stopping,
        count=samples,
        max_bad_fraction=section.get("max_bad_fraction", 0.0),
        membership=None if reads is None else reads.membership,
    )
    if reads is not None:
        reads.stream = stream
    return stream
