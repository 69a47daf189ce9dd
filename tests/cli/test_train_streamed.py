"""`mpca train` on an ingested set: agents stream their shares, and too many bad records end it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mpca.data.ingest import Options, ingest
from tests.data.pictures import folders

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

CONF = """
[model]
name = "resnet20"
classes = 2
[data]
name = "imagenet"
path = "{path}"
crop = 32
shorter_edge = 32
read_ahead = "1MiB"
batch_size = 4
[objectives]
max_cycles = {cycles}
[cluster]
agents = 2
executor_memory = "512MiB"
"""


def train(tmp_path: Path, path: Path, cycles: int) -> tuple[int, dict, list[str]]:
    """Exit code, what --json says, and the lines of stderr."""
    conf = tmp_path / "run.toml"
    conf.write_text(CONF.format(path=path, cycles=cycles))
    command = [sys.executable, "-m", "mpca.cli", "train", str(conf), "--run-dir", str(tmp_path / "run"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    return done.returncode, json.loads(done.stdout), done.stderr.strip().splitlines()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures of 32 x 40 pixels, of which nothing is to be scaled."""
    root = tmp_path_factory.mktemp("small")
    source = folders(root / "source", classes=2, each=20, edge=32)
    ingest(source, str(root / "set"), Options(shorter_edge=32, withheld=2), processes=1)
    return root / "set"


def test_too_many_bad_records_end_the_run_with_4_and_their_names(tmp_path: Path, small: Path) -> None:
    (tmp_path / "set").mkdir()
    for file in small.iterdir():
        data = bytearray(file.read_bytes())
        if file.name == "train-000000.tar":
            data[512 + 300] ^= 1  # of the first record
        (tmp_path / "set" / file.name).write_bytes(bytes(data))
    code, summary, err = train(tmp_path, tmp_path / "set", cycles=10_000)
    assert code == 4, err
    assert summary["status"] == "failed"
    assert "too many bad records: 1 of 18" in err[-1]
    assert "wrong checksum" in err[-1]
    assert "train-000000.tar:class" in err[-1]
