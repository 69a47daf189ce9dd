"""What `make test-gpu` says where there is no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
]


def test_without_a_gpu_it_is_one_sentence_and_no_success() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-m", "tests.gpu"], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"test-gpu: needs one GPU, and torch {torch.__version__} (built ")
