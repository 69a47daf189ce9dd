"""`mpca.lightning.Strategy`: a Lightning `Trainer` inside a train function takes part in the run.

Lightning chooses a way of distributed training by its strategy. So this is one, by public hooks alone: it attaches the module
and its optimisers, gives the agent its share of the training data, and lets agent 0 alone write checkpoints and logs. What the
module logs goes to `mpca.log`; the end of the run stops the trainer. Outside of a run the trainer works on one device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpca.agent.attach import attach, device, log, rank, stopping
from mpca.agent.context import current
from mpca.agent.shares import share_of_loader
from mpca.errors import ConfigError
from mpca.extras import extras

with extras():
    from lightning.pytorch import Callback, Trainer
    from lightning.pytorch.accelerators import CPUAccelerator
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from lightning.pytorch.utilities.rank_zero import rank_zero_only

if TYPE_CHECKING:
    import torch

__all__ = ["Strategy"]


class Strategy(SingleDeviceStrategy):  # type: ignore[misc]  # its types are not read
    """For ``lightning.Trainer(strategy=mpca.lightning.Strategy(), ...)``, with one device.

    Args:
        shard: replace the training loaders' samplers by the agent's share (`mpca.shard`). False: the loaders give each agent
            what it is to read already.

    Raises:
        ConfigError: (in `Trainer`) several devices or nodes; (in `fit`) a sampler that cannot be divided, or what `mpca.attach`
            refuses.
    """

    def __init__(self, *, shard: bool = True) -> None:
        super().__init__(device())
        self._in_run = current() is not None
        self._shard = shard
        self._reports = _Reports()
        self.global_rank = rank_zero_only.rank = rank() if self._in_run else rank_zero_only.rank
        #: `Trainer` fills these in from its arguments of the same meaning, then calls `set_world_ranks`.
        self.parallel_devices: list[torch.device] | None = None
        self.num_nodes = 1

    @property
    def is_global_zero(self) -> bool:
        """Whether this agent writes checkpoints and logs."""
        return self.global_rank == 0

    def set_world_ranks(self) -> None:
        """`Trainer` has read its arguments. The device is the CPU where the run or the trainer says so."""
        devices = self.parallel_devices or [self.root_device]
        if "cpu" in (self.root_device.type, devices[0].type):
            self._root_device, self.accelerator = self.root_device.__class__("cpu"), CPUAccelerator()
        several = len(devices) > 1 and devices[0].type == self.root_device.type
        if self._in_run and (several or self.num_nodes > 1):
            raise ConfigError(
                f"a Trainer inside of an agent has one device: devices={len(devices)}, num_nodes={self.num_nodes}; the run has "
                "the agents (cluster.agents), so leave both out"
            )

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        if self._in_run and self._reports not in trainer.callbacks:
            trainer.callbacks.insert(0, self._reports)

    def process_dataloader(self, dataloader: object) -> object:
        assert self.lightning_module is not None
        trainer = self.lightning_module.trainer
        if not (self._in_run and self._shard and trainer.training):
            return dataloader
        every = trainer.reload_dataloaders_every_n_epochs
        if every:
            raise ConfigError(
                f"Trainer(reload_dataloaders_every_n_epochs={every}): each new share would begin with the order of epoch 0; "
                "leave it out, or divide the loaders yourself and say mpca.lightning.Strategy(shard=False)"
            )
        return share_of_loader(dataloader, "divide it yourself and say mpca.lightning.Strategy(shard=False)")

    def on_train_start(self) -> None:
        super().on_train_start()
        assert self.lightning_module is not None
        if not any(optimizer.param_groups for optimizer in self.optimizers):  # Lightning puts one without parameters there
            raise ConfigError(
                f"a module without optimizers: {type(self.lightning_module).__name__}.configure_optimizers returned none; "
                "agents exchange after an optimizer's steps"
            )
        attach(self.lightning_module, self.optimizers)

    def teardown(self) -> None:
        """As Lightning's; but the model stays on its device, since the agent hands it over until the run ends."""
        if not self._in_run:
            super().teardown()
            return
        assert self.accelerator is not None
        for part in (self.precision_plugin, self.accelerator, self.checkpoint_io):
            part.teardown()


class _Reports(Callback):  # type: ignore[misc]
    """Gives `mpca.log` what the module has logged since the last batch, and stops the trainer when the run ends."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not self._log(trainer) and isinstance(outputs, dict) and "loss" in outputs:
            log(loss=outputs["loss"])
        self._stop(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._stop(trainer)  # of a share of `mpca.shard`, which ends by itself, epochs have no batches from then on

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._log(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._log(trainer)

    def _stop(self, trainer: Trainer) -> None:
        if stopping():
            trainer.should_stop = True
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None  # the end of the run outranks them

    def _log(self, trainer: Trainer) -> bool:
        """Whether there was anything: a value that was logged anew is another tensor."""
        new = {name: value for name, value in trainer.callback_metrics.items() if self._known.get(name) is not value}
        self._known.update(new)
        log(**new)
        return bool(new)
