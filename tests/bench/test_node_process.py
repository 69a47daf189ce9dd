"""How a bench ends the process that measures: while it listens, while it still starts, and when it hears nothing."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from mpca.cli.bench.net import node_process
from mpca.cli.bench.net.node_process import NodeProcess

pytestmark = pytest.mark.long

MODULE = """
import json, pathlib, signal, sys, time
spec = json.loads(sys.argv[1])
if spec["deaf"]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("{}", flush=True)
ended = "by nothing"
try:
    if spec["listens"]:
        assert sys.stdin.read() == ""
        ended = "by the end of its stdin"
    else:
        time.sleep(600)
except KeyboardInterrupt:
    ended = "by SIGINT"
finally:
    pathlib.Path(spec["work_dir"], "ended").write_text(ended)
"""


@dataclass(frozen=True)
class Spec:
    work_dir: str
    listens: bool
    deaf: bool


@pytest.mark.parametrize(
    ("listens", "deaf", "ended"),
    [(True, False, "by the end of its stdin"), (False, False, "by SIGINT"), (False, True, None)],
)
def test_whatever_it_does_it_has_ended_when_the_block_ends(
    listens: bool, deaf: bool, ended: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_process, "_LISTENING_S", 20 if listens else 0.3)
    monkeypatch.setattr(node_process, "_END_S", 0.5 if deaf else 20)
    (tmp_path / "measures.py").write_text(MODULE)
    with ExitStack() as stack:
        spec = Spec(str(tmp_path), listens, deaf)
        process = NodeProcess(stack, ["env", f"PYTHONPATH={tmp_path}"], "measures", spec)
        assert process.hear() == {}
    code = process._process.returncode
    assert code == (-signal.SIGKILL if deaf else 0)
    told = tmp_path / "ended"
    assert (told.read_text() if told.exists() else None) == ended
