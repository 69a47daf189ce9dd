"""`mpca.lightning.Strategy` with the real Lightning: what is divided, counted, logged, written, stopped and refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import nn
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

import mpca
from mpca.data.plan import Readers
from mpca.errors import ConfigError, EnvironmentRefused
from mpca.lightning import Strategy
from tests.trainers.conftest import Agent

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch, about Lightning
    pytest.mark.filterwarnings(f"ignore::{PossibleUserWarning.__module__}.PossibleUserWarning"),  # advice for real trainings
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*not supported on CPU"),
]
BecomeAgent = Callable[..., Agent]
ROWS = 40


class Module(pl.LightningModule):
    """Notes which rows it was given, in which epoch."""

    def __init__(self, logs: bool = True) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.logs = logs
        self.seen: list[list[float]] = []
        self.at_batch: Callable[[int], None] = lambda batch: None

    def on_train_epoch_start(self) -> None:
        self.seen.append([])

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        (x,) = batch
        self.seen[-1] += x.flatten().tolist()
        self.at_batch(batch_idx)
        loss = self.net(x).square().mean()
        if self.logs:
            self.log("train_loss", loss)
            self.log("rows", float(len(x)), on_step=False, on_epoch=True, reduce_fx="sum")
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", 7.0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def rows(count: int = ROWS) -> TensorDataset:
    return TensorDataset(torch.arange(count, dtype=torch.float32).reshape(-1, 1))


def loader(**options: Any) -> DataLoader:
    return DataLoader(rows(), **{"batch_size": 5, "shuffle": True, **options})


def trainer(tmp_path: Path, **options: Any) -> pl.Trainer:
    usual = {
        "accelerator": "cpu",
        "max_epochs": 2,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": tmp_path,
        "strategy": Strategy(),
    }
    return pl.Trainer(**{**usual, **options})


def seen_in(trainer: pl.Trainer, batches: Any) -> list[list[float]]:
    """The rows of each epoch; nothing else is left of the training."""
    module = Module()
    trainer.fit(module, batches)
    return module.seen


@pytest.fixture(autouse=True)
def rank_of_others() -> Any:
    before = rank_zero_only.rank
    yield
    rank_zero_only.rank = before


def test_alone_the_trainer_reads_everything(tmp_path: Path) -> None:
    module = Module()
    trainer(tmp_path).fit(module, loader())
    assert [sorted(one) for one in module.seen] == [list(range(ROWS))] * 2


def test_agents_divide_each_epoch_and_count_steps_and_samples(agent: BecomeAgent, tmp_path: Path) -> None:
    seen = []
    for number in (0, 1):
        one = agent(agent=number)
        seen.append(seen_in(trainer(tmp_path), loader()))
        assert (one.updates, one.samples) == (8, ROWS)
    for first, second in zip(*seen, strict=True):
        assert len(first) == len(second) == ROWS // 2
        assert sorted(first + second) == list(range(ROWS))
    assert seen[0][0] != seen[0][1], "shuffled anew"


def test_what_is_exchanged_has_the_names_of_a_lightning_checkpoint(agent: BecomeAgent, tmp_path: Path) -> None:
    one = agent()
    trainer(tmp_path).fit(Module(), loader())
    assert [name for name, *_ in one.hello.layout] == ["net.weight", "net.bias"]


def test_schedules_are_as_long_as_the_share(agent: BecomeAgent, tmp_path: Path) -> None:
    steps = []

    class Scheduled(Module):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            steps.append(self.trainer.estimated_stepping_batches)
            return super().configure_optimizers()

    one = agent()
    trainer(tmp_path, max_epochs=3).fit(Scheduled(), loader())
    assert steps == [one.updates] == [12]


def test_an_update_is_a_step_of_the_optimizer_not_a_batch(agent: BecomeAgent, tmp_path: Path) -> None:
    one = agent()
    trainer(tmp_path, accumulate_grad_batches=2, precision="bf16-mixed").fit(Module(), loader())
    assert (one.updates, one.samples) == (4, ROWS)


def test_a_step_that_the_gradient_scaler_skips_is_no_update(agent: BecomeAgent, tmp_path: Path) -> None:
    """The scale doubles after each step, until the scaled loss overflows float32."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=1, growth_factor=2.0)
    one = agent()
    plain = torch.autocast("cpu", enabled=False)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    plugin.autocast_context_manager = lambda: plain  # type: ignore[method-assign]  # float16 sums are slow on CPUs
    trainer(tmp_path, plugins=[plugin]).fit(Module(), loader())
    assert 0 < one.updates < one.samples // 5


def test_two_optimizers_are_one_exchange(agent: BecomeAgent, tmp_path: Path) -> None:
    class Two(Module):
        automatic_optimization = False

        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(1, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for net, optimizer in zip((self.net, self.other), self.optimizers(), strict=True):
                optimizer.zero_grad()
                self.manual_backward(net(batch[0]).mean())
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(net.parameters(), lr=1e-3) for net in (self.net, self.other)]

    one = agent()
    trainer(tmp_path).fit(Two(), loader())
    assert (one.updates, len(one.hello.layout)) == (8, 4)


def test_what_the_module_logs_reaches_mpca_log(agent: BecomeAgent, tmp_path: Path) -> None:
    one, module = agent(), Module()
    logged = []
    module.at_batch = lambda batch: logged.append(one.logged)
    trainer(tmp_path, max_epochs=1).fit(module, loader(), DataLoader(rows(4)))
    assert [sorted(at) for at in logged] == [[], *[["train_loss"]] * 3]
    last = one.logged
    assert (last.pop("rows"), last.pop("val_loss")) == (ROWS / 2, 7.0)
    assert list(last) == ["train_loss"]


def test_a_module_that_logs_nothing_has_its_loss_logged(agent: BecomeAgent, tmp_path: Path) -> None:
    one = agent()
    trainer(tmp_path).fit(Module(logs=False), loader())
    assert list(one.logged) == ["loss"]


def test_stop_ends_the_trainer_after_the_batch_whatever_its_limits(agent: BecomeAgent, tmp_path: Path) -> None:
    one, module = agent(), Module()
    module.at_batch = lambda batch: one.stop() if len(module.seen) == 2 and batch == 1 else None
    fitted = trainer(tmp_path, max_epochs=-1, min_epochs=5)
    fitted.fit(module, loader(), DataLoader(rows(4)))
    assert (one.updates, [len(rows) for rows in module.seen]) == (6, [20, 10])
    assert fitted.callback_metrics["val_loss"] == 7.0, "the loop for validation ran once more"


def test_stop_ends_the_trainer_when_a_share_has_ended_first(agent: BecomeAgent, tmp_path: Path) -> None:
    class Validated(Module):
        def on_validation_end(self) -> None:
            if len(self.seen) == 2:
                one.stop()

        def on_train_epoch_start(self) -> None:
            super().on_train_epoch_start()
            assert len(self.seen) < 10, "epochs without a batch, and without end"

    one, module = agent(), Validated()
    trainer(tmp_path, max_epochs=-1).fit(module, mpca.shard(rows(), 5), DataLoader(rows(4)))
    assert [len(rows) for rows in module.seen] == [20, 20]


@pytest.mark.parametrize("in_run", [True, False], ids=["agent", "alone"])
def test_after_a_fit_the_model_of_an_agent_is_where_it_was(agent: BecomeAgent, tmp_path: Path, in_run: bool) -> None:
    moved = []

    class Moved(Module):
        def cpu(self) -> Any:
            moved.append(True)
            return super().cpu()

    if in_run:
        agent()
    trainer(tmp_path).fit(Moved(), loader())
    assert moved == ([] if in_run else [True])


@pytest.mark.parametrize("number", [0, 1])
def test_checkpoints_and_loggers_are_those_of_agent_0(agent: BecomeAgent, tmp_path: Path, number: int) -> None:
    agent(agent=number)
    checkpoint = ModelCheckpoint(dirpath=tmp_path / "checkpoints", save_last=True)
    logger = CSVLogger(tmp_path / "logs")
    fitted = trainer(tmp_path, enable_checkpointing=True, callbacks=[checkpoint], logger=logger, log_every_n_steps=1)
    fitted.fit(Module(), loader())
    fitted.save_checkpoint(tmp_path / "mine.ckpt")
    found = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert fitted.is_global_zero == (number == 0)
    assert found == ([] if number else ["epoch=1-step=8.ckpt", "last.ckpt", "metrics.csv", "mine.ckpt"])


def test_loaders_that_are_divided_already_are_left_alone(agent: BecomeAgent, tmp_path: Path) -> None:
    one = agent()
    seen_in(trainer(tmp_path, max_epochs=1), mpca.shard(rows(), 5, epochs=1))
    assert (one.updates, one.samples) == (4, ROWS // 2)
    agent()
    weighted = DataLoader(rows(), 5, sampler=WeightedRandomSampler([1.0] * ROWS, 10))
    (seen,) = seen_in(trainer(tmp_path, max_epochs=1, strategy=Strategy(shard=False)), weighted)
    assert len(seen) == 10


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(rows())


def test_agents_divide_an_iterable_data_set(agent: BecomeAgent, tmp_path: Path) -> None:
    one = agent(agent=1)
    seen = seen_in(trainer(tmp_path), DataLoader(Stream(), 5))
    assert (one.updates, one.samples) == (8, ROWS)
    assert [sorted(rows) for rows in seen] == [list(range(1, ROWS, 2))] * 2


def test_of_an_iterable_data_set_a_small_last_batch_is_dropped_where_the_loader_says_so(
    agent: BecomeAgent, tmp_path: Path
) -> None:
    for drop_last in (False, True):
        one = agent()
        trainer(tmp_path, max_epochs=1).fit(Module(), DataLoader(Stream(), 19, drop_last=drop_last))
        assert (one.updates, one.samples) == ((1, 19) if drop_last else (2, 20))


class SplitStream(IterableDataset):
    """As torch's documentation has it: each data worker has samples of its own."""

    def __iter__(self) -> Any:
        worker = get_worker_info()
        return iter([row for at, row in enumerate(rows()) if worker is None or at % worker.num_workers == worker.id])


@pytest.mark.parametrize("workers", [0, 2])
def test_agents_divide_what_an_iterable_data_set_gives_each_worker(agent: BecomeAgent, tmp_path: Path, workers: int) -> None:
    seen = []
    for number in (0, 1):
        one = agent(agent=number)
        (epoch,) = seen_in(trainer(tmp_path, max_epochs=1), DataLoader(SplitStream(), 5, num_workers=workers))
        assert one.samples == len(epoch) == ROWS // 2
        seen += epoch
    assert sorted(seen) == list(range(ROWS))


def test_data_workers_and_collate_functions_are_kept(agent: BecomeAgent, tmp_path: Path) -> None:
    one, module = agent(), Module()

    def collate(samples: list[Any]) -> list[torch.Tensor]:
        assert get_worker_info() is not None, "not in a data worker"
        return [torch.stack([x for (x,) in samples]) * 2]

    trainer(tmp_path, max_epochs=1).fit(module, loader(num_workers=1, collate_fn=collate))
    assert one.samples == len(module.seen[0]) == ROWS // 2
    assert all(x % 2 == 0 for x in module.seen[0])


def test_epochs_are_of_one_length_and_validated_whoever_comes_and_goes(agent: BecomeAgent, tmp_path: Path) -> None:
    """Agent 0 is a replacement that begins in epoch 1, while agent 3 is away until epoch 2."""
    one, module, validated = agent(agents=4, incarnation=1), Module(), []
    away = Readers.of(4).lose(3, 0, 0).lose(0, 0, 0).join(0, 1)
    one.context.loop.reading.told(away.to_dict())
    module.at_batch = lambda batch: one.context.loop.reading.told(away.join(3, 2).to_dict())
    module.on_validation_epoch_end = lambda: validated.append(len(module.seen))  # type: ignore[method-assign]
    trainer(tmp_path, max_epochs=3, num_sanity_val_steps=0).fit(module, loader(batch_size=2), DataLoader(rows(4)))
    assert [len(rows) for rows in module.seen] == [10] * 3
    assert validated == [1, 2, 3]


def test_a_second_fit_goes_on_with_its_new_optimizer(agent: BecomeAgent, tmp_path: Path) -> None:
    one, module = agent(), Module()
    for _ in range(2):
        trainer(tmp_path, max_epochs=1).fit(module, loader())
    assert (one.updates, one.samples) == (8, ROWS)


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"devices": 2}, {"num_nodes": 3}], ids=["devices", "nodes"])
def test_several_devices_are_refused_before_anything_is_started(
    agent: BecomeAgent, tmp_path: Path, options: dict[str, int]
) -> None:
    agent()
    wrong = rf"one device: devices={options.get('devices', 1)}, num_nodes={options.get('num_nodes', 1)}; .*leave both out$"
    with pytest.raises(ConfigError, match=wrong):
        trainer(tmp_path, **options)


def test_a_strategy_beside_that_of_lightning_is_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    """There is room for one: `strategy` takes no list."""
    with pytest.raises(ValueError, match="invalid strategy"):
        trainer(tmp_path, strategy=[Strategy(), "ddp"])


def test_a_process_group_is_refused(agent: BecomeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ConfigError, match=r"^torch.distributed is initialised: world_size=2"):
        trainer(tmp_path).fit(Module(), loader())


@pytest.mark.parametrize(
    "sampler",
    [WeightedRandomSampler([1.0] * ROWS, ROWS), RandomSampler(range(ROWS), num_samples=10), SequentialSampler(range(10))],
    ids=["weighted", "fewer", "first"],
)
def test_a_sampler_of_the_users_own_is_refused(agent: BecomeAgent, tmp_path: Path, sampler: Any) -> None:
    agent()
    with pytest.raises(ConfigError, match=rf"not divided.*sampler={type(sampler).__name__};.*Strategy\(shard=False\)$"):
        trainer(tmp_path).fit(Module(), DataLoader(rows(), 5, sampler=sampler))


def test_a_loader_without_batches_is_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    agent()
    with pytest.raises(ConfigError, match=r"^a loader without batches .*batch_size=None"):
        trainer(tmp_path).fit(Module(), DataLoader(Stream(), None))


def test_loaders_that_are_made_anew_are_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    agent()
    with pytest.raises(ConfigError, match=r"reload_dataloaders_every_n_epochs=1"):
        trainer(tmp_path, reload_dataloaders_every_n_epochs=1).fit(Module(), loader())


@pytest.mark.filterwarnings("ignore:.*configure_optimizers. returned .None.")
def test_a_module_without_optimizers_is_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    class None_(Module):
        def configure_optimizers(self) -> None:  # type: ignore[override]
            return None

    agent()
    with pytest.raises(ConfigError, match=r"^a module without optimizers: None_.configure_optimizers returned none"):
        trainer(tmp_path).fit(None_(), loader())


def test_another_model_in_a_second_fit_is_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    agent()
    trainer(tmp_path).fit(Module(), loader())
    with pytest.raises(ConfigError, match=r"^a model was attached after the exchange had begun: model=Module"):
        trainer(tmp_path).fit(Module(), loader())


def test_a_missing_lightning_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "lightning"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "mpca.lightning")
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(EnvironmentRefused, match=r"lightning is not installed: run pip install 'mpca\[lightning\]'"):
        importlib.import_module("mpca.lightning")
