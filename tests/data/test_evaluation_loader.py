"""Passes over a split: the same batches each time, by decoders that stay; one that ended early does not disturb the next."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mpca.data.evaluation_loader import EvaluationLoader
from mpca.data.stream import Streamed
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import SplitData
from mpca.errors import BadRecords
from mpca.storage import LocalStore
from tests.data.pictures import ingested, jpeg


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("pictures"), each=7, withheld=5)


@pytest.fixture
def passes(pictures: Path) -> Iterator[EvaluationLoader]:
    one = EvaluationLoader(streamed(pictures), 4)
    yield one
    one.close()


def streamed(path: Path) -> Streamed:
    return Streamed(SplitData.open(LocalStore(path), "validation"), StreamOptions(crop=32), seed=3)


def test_every_pass_gives_the_same_batches_by_the_same_processes(passes: EvaluationLoader, pictures: Path) -> None:
    first = list(passes)
    pids = passes.worker_pids()
    assert len(pids) == 1
    again = list(passes)
    assert passes.worker_pids() == pids
    streams = list(streamed(pictures).stream(4, epochs=1))
    assert [len(labels) for _, labels in first] == [4, 4, 2]
    for one, other, stream in zip(first, again, streams, strict=True):
        assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(one, other, stream, strict=True))


def test_one_that_ended_early_and_a_decoder_that_died_disturb_no_later_one(passes: EvaluationLoader) -> None:
    whole = [labels.tolist() for _, labels in passes]
    batches = iter(passes)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert passes.worker_pids() == []
    assert [labels.tolist() for _, labels in passes] == whole
    os.kill(passes.worker_pids()[0], signal.SIGKILL)
    assert [labels.tolist() for _, labels in passes] == whole


def test_bad_records_end_a_pass_and_are_counted_anew_in_the_next(pictures: Path, tmp_path: Path) -> None:
    for file in pictures.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    shard = tmp_path / "validation-000000.tar"
    data = bytearray(shard.read_bytes())
    data[512 + len(jpeg(0)) // 2] ^= 1  # of the first record
    shard.write_bytes(bytes(data))
    strict, patient = EvaluationLoader(streamed(tmp_path), 4), EvaluationLoader(streamed(tmp_path), 4, max_bad_fraction=0.1)
    try:
        for _ in range(2):
            with pytest.raises(BadRecords, match=r"1 of 10 .* wrong checksum"):
                list(strict)
            assert strict.worker_pids() == []
            assert sum(len(labels) for _, labels in patient) == 9
    finally:
        patient.close()
