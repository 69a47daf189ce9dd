"""`mpca generate` and `mpca ingest` as a shell sees them, and what they leave as the data of a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpca.api import builtin
from mpca.errors import BadRecords, ConfigError
from tests.cli.test_main import run
from tests.data.pictures import folders, ingested, jpeg


def tables(path: Path, **data) -> dict:
    section = {"name": "imagenet", "path": str(path), "batch_size": 4, "max_bad_fraction": 0.0, **data}
    return {
        "run": {"seed": 1},
        "model": {"name": "digits_mlp"},
        "data": section,
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0},
        "method": {"name": "mpca"},
        "objectives": {"targets": "", "early_stopping": "", "keep_best": ""},
        "cluster": {"agents": 2, "device": "cpu"},
    }


def test_generate_and_ingest_say_what_they_did(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tar, target = tmp_path / "x.tar", tmp_path / "set"
    code, out, _ = run(capfd, "generate", "4", str(tar), "--classes", "2", "--processes", "1")
    assert (code, out.split(",")[0]) == (0, "4 images of 2 classes")
    source = folders(tmp_path / "source", classes=2, each=4)
    (source / "class0" / "bad.jpg").write_bytes(b"text")
    command = ["ingest", str(source), str(target), "--withheld", "1", "--processes", "1"]
    code, out, _ = run(capfd, *command)
    assert code == 0
    assert out.splitlines() == [
        "ingested: 2 classes, 6 to train on, 2 to evaluate on",
        f"1 files could not be read; they are named in {target}/bad.jsonl",
    ]
    code, out, _ = run(capfd, *command)
    assert (code, out.splitlines()[0]) == (0, "already ingested: 2 classes, 6 to train on, 2 to evaluate on")
    code, out, _ = run(capfd, *command, "--json")
    assert json.loads(out) == {"target": str(target), "found": "finished", "records": {"train": 6, "validation": 2}, "bad": 1}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ingest", "nowhere", "set"], ["no such source", "nowhere"]),
        (["ingest", "nowhere", "set", "--shard-size", "much"], ["not a size: 'much'"]),
        (["generate", "3", "x.tar", "--classes", "4"], ["classes=4, images=3"]),
        (["generate", "3", "nowhere/x.tar"], ["TARGET = 'nowhere/x.tar'", "No such file or directory"]),
        (["generate", "3", "."], ["TARGET = '.'", "Is a directory"]),
    ],
)
def test_refusals_exit_with_2_and_leave_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capfd, *args)
    assert code == 2
    assert all(word in err[-1] for word in words)
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_that_names_the_set_is_checked_before_anything_starts(tmp_path: Path) -> None:
    good = ingested(tmp_path / "good", withheld=1)
    builtin.check(tables(good, read_ahead="8MiB"))
    whole = ingested(tmp_path / "whole", each=2)
    for wrong, says in (
        (tables(whole), "has nothing to evaluate on: ingest it with --withheld"),
        (tables(tmp_path), "no data set: .*manifest.json does not exist"),
        (tables(Path()) | {"data": {"name": "imagenet"}}, "data.path is empty"),
        (tables(good, read_ahead="64"), r"data.read_ahead = '64': not a size"),
        (tables(good, worker=2), "unknown key data.worker: did you mean 'workers'"),
        (tables(good, decoder="cuda"), "data.decoder = 'cuda': agents have no GPU"),
        (tables(good) | {"cluster": {"agents": 99}}, "fewer samples than agents"),
    ):
        with pytest.raises(ConfigError, match=says):
            builtin.check(wrong)


def test_evaluation_streams_what_was_withheld(tmp_path: Path) -> None:
    """A net that always answers class 1, by its bias: it is wrong on the half that is of class 0."""
    import numpy as np

    from mpca import models

    path = ingested(tmp_path, each=5, withheld=3)
    config = tables(path, crop=8, shorter_edge=256) | {"model": {"name": "always_one"}}

    def always_one():
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))

    models.MODELS["always_one"] = always_one
    try:
        state = {"1.weight": np.zeros((2, 192), np.float32), "1.bias": np.array([0, 2], np.float32)}
        for _ in range(2):
            assert builtin.evaluate(config, state) == pytest.approx({"error": 0.5, "loss": 1 + float(np.log1p(np.exp(-2)))})
    finally:
        builtin.forget()
        del models.MODELS["always_one"]


def test_bad_records_of_an_evaluation_are_an_error_of_their_own(tmp_path: Path) -> None:
    path = ingested(tmp_path, each=5, withheld=3)
    shard = path / "validation-000000.tar"
    data = bytearray(shard.read_bytes())
    at = data.index(jpeg(0)[:40])
    data[at + 200] ^= 1
    shard.write_bytes(bytes(data))
    try:
        with pytest.raises(BadRecords, match=r"1 of 6 .* wrong checksum"):
            builtin.evaluate(tables(path), {})
    finally:
        builtin.forget()
