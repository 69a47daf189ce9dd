"""Each script of `examples/`, as a user starts it, until it ends by itself: on executors of this machine, with tiny data.

Collected only when the file is named: ``make test-examples``. Of these, tests that run every day have five train functions:
`test_engine_several_models.py` that of the GAN, `test_engine_trainers.py` those of Lightning, transformers, LoRA and the
language model.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REACHED = r"reached \{0: \d+, 1: \d+\}"
#: Script -> its last line.
LAST = {
    "amp": r"reached \{0: \('torch.bfloat16', 'torch.float32'\), 1: .*\}",
    "gan": r"\['0.bias', '0.weight', .*\]",
    "imagenet": r"max_time \{0: \d+, 1: \d+\}",
    "lightning_fit": REACHED,
    "lm": r"reached \{0: [\d.]+, 1: [\d.]+\} of at least 2.181",
    "lora": r"8 tensors of adapters, 9216 bytes",
    "pipeline": r"right: (9\d|100)\.\d%",
    "plain_loop": REACHED + r" \['0.bias', .*\]",
    "transformers_trainer": REACHED,
}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_it_ends_as_it_is_meant_to(name: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("w") as file:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py")], cwd=tmp_path, stdout=file, stderr=subprocess.STDOUT
        )
    text = said.read_text(encoding="utf-8")
    assert done.returncode == 0, text[-5000:]
    assert re.fullmatch(LAST[name], text.strip().splitlines()[-1]), text[-5000:]
