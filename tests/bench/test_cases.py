"""Each case as a person calls it: one JSON object on stdout, with its keys, from a run as small as it gets."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.support import needs_namespaces
from tests.support.fake_executor import wait_until


def bench(*words: str, limit_s: float = 280) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "mpca.cli", "bench", *words, "--json"], capture_output=True, text=True, timeout=limit_s
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_step_tells_the_ratio_and_what_noise_was_in_it() -> None:
    result = bench("step", "--shape", "chain-7M", "--model", "resnet20", "--batch", "2", "--seconds", "1")
    row, model = result["shapes"]
    assert result["attach_ratio"] == max(row["attach_ratio"], model["attach_ratio"]) > 0.5
    assert (model["name"], model["batch"], model["size_bytes"]) == ("resnet20", 2, 4 * 269_722)
    assert model["images_per_s"] == pytest.approx(2 / model["plain_step_s"])
    assert row["control_ratio"] > 0.5
    assert 0 < row["hook_share"] < 0.5
    assert row["size_bytes"] == pytest.approx(7 << 20, rel=0.01)


@pytest.mark.slow
def test_compare_tells_how_fast_stacked_runs_are() -> None:
    result = bench("compare", "--runs", "5", "--seconds", "2")
    assert result["runs"] == 5
    assert result["mlp_updates_per_s"] > result["convnet_updates_per_s"] > 100
    assert result["mlp_updates_per_s"] > result["simulated_updates_per_s"] > 100


@pytest.mark.root
def test_tcp_tells_b_and_the_period() -> None:
    needs_namespaces()
    result = bench("tcp", "--agents", "2", "--size", "1MiB", "--shape", "100mbit")
    assert result["congestion"] == "cubic"
    assert result["b_s"] == pytest.approx(1 / result["stream_mib_s"])
    assert result["tcp_period_over_b"] > 1.0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["exchange", "--size", "much"], "not a size: 'much'"),
        (["exchange", "--shape", "30"], "not a rate: '30'"),
        (["tcp", "--shape", "fast"], "not a rate: 'fast'"),
        (["exchange", "--reducer", "magic"], "'magic' is not one of"),
        (["step", "--model", "resnet35"], "'resnet35': one of digits_convnet"),
        (["peers", "--ratio", "0"], "0.0 is not in the range"),
        (["peers", "--peer", "horovod"], "'horovod' is not one of"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_bad_words_are_refused_before_anything_is_started(words: list[str], sentence: str) -> None:
    done = subprocess.run([sys.executable, "-m", "mpca.cli", "bench", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_case_that_is_asked_to_end_breaks_off_in_order() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mpca.cli", "bench", "compare", "--seconds", "120"], stderr=subprocess.PIPE, text=True
    )
    status = Path("/proc", str(process.pid), "status")

    def heard() -> bool:
        (caught,) = re.findall(r"SigCgt:\s*(\w+)", status.read_text())
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    wait_until(heard, "it hears SIGTERM", 60.0)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (143, "mpca: SIGTERM")
