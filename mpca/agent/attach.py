"""The functions for a train function: `attach`, `log`, ..., exported as `mpca.attach`, `mpca.log`, ...

Outside of an agent process they work as in a run of one agent that exchanges nothing: `attach` does nothing. Functions import
torch only when they need it.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpca.agent.attached import several
from mpca.agent.context import AgentContext, current
from mpca.agent.metrics import Metrics
from mpca.agent.optimizers import check_exchanged, unwrapped
from mpca.agent.own_state import OwnState, check_others
from mpca.agent.seeds import seed_everything
from mpca.agent.shares import free_reading, make_share
from mpca.errors import ConfigError
from mpca.methods import How

if TYPE_CHECKING:
    import torch

    from mpca.agent.loop import Laid
    from mpca.agent.watch import ModelWatch
    from mpca.data.share import Share
    from mpca.data.share_iterable import IterableShare
    from mpca.data.stream import Stream

__all__ = ["attach", "dataset", "device", "files", "log", "rank", "samples", "shard", "stopping", "world_size"]

_log = logging.getLogger("mpca.agent")


def attach(
    model: torch.nn.Module | Sequence[torch.nn.Module] | Mapping[str, torch.nn.Module],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | Mapping[str, torch.optim.Optimizer],
    state: Mapping[str, Any] | None = None,
) -> None:
    """Let this agent's model take part in the run: after each update the engine may read it and pull it.

    Blocks until all agents agree on the initial parameters. From then on the model must keep its parameters: a parameter that
    is added, replaced or unfrozen later ends the run at the next update.

    Several models and optimisers are one exchange, given together or in one call each. The exchange begins with the call after
    which every existing optimiser is attached. Several models are saved with the names of a `torch.nn.ModuleDict`: the prefix
    is the key in the dict, or the position in the list or in the order of calls. With several optimisers an update is a round
    in which each has stepped (`mpca.agent.rounds`). When this agent's parameters become non-finite, it takes the joint model,
    and the state of all optimisers begins anew.

    Args:
        model: a model, a list of models, or a dict of models by name.
        optimizer: an optimiser, or a list or dict of optimisers.
        state: what else of this agent is in a backup with ``backup.optimizers``, by name: schedulers, a `torch.amp.GradScaler`,
            an object of the script's own with `state_dict` and `load_state_dict`. When the run goes on from such a backup with
            as many agents, these, the optimisers, this agent's parameters and its random numbers are as they were when
            `attach` returns.

    Raises:
        ConfigError: a model, an optimiser or an object of `state` cannot take part; the text names it and the remedy.
        EnvironmentRefused: too little memory for the parameter slots.
    """
    context = current()
    if context is None:
        return
    _refuse_process_group()
    context.models.add(model, begun=context.attached)
    for one in several(optimizer):
        _follow(context, unwrapped(one))
    _add_others(context, check_others(state))
    if not context.attached:
        context.to_come = context.optimizers.to_come(context.models.parameters())
        if not context.to_come:
            context.watch = _join(context)


def _add_others(context: AgentContext, others: dict[str, Any]) -> None:
    if others and context.attached:
        raise ConfigError(
            f"state was given after the exchange had begun: state={sorted(others)}; what was saved could not reach it: give it "
            "to the first mpca.attach"
        )
    for name, one in others.items():
        if context.others.setdefault(name, one) is not one:
            raise ConfigError(f"two objects have one name: state={name!r}; give each its own")


def _refuse_process_group() -> None:
    distributed = sys.modules["torch"].distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise ConfigError(
            f"torch.distributed is initialised: world_size={distributed.get_world_size()}; agents exchange by mpca, and the "
            "loss of one would block the others: leave out init_process_group and DistributedDataParallel"
        )


def _follow(context: AgentContext, optimizer: torch.optim.Optimizer) -> None:
    tilts = context.method.agent_side.how is How.TILT
    needed = ("register_step_post_hook", *(["register_step_pre_hook"] if tilts else []))
    missing = [hook for hook in needed if not hasattr(optimizer, hook)]
    if missing:
        raise ConfigError(
            f"not an optimizer: type={type(optimizer).__name__}, it has no {missing[0]}; "
            "mpca.attach(model, optimizer) takes a torch.optim.Optimizer, or a list of them"
        )
    if context.method.takes_gradients:
        _refuse_all_but_plain_sgd(optimizer, context.method.name)
    exchanged = context.method.agent_side.exchanges_optimizer
    if exchanged:
        check_exchanged(optimizer, context.method.name)
    if not context.optimizers.add(optimizer):
        return
    if exchanged and context.attached:
        raise ConfigError(
            f"method {context.method.name} averages the optimiser's state, and an optimizer was attached after the first "
            f"exchange: optimizer={type(optimizer).__name__}; make it before mpca.attach(model, optimizer)"
        )
    context.rounds.add(id(optimizer))
    if context.attached:  # a trainer makes new optimizers for its second training
        for other in context.optimizers.replaced_by(optimizer):
            context.rounds.rest(id(other))

    def after_step(_: Any, args: Any, kwargs: Any) -> None:
        if context.watch is None:
            context.check_begun()
        elif context.rounds.stepped(id(optimizer)):
            _refuse_process_group()
            context.watch.check()
            context.loop.between_batches()

    optimizer.register_step_post_hook(after_step)
    if tilts:

        def before_step(_: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
            if context.watch is None:
                return None
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            if closure is None:
                context.loop.before_step(optimizer)
                return None

            def tilted() -> Any:  # the gradients are made in the step (LBFGS, Lightning)
                loss = closure()
                context.loop.before_step(optimizer)
                return loss

            return (args, {**kwargs, "closure": tilted}) if "closure" in kwargs else ((args[0], tilted, *args[2:]), kwargs)

        optimizer.register_step_pre_hook(before_step)


def _refuse_all_but_plain_sgd(optimizer: torch.optim.Optimizer, method: str) -> None:
    """Of torch's own optimisers; what a class of the user's does, the user knows."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return
    name, momentum = type(optimizer).__name__, max(group.get("momentum", 0) for group in optimizer.param_groups)
    if name != "SGD" or momentum:
        has = f", momentum={momentum}" if momentum else ""
        raise ConfigError(
            f"method {method} takes an update for a gradient, and the driver has the momentum: optimizer={name}{has}; "
            "take torch.optim.SGD without momentum, or another method"
        )


def _join(context: AgentContext) -> ModelWatch:
    import torch

    from mpca import __version__
    from mpca.agent.cuda import refused_when_full
    from mpca.agent.layout import read_layout
    from mpca.agent.names import own_names
    from mpca.agent.torch_trainer import TorchTrainer
    from mpca.agent.watch import ModelWatch
    from mpca.shm import AgentSegment
    from mpca.wire.messages import Hello

    start, model = context.start, context.models.whole
    side = context.method.agent_side
    layout, own = read_layout(model, context.optimizers if side.exchanges_optimizer else None), own_names(model)
    x0_hash, how = layout.sha256(), side.how

    def lay(shards: int) -> Laid:
        plan = layout.plan(shards, start.layer_aligned)
        bounds = layout.bounds(plan)
        segment = AgentSegment(bounds, start.agent)
        hello = Hello(
            agent=start.agent,
            incarnation=start.incarnation,
            pid=os.getpid(),
            python=platform.python_version(),
            torch=torch.__version__,
            mpca=__version__,
            x0_hash=x0_hash,
            layout=[[own(name), *rest] for name, *rest in layout.rows()],
            local={own(name): row for name, row in layout.local.rows().items()},
            tied={own(alias): own(name) for alias, name in layout.tied.items()},
            bounds=bounds,
            parameters=layout.parameters,
            segment_fd=segment.fd,
            segment_bytes=segment.size_bytes,
            slots=segment.slots,
        )
        with refused_when_full(layout.device, TorchTrainer.device_bytes(layout, plan, how)):
            trainer = TorchTrainer(layout, plan, how, context.optimizers, segment.memory)
        segment.lay_initial(trainer.snapshot)
        return trainer, segment, hello

    watch = ModelWatch(model, context.optimizers, layout)
    context.loop.join(lay, OwnState(layout.device, context.optimizers, context.others))
    # Until here all agents drew equal random numbers, to make the same x_0; from here on each draws its own.
    seed_everything(start.seed, start.agent, start.incarnation)
    if start.state and not context.loop.stopping:
        data = _saved(start.state)
        try:
            context.loop.go_on(data)
        except ConfigError as error:
            raise ConfigError(f"{error}; to begin at the joint model, resume with backup.optimizers = false") from None
    return watch


def _saved(state: Mapping[str, Any]) -> bytes:
    """The bytes of this agent's state, through its executor if they lie on HDFS."""
    from mpca.storage import Location
    from mpca.storage.opening import open_store

    place = Location.parse(state["url"])
    data = open_store(place.parent).read(place.name)
    if len(data) != state["bytes"] or hashlib.sha256(data).hexdigest() != state["sha256"]:
        raise ConfigError(
            f"this agent's state in the backup is damaged: path={place.text}, bytes={len(data)} of {state['bytes']}; resume "
            "from another backup (`mpca backups`), or with backup.optimizers = false, from the joint model alone"
        )
    return data


def log(**metrics: Any) -> None:
    """Report numbers, such as ``log(loss=loss, lr=rate)``: at every step, or when there are any.

    Their means since the last report go to the driver, about once a second: to the progress line (the mean over agents of the
    first one logged), `records.jsonl` (kind `metrics`), the report's curves and `Result.history`.

    Args:
        metrics: numbers, or tensors of one element. A tensor on a GPU is read only when it is sent.

    Raises:
        ConfigError: a value is not a number.
    """
    context = current()
    (Metrics() if context is None else context.metrics).add(metrics)


def rank() -> int:
    """This agent's number, 0 when alone."""
    context = current()
    return 0 if context is None else context.start.agent


def world_size() -> int:
    """Number of agents that the run wants, 1 when alone."""
    context = current()
    return 1 if context is None else context.start.agents


def stopping() -> bool:
    """Whether the run is ending; a loop over `mpca.dataset` or `mpca.shard` ends by itself."""
    context = current()
    return False if context is None else context.loop.stopping


def samples(count: int) -> None:
    """Add a batch's samples to the count for images/s. `mpca.dataset` and `mpca.shard` do this by themselves.

    Args:
        count: number of samples.
    """
    context = current()
    if context is not None:
        context.loop.samples += count


def device() -> torch.device:
    """The device for this agent's model; when alone, the first GPU, or the CPU if there is none."""
    from mpca.agent.cuda import device_of, first_gpu

    context = current()
    return first_gpu() if context is None else device_of(context.start.device)


def shard(dataset: Any, batch_size: int = 32, *, epochs: int | None = None, **loader: Any) -> Share | IterableShare:
    """This agent's batches of a data set, shuffled anew in each epoch. An iteration ends when the run ends.

    The first data set that is shared by this function takes account of agents that are lost or join (`mpca.data.epochs`). Every
    further one is always divided among `world_size()` agents.

    Args:
        dataset: a map-style data set, with ``len`` and indices; or a torch `IterableDataset`, of which this agent gets every
            `world_size()`-th sample, in the data set's own order.
        batch_size: largest number of samples of a batch.
        epochs: number of epochs of one iteration; None: until the run ends (alone: without end). A second iteration
            continues with the next epoch, so ``for epoch in range(90): for x, y in share`` shuffles anew each time.
        loader: arguments of `torch.utils.data.DataLoader`, such as ``num_workers=2``.

    Raises:
        ConfigError: neither kind of data set, `batch_size` below 1, or fewer samples than agents.
    """
    return make_share(dataset, batch_size, epochs, free_reading(), loader)


def files(pattern: str) -> list[str]:
    """This agent's share of the files that match a pattern, sorted. Together the agents have all files.

    Args:
        pattern: as for `glob`; ``**`` stands for any folders.

    Raises:
        ConfigError: no file matches, or fewer than agents.
    """
    found = sorted(glob.glob(pattern, recursive=True))
    if len(found) < world_size():
        raise ConfigError(f"fewer files than agents: {len(found)} files for {world_size()} agents, pattern={pattern!r}")
    return found[rank() :: world_size()]


def dataset(
    split: str = "train", batch_size: int | None = None, *, epochs: int | None = None
) -> Share | IterableShare | Stream:
    """This agent's batches of the data set that the run's configuration names (section [data]).

    Those of an ingested data set lie on `mpca.device()`: images get there as bytes, and become float32 there.

    Args:
        split: "train", or another split of the data set. Only "train" takes account of agents that are lost or join.
        batch_size: largest number of samples of a batch; None: `data.batch_size` of the configuration, or 32.
        epochs: number of epochs of one iteration, as for `shard`; None: until the run ends.

    Raises:
        ConfigError: the configuration names no data set, or the data set cannot be read; or a GPU is to decode images, and this
            agent has none.
        EnvironmentRefused: the installed torchvision does not decode on a GPU.
        ValueError: the data set has no such split.
    """
    from mpca.data import check_decoder, load, own_options

    context = current()
    section, seed = ({}, 0) if context is None else (context.start.conf.get("data", {}), context.start.seed)
    if not section.get("name"):
        raise ConfigError(
            f"no data set is configured: mpca.dataset({split!r}) reads data.name of the run's configuration; "
            "set it, or pass a data set of your own to mpca.shard(dataset)"
        )
    found = load(section["name"], split, seed, **own_options(section))
    batch_size = batch_size or section.get("batch_size", 32)
    reads = (
        context.loop.reading if context is not None and split == "train" else None
    )  # only "train" follows changes of readers
    if not hasattr(found, "stream"):
        return make_share(found, batch_size, epochs, reads, {})
    start = None if context is None else context.start
    on = device()
    jpegs = None
    if check_decoder(section, on.type):
        from mpca.agent.cuda import CudaJpegs

        jpegs = CudaJpegs(on)
    stream = found.stream(
        batch_size,
        agent=rank(),
        agents=world_size(),
        incarnation=0 if start is None else start.incarnation,
        device=on,
        jpegs=jpegs,
        stopping=stopping,
        count=samples,
        epochs=epochs,
        max_bad_fraction=section.get("max_bad_fraction", 0.0),
        readers=None if reads is None else reads.readers,
        **({} if context is None else {"tell_bad": context.loop.reading.bad.add}),
    )
    if reads is not None:
        reads.stream = stream
    return stream
