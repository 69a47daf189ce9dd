"""`mpca.transformers.Callback` with the real transformers: what is divided, counted, logged, written, stopped and refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from mpca.errors import ConfigError, EnvironmentRefused
from mpca.transformers import Callback
from tests.trainers.conftest import Agent

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # of torch, about other packages
BecomeAgent = Callable[..., Agent]
ROWS = 40


class Net(nn.Module):
    """Notes which rows it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.seen: list[float] = []
        self.at_batch: Callable[[], None] = lambda: None

    def forward(self, x: torch.Tensor, return_loss: bool = True) -> dict[str, torch.Tensor]:
        out = self.net(x)
        if self.training:
            self.seen += x.flatten().tolist()
            self.at_batch()
        return {"loss": out.float().square().mean(), "logits": out}


class Rows(Dataset):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor([float(index)])}


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter([Rows()[index] for index in range(ROWS)])


def trainer(
    tmp_path: Path, net: nn.Module, train_dataset: Any = None, eval_dataset: Any = None, kind: Any = None, **options: Any
) -> transformers.Trainer:
    usual = {
        "output_dir": tmp_path / "out",
        "per_device_train_batch_size": 5,
        "num_train_epochs": 2,
        "learning_rate": 1e-6,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_steps": 1,
    }
    args = transformers.TrainingArguments(**{**usual, **options})
    return (kind or transformers.Trainer)(net, args, train_dataset=train_dataset or Rows(), eval_dataset=eval_dataset or Rows())


def trained(tmp_path: Path, net: Net, *, shard: bool = True, **options: Any) -> Any:
    made = trainer(tmp_path, net, **options)
    made.add_callback(Callback(made, shard=shard))
    made.train()
    return made


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What accelerate keeps for a whole process."""
    yield
    PartialState._reset_state()
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def test_alone_the_trainer_reads_everything(tmp_path: Path) -> None:
    net = Net()
    trained(tmp_path, net)
    assert sorted(net.seen) == sorted(list(range(ROWS)) * 2)


def test_agents_divide_each_epoch_and_count_steps_and_samples(agent: BecomeAgent, tmp_path: Path) -> None:
    seen = []
    for number in (0, 1):
        one, net = agent(agent=number), Net()
        steps = trained(tmp_path, net).state.max_steps
        assert (one.updates, one.samples, steps) == (8, ROWS, 8)
        seen.append(net.seen)
    first, second = ([one[: ROWS // 2], one[ROWS // 2 :]] for one in seen)
    for epoch in (0, 1):
        assert sorted(first[epoch] + second[epoch]) == list(range(ROWS))
    assert first[0] != first[1], "shuffled anew"


def test_what_is_exchanged_has_the_models_own_names(agent: BecomeAgent, tmp_path: Path) -> None:
    one = agent()
    trained(tmp_path, Net())
    assert [name for name, *_ in one.hello.layout] == ["net.weight", "net.bias"]


def test_an_update_is_a_step_of_the_optimizer_not_a_batch(agent: BecomeAgent, tmp_path: Path) -> None:
    one = agent()
    trained(tmp_path, Net(), gradient_accumulation_steps=2, bf16=True)
    assert (one.updates, one.samples) == (4, ROWS)


def test_what_the_trainer_logs_reaches_mpca_log(agent: BecomeAgent, tmp_path: Path) -> None:
    one, net = agent(), Net()
    logged: list[dict[str, float]] = []
    net.at_batch = lambda: logged.append(one.logged)
    trained(tmp_path, net, num_train_epochs=1, eval_strategy="epoch")
    assert [sorted(at) for at in logged] == [[], *[["grad_norm", "learning_rate", "loss"]] * 3]
    assert sorted(one.logged) == ["eval_loss", "grad_norm", "learning_rate", "loss"]


def test_numbers_of_every_kind_reach_mpca_log_and_texts_do_not(agent: BecomeAgent, tmp_path: Path) -> None:
    class Own(transformers.Trainer):
        def compute_loss(self, model: nn.Module, inputs: Any, **more: Any) -> torch.Tensor:
            self.log({"tensor": torch.tensor(1.0), "array": np.float32(2), "text": "x", "several": torch.ones(2)})
            return model(**inputs)["loss"]

    one = agent()
    trained(tmp_path, Net(), kind=Own, num_train_epochs=1, logging_strategy="no")
    assert one.logged == {"tensor": 1.0, "array": 2.0}


def test_stop_ends_the_trainer_after_the_step(agent: BecomeAgent, tmp_path: Path) -> None:
    one, net = agent(), Net()
    net.at_batch = lambda: one.stop() if len(net.seen) == 30 else None
    done = trained(tmp_path, net, num_train_epochs=1000, eval_strategy="epoch")
    assert (one.updates, len(net.seen), done.state.global_step) == (6, 30, 6)
    assert "eval_loss" in one.logged, "the evaluation ran once more"


@pytest.mark.parametrize("number", [0, 1])
def test_checkpoints_and_models_are_those_of_agent_0(agent: BecomeAgent, tmp_path: Path, number: int) -> None:
    agent(agent=number)
    done = trained(tmp_path, Net(), save_strategy="epoch", save_only_model=False)
    done.save_model(tmp_path / "mine")
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert done.is_world_process_zero() == done.state.is_world_process_zero == (number == 0)
    assert ("mine/model.safetensors" in found, "out/checkpoint-8/model.safetensors" in found) == (number == 0,) * 2
    assert number == 0 or found == []


def test_a_data_set_that_is_divided_already_is_left_alone(agent: BecomeAgent, tmp_path: Path) -> None:
    one, net = agent(), Net()
    trained(tmp_path, net, shard=False, num_train_epochs=1)
    assert (one.updates, sorted(net.seen)) == (8, list(range(ROWS)))


def test_agents_divide_an_iterable_data_set(agent: BecomeAgent, tmp_path: Path) -> None:
    one, net = agent(agent=1), Net()
    trained(tmp_path, net, train_dataset=Stream(), max_steps=6)
    assert (one.updates, one.samples) == (6, 30)
    assert net.seen == [float(x) for x in [*range(1, ROWS, 2), *range(1, ROWS // 2, 2)]]


def test_each_agent_reads_an_iterable_data_set_that_is_left_alone(agent: BecomeAgent, tmp_path: Path) -> None:
    one, net = agent(agent=1), Net()
    options = {"train_dataset": Stream(), "eval_dataset": Stream(), "eval_strategy": "epoch", "max_steps": 8}
    trained(tmp_path, net, shard=False, **options)
    assert (one.updates, net.seen) == (8, [float(x) for x in range(ROWS)])
    assert "eval_loss" in one.logged


def test_data_workers_are_kept(agent: BecomeAgent, tmp_path: Path) -> None:
    class OfWorkers(Rows):
        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            assert get_worker_info() is not None, "not in a data worker"
            return super().__getitem__(index)

    one, net = agent(), Net()
    trained(tmp_path, net, train_dataset=OfWorkers(), num_train_epochs=1, dataloader_num_workers=1)
    assert one.samples == len(set(net.seen)) == ROWS // 2


def test_a_trainer_that_goes_on_in_an_epoch_begins_a_new_share(agent: BecomeAgent, tmp_path: Path) -> None:
    agent()
    options = {"num_train_epochs": 1, "save_strategy": "steps", "save_steps": 3}
    trained(tmp_path, Net(), **options)
    one, net = agent(), Net()
    made = trainer(tmp_path, net, **options)
    made.add_callback(Callback(made))
    made.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-3"))
    assert (one.updates, made.state.global_step) == (1, 4)


def test_a_trainer_of_a_subclass_works_too(agent: BecomeAgent, tmp_path: Path) -> None:
    class Own(transformers.Trainer):
        def compute_loss(self, model: nn.Module, inputs: Any, **more: Any) -> torch.Tensor:
            return model(**inputs)["loss"] * 2

    one = agent()
    trained(tmp_path, Net(), kind=Own)
    assert (one.updates, one.samples) == (8, ROWS)


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_two_callbacks_are_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    agent()
    made = trainer(tmp_path, Net())
    made.add_callback(Callback(made))
    with pytest.raises(ConfigError, match=r"^two callbacks of mpca.transformers for one trainer"):
        made.add_callback(Callback(made))


def test_several_devices_are_refused(agent: BecomeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent()
    made = trainer(tmp_path, Net())
    monkeypatch.setattr(made.args, "_n_gpu", 4)
    with pytest.raises(ConfigError, match=r"one device: n_gpu=4, world_size=1, distributed_type=NO; .*use_cpu=True\)$"):
        Callback(made)


def test_a_process_group_is_refused(agent: BecomeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent()
    made = trainer(tmp_path, Net())
    made.add_callback(Callback(made))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: 2)
    with pytest.raises(ConfigError, match=r"^torch.distributed is initialised: world_size=2"):
        made.train()


def test_a_sampler_of_the_users_own_is_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    class Sorted(transformers.Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.WeightedRandomSampler([1.0] * ROWS, ROWS)

    agent()
    wrong = r"not divided.*sampler=WeightedRandomSampler;.*Callback\(trainer, shard=False\)$"
    with pytest.raises(ConfigError, match=wrong):
        trained(tmp_path, Net(), kind=Sorted)


def test_another_model_in_a_second_training_is_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    agent()
    trained(tmp_path, Net())
    with pytest.raises(ConfigError, match=r"^a model was attached after the exchange had begun: model=Net"):
        trained(tmp_path, Net())


def test_half_precision_parameters_are_refused(agent: BecomeAgent, tmp_path: Path) -> None:
    agent()
    with pytest.raises(ConfigError, match=r"^a parameter has half precision: parameter=net.weight"):
        trained(tmp_path, Net().bfloat16())


def test_a_missing_transformers_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mpca.transformers")
    for name in [name for name in sys.modules if name.split(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EnvironmentRefused, match=r"transformers is not installed: run pip install 'mpca\[transformers\]'"):
        importlib.import_module("mpca.transformers")
