"""Whatever the files of the newest backup hold, the older one is taken and the reason is named; what is accepted can be used.

Bytes are changed anywhere, and values anywhere in the manifest's tree. Since a sha256 would find nearly all of it, the hashes
are made to fit again: what is tried is what a wrong writer, or somebody who can write there, could have left.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpca.errors import BackupError
from mpca.storage import Backups, BackupState, LocalStore
from tests.storage.test_backup import backups, same, state
from tests.support.memory_store import MemoryStore

NEWEST = "run/backups/term-0001-cycle-00000002"
FILES = ("model.safetensors", "trajectory.safetensors")


def two() -> MemoryStore:
    store = MemoryStore()
    for cycle in (1, 2):
        backups(store).write(state(cycle))
    return store


WHOLE = two()
MANIFEST: dict[str, Any] = json.loads(WHOLE.read(f"{NEWEST}/manifest.json"))
LARGEST = 1 << 62


def signed(manifest: Any) -> bytes:
    """A manifest with a hash of its own that fits."""
    if not isinstance(manifest, dict):
        return json.dumps(manifest).encode()
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps({**rest, "sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


def with_file(file: str, data: bytes) -> dict[str, bytes]:
    """A file of the backup, and a manifest that says that it has to be so."""
    manifest = copy.deepcopy(MANIFEST)
    manifest["files"][file] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {file: data, "manifest.json": signed(manifest)}


def newest(changes: dict[str, bytes]) -> Any:
    store = two()
    for file, data in changes.items():
        store.damage(f"{NEWEST}/{file}", data)
    return backups(store).newest()


def holds(changes: dict[str, bytes]) -> None:
    """The promise: the older one with the reason, or one that a run can go on from."""
    found = newest(changes)
    if found.passed_over:
        assert same(found.state, state(1))
        (reason,) = found.passed_over
        assert reason.startswith("term-0001-cycle-00000002: ")
        assert len("term-0001-cycle-00000002: ") < len(reason) < 400
        assert reason.isprintable()
        store = two()
        for file, data in changes.items():
            store.damage(f"{NEWEST}/{file}", data)
        with pytest.raises(BackupError) as raised:
            backups(store).read("term-0001-cycle-00000002")
        assert isinstance(raised.value.__cause__, (ValueError, OSError)), "caught, but nobody thought of it"
    else:
        usable(found.state)


def usable(one: BackupState) -> None:
    assert np.isfinite(one.vector).all()
    assert np.isfinite(one.trajectory).all()
    assert one.vector.size == one.bounds[-1]
    assert len(one.exchanges) == len(one.bounds) - 1 > 0
    numbers = [one.term, one.cycle, *one.bounds, *one.exchanges]
    assert all(type(number) is int and 0 <= number < LARGEST for number in numbers)
    assert 0 <= one.progress.get("trained_s", 0) < LARGEST
    print(one.run, one.method, one.software)  # no half of a surrogate pair, which no terminal takes
    assert set(one.layout.state_dict(one.vector)) == {*one.layout.model_tensors(one.vector)}
    again = MemoryStore()
    backups(again).write(one)
    assert same(backups(again).newest().state, one)


# ---- anything, anywhere ------------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 1 << 31, 1 << 62, 1 << 63, 10**30, 10**4000]),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "abc", "0", "float32", "..", "\ud800", "\x1b[2J\n", "manifest.json"]),
    st.text(max_size=5),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@st.composite
def changed_manifests(draw: st.DrawFn) -> Any:
    """The manifest with one to three places of its tree replaced, removed, doubled or exchanged with another's value."""
    tree: Any = copy.deepcopy(MANIFEST)
    for _ in range(draw(st.integers(1, 3))):
        parent, key = None, None
        node = tree
        while isinstance(node, (dict, list)) and len(node) and (parent is None or draw(st.booleans())):
            key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
            parent, node = node, node[key]
        if parent is None:
            continue
        what = draw(st.sampled_from(["replace", "replace", "remove", "double", "nest"]))
        if what == "replace":
            parent[key] = draw(values)
        elif what == "remove":
            del parent[key]
        elif what == "nest":
            parent[key] = [parent[key]]
        elif isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        else:
            parent[draw(st.text(max_size=5))] = copy.deepcopy(parent[key])
    return tree


@settings(max_examples=200)
@given(changed_manifests())
def test_any_value_in_the_manifest_is_found_out_or_harmless(manifest: Any) -> None:
    holds({"manifest.json": signed(manifest)})


@st.composite
def changed_bytes(draw: st.DrawFn) -> tuple[str, bytes]:
    file = draw(st.sampled_from(FILES))
    data = WHOLE.read(f"{NEWEST}/{file}")
    header = 8 + int.from_bytes(data[:8], "little")
    for _ in range(draw(st.integers(1, 3))):
        # the header is a thirtieth of the file, and most of what can go wrong
        at = draw(st.integers(0, header) | st.integers(0, len(data)))
        length = draw(st.sampled_from([0, 1, 2, 8, 4096]))
        data = data[:at] + draw(st.binary(max_size=9)) + data[at + length :]
    return file, draw(st.sampled_from([data, data, data, draw(st.binary(max_size=40))]))


@settings(max_examples=200)
@given(changed_bytes())
def test_any_bytes_in_a_file_of_tensors_are_found_out_or_harmless(change: tuple[str, bytes]) -> None:
    holds(with_file(*change))


@settings(max_examples=100)
@given(st.binary(max_size=200) | st.integers(0, 3000).map(lambda at: WHOLE.read(f"{NEWEST}/manifest.json")[at:]))
@example(b"\xff\xfe")
@example(b'{"a":' * 100_000)
def test_any_bytes_for_a_manifest_are_found_out(data: bytes) -> None:
    found = newest({"manifest.json": data})
    assert found.state.cycle == (1 if data != WHOLE.read(f"{NEWEST}/manifest.json") else 2)


# ---- what was once accepted, or aborted the resume ---------------------------------------------------------------------


def altered(change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    manifest = copy.deepcopy(MANIFEST)
    change(manifest)
    return {"manifest.json": signed(manifest)}


def setting(*path: Any, value: Any) -> dict[str, bytes]:
    def change(manifest: Any) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    return altered(change)


def header(file: str, text: bytes) -> dict[str, bytes]:
    """The file with another header before the same tensors."""
    data = WHOLE.read(f"{NEWEST}/{file}")
    return with_file(file, struct.pack("<Q", len(text)) + text + data[8 + int.from_bytes(data[:8], "little") :])


def floats_at(file: str, *values: float) -> dict[str, bytes]:
    data = WHOLE.read(f"{NEWEST}/{file}")
    at = 8 + int.from_bytes(data[:8], "little") + 8 * 60  # an 8-byte counter comes first, then conv.weight
    return with_file(file, data[:at] + np.float32(values).tobytes() + data[at + 4 * len(values) :])


DEEP = b"[" * 100_000 + b"]" * 100_000
CASES: dict[str, tuple[dict[str, bytes], str]] = {
    "deep manifest": ({"manifest.json": b'{"a": ' * 100_000}, "manifest.json is not JSON: nested too deeply"),
    "deep manifest, closed": ({"manifest.json": b'{"a": ' + DEEP + b"}"}, "nested too deeply"),
    "deep header": (header(FILES[0], DEEP), "model.safetensors: not a safetensors file: header: nested too deeply"),
    "header no map": (header(FILES[0], b"[]"), "the header is not a map"),
    "header of scalars": (header(FILES[0], b'{"a": 1}'), "tensor='a': TypeError"),
    "header absurd": (
        header(FILES[0], b'{"a": {"dtype": "F32", "shape": [%d], "data_offsets": [0, 4]}}' % 10**4000),
        "no array is so large",
    ),
    "shape absurd": (setting("layout", "tensors", 0, 1, value=[1 << 40, 1 << 19]), "layout"),
    "shape negative": (setting("layout", "tensors", 0, 1, value=[-40, -64]), "not a list of sizes"),
    "shape of floats": (setting("layout", "tensors", 0, 1, value=[40.0, 64]), "not a list of sizes"),
    "33 axes": (setting("layout", "tensors", 0, 1, value=[1] * 31 + [40, 64]), "no array is so large"),
    "parameters absurd": (setting("layout", "parameters", value=1 << 50), "not a layout"),
    "offset a float": (setting("layout", "tensors", 0, 3, value=0.0), "an offset is no integer"),
    "tied to none": (setting("layout", "tied", value={"head.weight": "nobody"}), "tied to none"),
    "local of no type": (setting("layout", "local", "mask", value=["complex64", [3]]), "dtype='complex64'"),
    "local of a list": (setting("layout", "local", "mask", value=[["bool"], [3]]), "not a name: ['bool']"),
    "cycle a text": (setting("cycle", value="abc"), 'cycle cannot be "abc"'),
    "cycle true": (setting("cycle", value=True), "cycle cannot be true"),
    "cycle negative": (setting("cycle", value=-1), "cycle cannot be -1"),
    "cycle absurd": (setting("cycle", value=10**30), "cycle cannot be 1000"),
    "term a float": (setting("term", value=1.0), "term cannot be 1.0"),
    "term nothing": (setting("term", value=None), "term cannot be null"),
    "exchanges none": (setting("exchanges", value=[]), "exchanges cannot be []"),
    "exchanges of texts": (setting("exchanges", value=["1", "1"]), "exchanges cannot be"),
    "exchanges too many": (setting("exchanges", value=[1, 1, 1]), "exchanges cannot be [1, 1, 1]"),
    "bounds none": (setting("bounds", value=[]), "bounds cannot be []"),
    "bounds backwards": (setting("bounds", value=[0, 2564, 1282]), "bounds cannot be"),
    "bounds of another model": (setting("bounds", value=[0, 5]), "bounds cannot be [0, 5]"),
    "run a number": (setting("run", value=7), "run cannot be 7"),
    "run half a character": (setting("run", value="\ud800"), "surrogates not allowed"),
    "progress a list": (setting("progress", value=[]), "progress cannot be []"),
    "seconds a text": (setting("progress", value={"trained_s": "abc"}), 'progress.trained_s cannot be "abc"'),
    "seconds NaN": (setting("progress", value={"trained_s": float("nan")}), "not a number of JSON: NaN"),
    "seconds infinite": (setting("progress", value={"t": float("-inf")}), "not a number of JSON: -Infinity"),
    "seconds too many": (
        {"manifest.json": signed(MANIFEST).replace(b'{"seconds": 12.5}', b'{"t": 1e999}')},
        "not a finite number: 1e999",
    ),
    "file of another place": (setting("files", value={"../../secret": {"bytes": 1, "sha256": "0" * 64}}), "files cannot be"),
    "length a text": (setting("files", FILES[0], "bytes", value="12"), "files.model.safetensors cannot be"),
    "key missing": (altered(lambda manifest: manifest.pop("exchanges")), "exchanges is missing"),
    "layout missing": (altered(lambda manifest: manifest.pop("layout")), "layout is missing"),
    "NaN in the model": (floats_at(FILES[0], float("nan")), "not finite: 1 values of tensor='conv.weight' in the model"),
    "Inf in the model": (floats_at(FILES[0], float("inf")), "not finite: 1 values of tensor='conv.weight' in the model"),
    "Inf and -Inf in the model": (
        floats_at(FILES[0], float("inf"), float("-inf")),
        "not finite: 2 values of tensor='conv.weight' in the model",
    ),
    "-Inf in the trajectory": (floats_at(FILES[1], float("-inf")), "not finite: 1 values of tensor='conv.weight' in the traj"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_older_one_is_taken_with_the_reason(case: str) -> None:
    changes, words = CASES[case]
    found = newest(changes)
    assert same(found.state, state(1))
    assert len(found.passed_over) == 1
    assert words in found.passed_over[0]
    holds(changes)


def link(path: Path) -> None:
    kept = path.rename(path.parents[2] / f"elsewhere-{path.name}")
    path.symlink_to(kept)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("file", ["manifest.json", *FILES])
@pytest.mark.parametrize(
    ("change", "words"),
    [(link, "symbolic link"), (endless, "symbolic link"), (pipe, "no plain file"), (folder, "is a folder")],
)
def test_what_is_no_file_is_not_read(tmp_path: Path, file: str, change: Callable[[Path], None], words: str) -> None:
    own = Backups(LocalStore(tmp_path), "backups")
    for cycle in (1, 2):
        own.write(state(cycle))
    change(tmp_path / "backups" / "term-0001-cycle-00000002" / file)
    found = own.newest()
    assert same(found.state, state(1))
    assert words in found.passed_over[0]
    assert file in found.passed_over[0]
    assert [info.cycle for info in own.found()] == [1]


def test_a_manifest_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    own = Backups(LocalStore(tmp_path), "backups")
    for cycle in (1, 2):
        own.write(state(cycle))
    with open(tmp_path / "backups" / "term-0001-cycle-00000002" / "manifest.json", "r+b") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    assert "has 1099511627776 bytes" in own.newest().passed_over[0]


# ---- what is written ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["vector", "trajectory"])
def test_a_model_that_is_not_finite_is_not_written_over_good_ones(where: str) -> None:
    store = two()
    one = state(3)
    getattr(one, where)[7] = np.inf
    with pytest.raises(BackupError, match=r"not written: .*not finite: 1 values of tensor='conv.weight'"):
        backups(store, keep=1).write(one)
    assert [info.cycle for info in backups(store).found()] == [2, 1]


def test_large_finite_values_are_no_damage() -> None:
    one = state(3)
    one.vector[:] = np.finfo(np.float32).max
    store = MemoryStore()
    backups(store).write(one)
    assert same(backups(store).newest().state, one)


def test_an_error_that_is_not_finite_costs_no_backup() -> None:
    store = MemoryStore()
    backups(store).write(state(3, progress={"best_error": float("nan"), "t": 2.0}))
    assert backups(store).newest().state.progress == {"best_error": None, "t": 2.0}
