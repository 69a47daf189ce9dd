"""`mpca.transformers.Callback`: a `transformers.Trainer` inside a train function takes part in the run.

It attaches the model and its optimiser, gives the agent its share of the training data, and lets agent 0 alone write
checkpoints and logs. What the trainer logs goes to `mpca.log`; the end of the run stops it. Outside of a run it does nothing.
"""

from __future__ import annotations

from typing import Any

from mpca.agent.attach import attach, log, rank, stopping
from mpca.agent.context import current
from mpca.agent.shares import share_of_loader
from mpca.errors import ConfigError
from mpca.extras import extras

with extras():
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import SaveStrategy

__all__ = ["Callback"]

#: How fast it is and where it is, which mpca tells by itself.
_NOT_LOGGED = ("epoch", "total_flos", "_runtime", "_per_second")


def _is_number(value: object) -> bool:
    """Of Python's, NumPy's, or a tensor of no dimension; texts are left out."""
    return isinstance(value, (int, float)) or (getattr(value, "ndim", None) == 0 and not isinstance(value, str))


class Callback(TrainerCallback):  # type: ignore[misc]  # its types are not read
    """For ``trainer.add_callback(mpca.transformers.Callback(trainer))``, with one device. Also for subclasses of `Trainer`.

    Args:
        trainer: whose training data is divided. Callbacks are not told of it by transformers.
        shard: replace the sampler of the training data by the agent's share (`mpca.shard`). False: the data set gives each
            agent what it is to read already.

    Raises:
        ConfigError: several devices, a second callback, (in `train`) a sampler that cannot be divided, or what `mpca.attach`
            refuses.
    """

    def __init__(self, trainer: Trainer, *, shard: bool = True) -> None:
        self._in_run = current() is not None
        if not self._in_run:
            return
        self._loader = trainer.get_train_dataloader
        if isinstance(getattr(self._loader, "__self__", None), Callback):
            raise ConfigError("two callbacks of mpca.transformers for one trainer: its data would be divided twice; make one")
        args = trainer.args
        if args.n_gpu > 1 or args.world_size > 1 or trainer.accelerator.distributed_type != "NO":
            raise ConfigError(
                f"a Trainer inside of an agent has one device: n_gpu={args.n_gpu}, world_size={args.world_size}, "
                f"distributed_type={trainer.accelerator.distributed_type.value}; the run has the agents (cluster.agents), so "
                "leave launchers, DeepSpeed and FSDP out; on CPUs, set TrainingArguments(use_cpu=True)"
            )
        # Of this number transformers and accelerate ask who writes; that there is one process, they ask of another.
        args.distributed_state.process_index = args.distributed_state.local_process_index = rank()
        # Of an iterable data set accelerate lets process 0 read, and the others wait for its batches.
        trainer.accelerator.dataloader_config.dispatch_batches = False
        if rank():
            args.save_strategy = SaveStrategy.NO  # of a checkpoint every process would write its random state
        if shard:
            trainer.get_train_dataloader = self._share
            args.ignore_data_skip = True  # who goes on from a checkpoint has another order; a share has nothing to skip

    def _share(self) -> Any:
        return share_of_loader(self._loader(), "divide it yourself and say mpca.transformers.Callback(trainer, shard=False)")

    def on_train_begin(self, args: Any, state: Any, control: Any, **of: Any) -> None:
        if self._in_run:
            attach(of["model"], of["optimizer"])

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **of: Any) -> None:
        if "train_runtime" not in (given := logs or {}):  # the summary at the end
            log(**{name: x for name, x in given.items() if _is_number(x) and not name.endswith(_NOT_LOGGED)})

    def on_step_end(self, args: Any, state: Any, control: Any, **of: Any) -> None:
        if stopping():
            control.should_training_stop = True
