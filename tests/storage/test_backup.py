"""Backups appear whole or not at all, whatever the moment of the crash; the newest valid one is found, whatever is damaged."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from mpca.errors import BackupError
from mpca.storage import Backups, BackupState, LocalStore, ModelLayout, model_file
from mpca.storage.blocks import Piece
from mpca.storage.tensors import RawTensor, dump, parse
from tests.support.memory_store import Crash, MemoryStore

LAYOUT = ModelLayout.of(
    [
        ["conv.weight", [40, 64], "parameter", 0],
        ["conv.bias", [], "parameter", 2560],
        ["bn.running_mean", [3], "buffer", 2561],
        ["empty", [0, 2], "buffer", 2564],
    ],
    parameters=2561,
    local={
        "bn.num_batches_tracked": ["int64", [], (7).to_bytes(8, "little")],
        "mask": ["bool", [3], b"\x01\x00\x01"],
        "frozen": ["bfloat16", [2], b"\x80\x3f\x00\x40"],
    },
    tied={"head.weight": "conv.weight"},
)


def state(cycle: int, term: int = 1, **changes: Any) -> BackupState:
    rng = np.random.default_rng(cycle)
    whole = BackupState(
        layout=LAYOUT,
        vector=rng.standard_normal(2564, np.float32),
        trajectory=rng.standard_normal(2561, np.float32),
        bounds=[0, 1282, 2564],
        exchanges=[cycle // 2, (cycle + 1) // 2],
        run="digits",
        term=term,
        cycle=cycle,
        method={"name": "mpca", "alpha": 0.05},
        data={"0": 17},
        seeds={"run": 3},
        software={"mpca": "0.1.0"},
        progress={"seconds": 12.5},
    )
    return replace(whole, **changes)


def same(one: BackupState, other: BackupState) -> bool:
    plain = ("bounds", "exchanges", "run", "term", "cycle", "method", "data", "seeds", "software", "progress", "layout")
    arrays = one.vector.tobytes() == other.vector.tobytes() and one.trajectory.tobytes() == other.trajectory.tobytes()
    return arrays and all(getattr(one, key) == getattr(other, key) for key in plain)


def backups(store: Any, **options: Any) -> Backups:
    return Backups(store, "run/backups", **options)


AVERAGED = replace(
    LAYOUT,
    tensors=(*LAYOUT.tensors, ("conv.weight/exp_avg", (40, 64), "updater", 2564), ("conv.weight/step", (), "updater", 5124)),
)


# ---- form ------------------------------------------------------------------------------------------------------------


def test_averaged_states_of_optimisers_lie_beside_the_model_in_a_file_of_their_own(tmp_path: Path) -> None:
    one, flat = backups(LocalStore(tmp_path)), np.arange(5125, dtype=np.float32)
    plain, more = (one.write(state(cycle)) for cycle in (4, 5))
    assert {file.name for file in Path(plain.path).iterdir()} == {
        "model.safetensors",
        "trajectory.safetensors",
        "manifest.json",
    }
    averaged = state(6, layout=AVERAGED, vector=flat, bounds=[0, 2000, 5125])
    info = one.write(averaged)
    assert same(one.read(info.name), averaged)
    model, states = (safetensors.torch.load_file(Path(info.path) / f"{file}.safetensors") for file in ("model", "updater"))
    assert set(model) == set(safetensors.torch.load_file(Path(more.path) / "model.safetensors"))
    assert {name: list(tensor.shape) for name, tensor in states.items()} == {
        "conv.weight/exp_avg": [40, 64], "conv.weight/step": [],
    }  # fmt: skip
    assert states["conv.weight/step"].item() == 5124
    flat[5000] = np.nan
    with pytest.raises(BackupError, match=r"not finite: 1 values of tensor='conv\.weight/exp_avg' in the model"):
        one.write(replace(averaged, cycle=7))
    (Path(info.path) / "updater.safetensors").write_bytes(b"")
    with pytest.raises(BackupError, match=r"updater\.safetensors has 0 bytes instead of"):
        one.read(info.name)


def test_what_is_written_is_read_to_the_bit(tmp_path: Path) -> None:
    one = backups(LocalStore(tmp_path))
    info = one.write(state(5))
    assert same(one.read(info.name), state(5))
    found = one.newest()
    assert found.info == info
    assert found.passed_over == []
    assert info.path == str(tmp_path / "run" / "backups" / "term-0001-cycle-00000005")
    assert info.size_bytes > 2 * 4 * 2561


def test_no_copy_of_the_model_is_made_to_write_it(tmp_path: Path) -> None:
    elements = 12 << 20
    layout = ModelLayout.of([["weight", [elements], "parameter", 0]], parameters=elements)
    ones = np.ones(elements, np.float32)
    large = state(5, layout=layout, vector=ones, trajectory=ones, bounds=[0, elements // 2, elements])
    one = backups(LocalStore(tmp_path))
    tracemalloc.start()
    try:
        info = one.write(large)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * (8 << 20) < 4 * elements, "a block is read back at a time, and compared with a copy"
    assert same(one.read(info.name), large)


def test_the_model_opens_without_mpca_under_its_own_names(tmp_path: Path) -> None:
    info = backups(LocalStore(tmp_path)).write(state(5))
    named = safetensors.torch.load_file(Path(info.path) / "model.safetensors")
    assert set(named) == {*(row[0] for row in LAYOUT.tensors), *LAYOUT.local, "head.weight"}
    vector = state(5).vector
    np.testing.assert_array_equal(named["conv.weight"].numpy(), vector[:2560].reshape(40, 64))
    np.testing.assert_array_equal(named["head.weight"].numpy(), named["conv.weight"].numpy())
    assert named["bn.num_batches_tracked"].item() == 7
    assert named["mask"].tolist() == [True, False, True]
    assert named["frozen"].dtype == torch.bfloat16
    assert named["frozen"].tolist() == [1.0, 2.0]
    moving = safetensors.numpy.load_file(Path(info.path) / "trajectory.safetensors")
    assert set(moving) == {"conv.weight", "conv.bias"}


def test_a_torch_model_takes_its_file() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    rows, offset = [], 0
    for name, kind in (("0.weight", "parameter"), ("0.bias", "parameter"), ("1.weight", "parameter"), ("1.bias", "parameter")):
        shape = list(model.state_dict()[name].shape)
        rows.append([name, shape, kind, offset])
        offset += int(np.prod(shape))
    for name in ("1.running_mean", "1.running_var"):
        rows.append([name, [2], "buffer", offset])
        offset += 2
    layout = ModelLayout.of(rows, offset - 4, {"1.num_batches_tracked": ["int64", [], bytes(8)]})
    model.load_state_dict(safetensors.torch.load(model_file(layout, np.arange(offset, dtype=np.float32))))
    assert model[0].bias.tolist() == [6.0, 7.0]
    assert model[1].running_var.tolist() == [14.0, 15.0]


def test_state_dict_as_arrays_widens_what_numpy_lacks() -> None:
    named = LAYOUT.state_dict(state(1).vector)
    assert named["frozen"].tolist() == [1.0, 2.0]
    assert named["head.weight"] is named["conv.weight"]
    assert named["empty"].shape == (0, 2)
    with pytest.raises(ValueError, match="not of this model"):
        LAYOUT.state_dict(np.zeros(3, np.float32))


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(lambda name: name != "__metadata__"),
        st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int8, np.bool_]).flatmap(
            lambda dtype: st.tuples(st.just(dtype), st.lists(st.integers(0, 4), max_size=3))
        ),
        max_size=5,
    )
)
def test_the_format_is_the_packages_own(shapes: dict[str, tuple[type, list[int]]]) -> None:
    arrays = {name: np.arange(np.prod(shape)).reshape(shape).astype(dtype) for name, (dtype, shape) in shapes.items()}
    raw = {name: RawTensor(one.dtype.name, one.shape, one.tobytes()) for name, one in arrays.items()}
    data = dump(raw, {"format": "pt"})
    theirs = safetensors.numpy.load(data)
    assert set(theirs) == set(arrays)
    for name, one in arrays.items():
        np.testing.assert_array_equal(theirs[name], one)
        assert theirs[name].dtype == one.dtype
    ours = parse(safetensors.numpy.save(arrays))
    assert {name: (one.dtype, one.shape, bytes(one.data)) for name, one in ours.items()} == {
        name: (one.dtype, one.shape, one.data) for name, one in raw.items()
    }


def test_the_format_refuses_what_it_cannot_say() -> None:
    with pytest.raises(ValueError, match="dtype=complex64"):
        dump({"a": RawTensor("complex64", (1,), bytes(8))})
    with pytest.raises(ValueError, match="data do not fit the shape"):
        dump({"a": RawTensor("int8", (3,), bytes(2))})
    for data in (b"", b"\xff" * 8, dump({"a": RawTensor("int8", (3,), bytes(3))})[:-1]):
        with pytest.raises(ValueError, match="not a safetensors file"):
            parse(data)


@pytest.mark.parametrize(
    "rows",
    [
        [["a", [2], "parameter", 1]],
        [["a", [2], "buffer", 0]],
        [["a", [3], "parameter", 0]],
        [["a", [2], "other", 0]],
    ],
)
def test_a_layout_that_is_none_is_refused(rows: list[list[Any]]) -> None:
    with pytest.raises(ValueError, match="not a layout"):
        ModelLayout.of(rows, parameters=2)


# ---- keeping ---------------------------------------------------------------------------------------------------------


def test_the_newest_are_kept_and_none_goes_before_the_next_is_there() -> None:
    store = MemoryStore()
    one = backups(store, keep=3)
    for cycle in range(1, 7):
        one.write(state(cycle))
        assert [info.cycle for info in one.found()] == list(range(cycle, max(cycle - 3, 0), -1))
    assert not [path for path in store.paths() if "/." in path]


def test_only_backups_of_this_runs_attempts_are_removed() -> None:
    store = MemoryStore()
    for term, cycle in ((1, 7), (2, 8), (3, 9), (4, 10)):
        backups(store, keep=9).write(state(cycle, term=term))
    for name in ("term-notes", ".tmp-mine", "term-0003-cycle-00000009-copy", ".trash-term-0001-cycle-00000001"):
        store.write(f"run/backups/{name}/x", b"mine")
    store.write("run/backups/.tmp-term-0003-cycle-00000010/model.safetensors", b"of a killed writer")
    one = backups(store, keep=1, terms={3, 5})
    assert one.highest_term() == 4
    for cycle in (11, 12):
        one.write(state(cycle, term=5))
    assert set(store.names("run/backups")) == {
        *("term-0001-cycle-00000007", "term-0002-cycle-00000008", "term-0004-cycle-00000010"),  # of other runs
        *("term-notes", ".tmp-mine", "term-0003-cycle-00000009-copy", ".trash-term-0001-cycle-00000001"),
        "term-0005-cycle-00000012",
    }


def test_one_that_has_lost_its_right_makes_no_folder() -> None:
    def guard() -> None:
        raise BackupError("another driver writes here")

    store = MemoryStore()
    with pytest.raises(BackupError, match="another driver"):
        backups(store, guard=guard).write(state(1))
    assert [what for what in store.paths() if what.startswith("run/")] == []
    assert store.operations == 1, "nothing but the removal of what was not written"


def test_a_later_term_is_newer_than_a_higher_cycle() -> None:
    one = backups(MemoryStore())
    one.write(state(40, term=1))
    one.write(state(30, term=2))
    assert one.newest().state.cycle == 30


def test_the_same_cycle_again_is_left_as_it_is() -> None:
    store = MemoryStore()
    one = backups(store)
    info = one.write(state(4))
    operations = store.operations
    assert one.write(state(4)) == info
    assert store.operations == operations


def test_damaged_ones_do_not_count_as_kept() -> None:
    store = MemoryStore()
    one = backups(store, keep=2)
    for cycle in (1, 2):
        one.write(state(cycle))
    store.damage("run/backups/term-0001-cycle-00000002/manifest.json", b"")
    one.write(state(3))
    assert [info.cycle for info in one.found()] == [3, 1]


def test_a_writer_that_lost_its_right_makes_nothing_visible() -> None:
    def guard() -> None:
        raise BackupError("another driver writes here")

    store = MemoryStore()
    with pytest.raises(BackupError, match="another driver"):
        backups(store, guard=guard).write(state(1))
    assert backups(store).found() == []
    assert store.paths() == []


# ---- crashes: at each step, of the process and of the machine ---------------------------------------------------


def written_before(store: MemoryStore) -> int:
    one = backups(store, keep=2)
    for cycle in (1, 2):
        one.write(state(cycle))
    return store.operations


STEPS = range(written_before(probe := MemoryStore()), backups(probe, keep=2).write(state(3)) and probe.operations)


@pytest.mark.parametrize("fault", ["crash", "torn", "full", "lost"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", ["process", "machine", "machine, renames kept"])
def test_a_fault_at_any_step_leaves_whole_backups_alone(step: int, fault: str, after: str) -> None:
    store = MemoryStore({step: fault})
    written_before(store)
    told = None
    with contextlib.suppress(BackupError, Crash):
        told = backups(store, keep=2).write(state(3))
    assert len(store.fired) == 1, "the fault did not happen"
    store.reboot(machine=after != "process", renames_kept="kept" in after)

    one = backups(store, keep=2)
    found = one.newest()
    assert found.passed_over == [], "half a backup was visible"
    assert same(found.state, state(found.state.cycle))
    assert found.state.cycle in (2, 3)
    if told is not None:
        assert found.state.cycle == 3, "a backup that was reported is gone"
    whole = [info.cycle for info in one.found()]
    assert len(whole) >= 2, "an older one was deleted before the next was complete"

    one.write(state(4))
    assert one.found()[0].cycle == 4
    assert not [path for path in store.paths() if "/." in path], "left-overs of the killed writer"


@pytest.mark.parametrize(("fault", "written"), [("lost", [True, True]), ("full", [False, True])])
def test_a_rename_that_is_told_to_have_failed_counts_by_what_is_there(fault: str, written: list[bool]) -> None:
    """The first makes the new backup visible, the second takes an old one out of sight."""
    seen = []
    for step in STEPS:
        store = MemoryStore({step: fault})
        written_before(store)
        told = None
        with contextlib.suppress(BackupError):
            told = backups(store, keep=2).write(state(3))
        if store.fired[0][2].startswith("rename "):
            seen.append(told is not None)
    assert seen == written


def test_a_backup_that_is_gone_when_its_rename_has_failed_is_none() -> None:
    class Losing(MemoryStore):
        def rename(self, old: str, new: str) -> None:
            self.delete(old)
            raise OSError("no such folder")

    with pytest.raises(BackupError, match="no such folder"):
        backups(Losing()).write(state(1))


def test_steps_are_all_there() -> None:
    # write and sync of three files, sync of the folder, two renames, sync, delete
    assert len(STEPS) == 11


@pytest.mark.parametrize(
    "lie",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-1],
        lambda data: data[:2048],  # a whole number of pieces
        lambda data: data + b"?",
        lambda data: b"",
    ],
    ids=["last byte", "first byte", "shorter", "pieces missing", "longer", "empty"],
)
def test_storage_that_lies_is_found_out_by_reading_back(lie: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpca.storage.backup._BLOCK_BYTES", 1024)

    class Liar(MemoryStore):
        def write(self, path: str, *pieces: Piece) -> None:
            data = b"".join(pieces)
            super().write(path, lie(data) if path.endswith("trajectory.safetensors") else data)

    with pytest.raises(BackupError, match=r"read back differs: path=.*trajectory.safetensors"):
        backups(Liar()).write(state(1))


def test_a_failure_names_path_and_size() -> None:
    with pytest.raises(BackupError, match=r"not written: path=memory:run/backups/term-0001-cycle-00000001, size=.*no space"):
        backups(MemoryStore({2: "full"})).write(state(1))


# ---- damage ---------------------------------------------------------------------------------------------------------


def damages() -> dict[str, tuple[str, Callable[[bytes], bytes | None], str]]:
    """name -> (file, what becomes of it, words of the warning)."""
    cases: dict[str, tuple[str, Callable[[bytes], bytes | None], str]] = {
        "manifest missing": ("manifest.json", lambda data: None, "manifest.json is missing"),
        "manifest empty": ("manifest.json", lambda data: b"", "manifest.json is not JSON"),
        "manifest half": ("manifest.json", lambda data: data[: len(data) // 2], "manifest.json is not JSON"),
        "manifest no map": ("manifest.json", lambda data: b"[]", "manifest.json is not a map"),
        "manifest edited": ("manifest.json", lambda data: data.replace(b'"cycle": 2', b'"cycle": 3'), "own sha256"),
        "manifest later": (
            "manifest.json",
            lambda data: of_format(data, 3),
            "format 3, this mpca reads 2: use a newer mpca",
        ),
        "manifest earlier": ("manifest.json", lambda data: of_format(data, 1), "format 1, this mpca reads 2: use the mpca"),
    }
    for file in ("model.safetensors", "trajectory.safetensors"):
        cases[f"{file} missing"] = (file, lambda data: None, f"{file} is missing")
        cases[f"{file} longer"] = (file, lambda data: data + b"\0", f"{file} has ")
        size = {"model.safetensors": 21_000, "trajectory.safetensors": 10_500}[file]
        for at in range(0, size, 4096):
            cut = f"{file} has {at} bytes instead of"
            cases[f"{file} cut at {at}"] = (file, lambda data, at=at: data[:at], cut)  # type: ignore[misc]
            cases[f"{file} flipped at {at}"] = (file, lambda data, at=at: flip(data, at), f"{file} does not match")  # type: ignore[misc]
    return cases


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def of_format(data: bytes, number: int) -> bytes:
    manifest = json.loads(data)
    del manifest["sha256"]
    manifest["format"] = number
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**manifest, "sha256": hashlib.sha256(text).hexdigest()}).encode()


@pytest.mark.parametrize("case", damages())
def test_a_damaged_newest_one_is_passed_over_with_a_warning(case: str, caplog: pytest.LogCaptureFixture) -> None:
    file, change, words = damages()[case]
    store = MemoryStore()
    one = backups(store)
    for cycle in (1, 2):
        one.write(state(cycle))
    path = f"run/backups/term-0001-cycle-00000002/{file}"
    store.damage(path, change(store.read(path)))
    with caplog.at_level(logging.WARNING, "mpca.backup"):
        found = one.newest()
    assert found.state.cycle == 1
    assert same(found.state, state(1))
    assert len(found.passed_over) == 1
    assert words in found.passed_over[0]
    assert len(caplog.records) == 1
    assert "term-0001-cycle-00000002" in caplog.text


def test_a_flip_anywhere_in_a_manifest_is_seen_or_means_the_same() -> None:
    store = MemoryStore()
    one = backups(store)
    info = one.write(state(1))
    path = f"run/backups/{info.name}/manifest.json"
    data = store.read(path)
    for at in range(len(data)):
        store.damage(path, data[:at] + bytes([data[at] ^ 1 << at % 7]) + data[at + 1 :])
        try:
            read = one.read(info.name)
        except BackupError:
            continue
        assert same(read, state(1))  # white space, or another spelling of the same text


def test_none_that_is_valid_says_what_is_wrong_with_each() -> None:
    store = MemoryStore()
    one = backups(store)
    with pytest.raises(BackupError, match=r"no valid backup: path=memory:run/backups: there is none"):
        one.newest()
    for cycle in (1, 2):
        one.write(state(cycle))
        store.damage(f"run/backups/term-0001-cycle-{cycle:08d}/model.safetensors", b"")
    with pytest.raises(BackupError, match=r"cycle-00000002: model.* has 0 bytes.*cycle-00000001: model.* has 0 bytes"):
        one.newest()


@pytest.mark.parametrize("question", ["newest", "found", "read", "manifest"])
def test_storage_that_is_away_says_nothing_against_a_backup(question: str) -> None:
    """Whenever it goes, and for however long: the answer is the true one, or that there is none."""
    store = MemoryStore()
    one = backups(store)
    for cycle in (1, 2):
        one.write(state(cycle))
    name = one.names()[0]
    ask: Callable[[], list[int]] = {
        "newest": lambda: [one.newest().state.cycle, len(one.newest().passed_over)],
        "found": lambda: [info.cycle for info in one.found()],
        "read": lambda: [one.read(name).cycle],
        "manifest": lambda: [one.manifest(name)["cycle"]],
    }[question]
    began, true = store.asked, ask()
    calls = store.asked - began
    assert calls > 1
    answers = 0
    for first in range(calls):
        for many in (1, 2, 10 * calls):
            store.away = range(store.asked + first, store.asked + first + many)
            try:
                answer = ask()
            except ConnectionRefusedError:  # and no BackupError, which would be a fault of the backup
                continue
            assert answer == true
            answers += 1
    assert answers >= calls - 2, "what was away for a call is asked again"


def test_a_file_that_can_never_be_read_is_a_fault_of_its_backup() -> None:
    """Storage answers, and has lost it."""
    store = Unreadable("run/backups/term-0001-cycle-00000002/model.safetensors")
    one = backups(store)
    for cycle in (1, 2):
        one.write(state(cycle))
    store.lost = True
    found = one.newest()
    assert (found.state.cycle, len(found.passed_over)) == (1, 1)
    assert "no replica is left" in found.passed_over[0]


@pytest.mark.parametrize(("times", "taken"), [(0, 3), (1, 3), (2, 3), (3, 3), (4, 3), (5, 3), (6, 2), (7, 2), (8, 1)])
def test_one_whose_bytes_were_away_for_a_while_is_asked_again_when_an_older_one_could_be_read(times: int, taken: int) -> None:
    """DataNodes come back after so many tries, while the NameNode has always answered; two of three are asked two times two."""
    store = Unreadable(*(f"run/backups/term-0001-cycle-0000000{cycle}/model.safetensors" for cycle in (2, 3)))
    one = backups(store)
    for cycle in (1, 2, 3):
        one.write(state(cycle))
    store.lost, store.tries = True, times
    found = one.newest()
    assert (found.state.cycle, found.info.cycle, len(found.passed_over)) == (taken, taken, 3 - taken)
    assert all(f"cycle-0000000{cycle}" in said for cycle, said in zip((3, 2), found.passed_over, strict=False))


def test_a_damaged_one_is_not_asked_again() -> None:
    store = Unreadable("run/backups/term-0001-cycle-00000002/model.safetensors")
    one = backups(store)
    for cycle in (1, 2, 3):
        one.write(state(cycle))
    store.damage("run/backups/term-0001-cycle-00000003/model.safetensors", b"")
    store.lost, store.tries = True, 2
    found = one.newest()
    assert (found.state.cycle, len(found.passed_over)) == (2, 1)
    assert "has 0 bytes" in found.passed_over[0]


class Unreadable(MemoryStore):
    """Files of it cannot be read, once they are `lost`, for so many tries."""

    def __init__(self, *paths: str) -> None:
        super().__init__()
        self._paths, self.lost, self.tries = paths, False, 1 << 30

    def read(self, path: str) -> bytes:
        if self.lost and path in self._paths and self.tries:
            self.tries -= 1
            raise OSError(errno.EIO, "no replica is left", path)
        return super().read(path)

    def size(self, path: str) -> int:
        return len(super().read(path))


def test_hidden_and_foreign_names_are_not_backups() -> None:
    store = MemoryStore()
    one = backups(store)
    one.write(state(1))
    store.write("run/backups/.tmp-term-0001-cycle-00000009/manifest.json", b"{}")
    store.write("run/backups/notes.txt", b"")
    assert one.newest().passed_over == []
    one.write(state(2))
    assert store.names("run/backups") == ["notes.txt", "term-0001-cycle-00000001", "term-0001-cycle-00000002"]
