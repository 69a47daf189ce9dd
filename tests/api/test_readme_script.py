"""The README's script of a user's own, word for word: alone on this machine, and on agents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"<!-- tests/api runs this -->\s*```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (text,) = MARKED.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_alone_it_trains_and_attach_does_nothing(script: Path) -> None:
    # alone a share has no end, so the loop is left from outside, after some batches
    program = (
        "import itertools, mpca, train\n"
        "share = mpca.shard\n"
        "mpca.shard = lambda *args, **kwargs: itertools.islice(share(*args, **kwargs), 50)\n"
        "assert train.train() == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=script.parent, timeout=120)


@pytest.mark.spark
@pytest.mark.slow
def test_on_two_agents_it_ends_by_its_objective(script: Path) -> None:
    done = subprocess.run([sys.executable, script.name], capture_output=True, text=True, cwd=script.parent, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last == "max_time {0: 0, 1: 1} ['0.bias', '0.weight', '2.bias', '2.weight']"
    (run_dir,) = (script.parent / "runs").iterdir()
    assert "<h2>loss</h2>" in (run_dir / "report.html").read_text(encoding="utf-8")
    assert re.search(r"cycle \d+ \| loss [\d.e-]+ \| ", done.stdout), "it evaluates nothing, and is not silent"
