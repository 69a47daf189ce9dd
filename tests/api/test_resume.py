"""A backup of another model is refused, with the first tensor that differs; one that cannot be gone on from is passed over."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpca.api.resume import Resumed, find_backup
from mpca.data.plan import Readers
from mpca.driver.joint import JointModel
from mpca.errors import BackupError, ConfigError
from mpca.methods import MPCA, DiLoCo, DL4JAveraging, Method, OverlapLocalSGD, PaperMPCA, Sync, SyncPS, to_dict
from mpca.storage import Backups, BackupState, LocalStore, Location, ModelLayout
from tests.driver.support import hello
from tests.support.memory_store import MemoryStore


def backup(*rows: list) -> Resumed:
    layout = ModelLayout.of(rows, parameters=6)
    return Resumed(
        "hdfs://nn/b", BackupState(layout, np.zeros(6, np.float32), np.zeros(6, np.float32), [0, 2, 4, 6], [1, 1, 1], "r", 1, 3)
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["weight", [2, 3], "parameter", 0]], r"it has weight \[2, 3\] where this model has weight \[6\]"),
        ([["bias", [6], "parameter", 0]], r"it has bias \[6\] where this model has weight \[6\]"),
        ([["weight", [6], "parameter", 0], ["seen", [0], "buffer", 6]], "it has 2 tensors and this model 1"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(rows: list, words: str) -> None:
    with pytest.raises(BackupError, match=f"^the backup is of another model: path=hdfs://nn/b, {words}"):
        backup(*rows).restore(JointModel(MPCA(), hello(0).hello))


def test_the_same_model_takes_it_up() -> None:
    joint, taken = JointModel(MPCA(), hello(0).hello), backup(["weight", [6], "parameter", 0])
    vectors = [weakref.ref(taken.state.vector), weakref.ref(taken.state.trajectory)]
    taken.restore(joint)
    assert joint.versions() == [1, 1, 1]
    gc.collect()
    assert [one() for one in vectors] == [None, None], "they are two models, for as long as the run lasts"
    assert (taken.path, taken.cycle) == ("hdfs://nn/b", 3)


def test_a_backup_of_the_same_tensors_in_another_memory_order_is_turned() -> None:
    said = replace(hello(0).hello, layout=[["weight", [2, 3], "parameter", 0, [1, 0]]])
    joint = JointModel(MPCA(), said)
    flat = np.arange(6, dtype=np.float32)
    layout = ModelLayout.of([["weight", [2, 3], "parameter", 0]], parameters=6)
    Resumed("b", BackupState(layout, flat, 10 * flat, [0, 2, 4, 6], [1, 1, 1], "r", 1, 3)).restore(joint)
    assert joint.vector().tolist() == [0, 3, 1, 4, 2, 5]
    assert joint.trajectory().tolist() == [0, 30, 10, 40, 20, 50]


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        (MPCA(), MPCA(gamma=0.5), True),
        (MPCA(), PaperMPCA(), True),
        (MPCA(outer_lr=0.7), MPCA(outer_lr=0.4, correction=True), True),
        (DiLoCo(), DiLoCo(period=50), True),
        (MPCA(), DiLoCo(), False),
        (MPCA(), SyncPS(), False),
        (MPCA(), MPCA(outer_lr=0.7), False),
        (MPCA(outer_lr=0.7), MPCA(), False),
        (DiLoCo(), SyncPS(), False),
        (OverlapLocalSGD(), DiLoCo(), False),
        (MPCA(), Sync(), False),
        (Sync(), MPCA(), False),
    ],
)
def test_another_methods_trajectory_or_momentum_begins_at_0(
    before: Method, now: Method, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bounds = [0, 6] if now.shards == 1 else [0, 2, 4, 6]
    joint = JointModel(now, replace(hello(0).hello, bounds=bounds))
    x = np.arange(6, dtype=np.float32)
    held = replace(backup(["weight", [6], "parameter", 0]).state, vector=x, trajectory=10 * x, method=before.to_dict())
    with caplog.at_level("INFO", "mpca.backup"):
        Resumed("b", held).restore(joint)
    assert joint.vector().tolist() == x.tolist()
    assert joint.trajectory().tolist() == ((10 if kept else 0) * x).tolist()
    assert len(caplog.records) == (0 if kept else 1)
    if not kept:
        assert f"method {before.name}" in caplog.text
        assert f"method {now.name}" in caplog.text


@pytest.mark.parametrize("method", [{"name": "of another version"}, {"name": "mpca", "key": 1}, {"name": 3}, {"name": []}])
def test_a_method_that_this_version_does_not_know_leaves_no_momentum(method: dict[str, object]) -> None:
    joint = JointModel(MPCA(), hello(0).hello)
    ones = np.ones(6, np.float32)
    Resumed("b", replace(backup(["weight", [6], "parameter", 0]).state, trajectory=ones, method=method)).restore(joint)
    assert not joint.trajectory().any()


def position(**changes: object) -> dict[str, object]:
    return {"readers": Readers.of(2).to_dict(), "at": [[0, 1, 5], [1, 1, 4]], "last": 1, **changes}


@pytest.mark.parametrize(
    "data",
    [
        position(at="abc"),
        position(at=[[0, 1]]),
        position(readers=[]),
        position(readers={**Readers.of(2).to_dict(), "since": None}),
        position(last=None),
        {"at": []},
    ],
)
def test_a_position_in_the_data_that_cannot_be_means_the_older_backup(data: dict[str, object]) -> None:
    store = MemoryStore()
    for cycle, left in ((3, position()), (4, data)):
        state = backup(["weight", [6], "parameter", 0]).state
        Backups(store, "backups").write(replace(state, cycle=cycle, data=left))
    found = find_backup("auto", Location.parse("/runs/a/backups"), lambda at: store)
    assert found is not None
    assert found.cycle == 3
    assert found.state.data == position()
    (told,) = found.passed_over
    assert told.startswith("term-0001-cycle-00000004: ")
    assert "position in the data is damaged" in told


def test_one_that_is_named_and_cannot_be_gone_on_from_is_refused(tmp_path: Path) -> None:
    state = backup(["weight", [6], "parameter", 0]).state
    info = Backups(LocalStore(tmp_path), "backups").write(replace(state, data=position(at=None)))
    with pytest.raises(BackupError, match=rf"^{info.name}: .*position in the data is damaged"):
        find_backup(info.path, Location.parse(tmp_path / "backups"), lambda at: LocalStore(at.path))


@pytest.mark.parametrize("name", ["resnet.pt", "/data/Model.PTH", "hdfs://nn/models/pytorch_model.bin", "m.safetensors"])
def test_a_file_of_weights_is_no_backup_and_where_it_is_loaded_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match=r"a file of weights is no backup.*weights_only=True") as refusal:
        find_backup(name, Location.parse("/runs/a/backups"), lambda at: LocalStore(at.path))
    assert f"--resume {name}: " in str(refusal.value)


@pytest.mark.parametrize(("exchanges", "shards"), [([4, 4, 3, 3, 3], 5), ([7], 3), ([1] * 30, 30)])
def test_a_run_that_goes_on_keeps_the_number_of_shards_that_the_backups_run_had_decided(
    exchanges: list[int], shards: int
) -> None:
    before = backup(["weight", [6], "parameter", 0])
    resumed = replace(before, state=replace(before.state, exchanges=exchanges))
    method = resumed.method(MPCA(shards="auto", delta=0.5))
    assert (method, method.auto_shards) == (MPCA(shards=shards, delta=0.5), False)
    assert resumed.method(MPCA(shards=4)) == MPCA(shards=4), "a number in the configuration counts"
    assert resumed.method(Sync()) == Sync()


MODEL = [["weight", [6], "parameter", 0]]
MOMENTUM = [*MODEL, ["weight/momentum_buffer", [6], "updater", 6]]
ADAM = [*MODEL, ["weight/exp_avg", [6], "updater", 6], ["weight/exp_avg_sq", [6], "updater", 12]]


@pytest.mark.parametrize(
    ("before", "now", "taken"),
    [(MODEL, MODEL, 6), (MODEL, ADAM, 6), (ADAM, MODEL, 6), (MOMENTUM, ADAM, 6), (ADAM, ADAM, 18), (MOMENTUM, MOMENTUM, 12)],
)
def test_optimisers_states_that_were_averaged_are_taken_up_if_they_are_of_the_same_optimisers(
    before: list, now: list, taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    elements = [6 * len(rows) for rows in (before, now)]
    joint = JointModel(DL4JAveraging(updater="average"), replace(hello(0).hello, layout=now, bounds=[0, elements[1]]))
    held = ModelLayout.of(before, parameters=6)
    flat = np.arange(1, elements[0] + 1, dtype=np.float32)
    state = BackupState(held, flat, np.zeros(6, np.float32), [0, elements[0]], [4], "r", 1, 3, DL4JAveraging().to_dict())
    Resumed("b", state).restore(joint)
    np.testing.assert_array_equal(joint.vector(), [*range(1, taken + 1), *[0] * (elements[1] - taken)])
    assert (len(caplog.messages) == 1) == (taken == 6 and now is not MODEL)


AGENTS = {str(n): {"file": f"agent-0000{n}-0.pt", "bytes": 7, "sha256": "ab" * 32} for n in range(2)}


def saved(method: Method) -> Resumed:
    one = backup(["weight", [6], "parameter", 0])
    return replace(one, state=replace(one.state, method=to_dict(method), agents=AGENTS))


def test_agents_go_on_with_their_files() -> None:
    assert saved(Sync(tau=4)).agent_states(2, Sync(tau=4)) == {
        n: {"url": f"hdfs://nn/b/agent-0000{n}-0.pt", "bytes": 7, "sha256": "ab" * 32} for n in range(2)
    }
    assert backup(["weight", [6], "parameter", 0]).agent_states(2, MPCA()) == {}


def test_agents_of_an_auto_number_of_shards_that_was_the_least_one_go_on_with_their_files() -> None:
    """Nothing was cut then, and the backup says "auto"."""
    one = saved(MPCA(shards="auto"))
    one = replace(one, state=replace(one.state, exchanges=(4, 4, 4)))
    assert one.state.method["shards"] == "auto"
    method = one.method(MPCA(shards="auto"))
    assert method.shards == 3
    assert set(one.agent_states(2, method)) == {0, 1}
    assert one.agent_states(2, MPCA(shards=4)) == {}


@pytest.mark.parametrize(
    ("agents", "method", "why"),
    [
        (3, Sync(tau=4), "it was of 2 agents, and this run has 3"),
        (2, Sync(tau=5), "method sync had other settings"),
        (2, MPCA(), "another method made it"),
    ],
)
def test_else_they_begin_at_the_joint_model_and_it_is_told(
    caplog: pytest.LogCaptureFixture, agents: int, method: Method, why: str
) -> None:
    assert saved(Sync(tau=4)).agent_states(agents, method) == {}
    assert f"agents begin at the joint model of hdfs://nn/b, with new optimizers: {why}" in caplog.text
