"""Each case as a person calls it: one JSON object on stdout, with its keys, from a run as small as it gets."""

from __future__ import annotations

import json
import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench.support import needs_namespaces
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long


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
    assert result["pull_over_memory"] == row["pull_over_memory"] > 0.5, "less time than memory allows"


@pytest.mark.slow
def test_two_agents_on_their_own_pipes_exchange_and_are_left_alone_in_turns() -> None:
    result = bench("pause", "--device", "cpu", "--agents", "2", "--model", "resnet20", "--batch", "2", "--turns", "2", "--bf16")
    (row,) = result["nets"]
    assert (row["name"], row["batch"], row["size_bytes"]) == ("resnet20", 2, 4 * 269_722)
    assert row["exchanges"] > 5
    assert min(row["steps"]) > 5
    assert 0 < row["pause_share"] == result["pause_share"] < 1
    assert result["steps_ratio"] == pytest.approx(1 / (1 + row["lost_share"] * row["exchanges"] / row["steps"][0]), rel=1e-6)
    assert (result["device"], result["agents"], result["bf16"]) == ("cpu", 2, True)
    exchanging, alone = row["windows_s"]
    assert (len(exchanging), len(alone)) == (2, 2)
    assert row["step_s"] == statistics.median(alone)
    assert row["steps_ratio"] == pytest.approx(1 / statistics.median(a / b for a, b in zip(exchanging, alone, strict=True)))
    assert row["lost_chance"] > 0
    assert row["images_per_s"] == pytest.approx(2 * 2 / row["step_s"])


@pytest.mark.slow
def test_compare_tells_how_fast_stacked_runs_are() -> None:
    result = bench("compare", "--runs", "5", "--seconds", "2")
    assert result["runs"] == 5
    assert result["mlp_updates_per_s"] > result["convnet_updates_per_s"] > 100
    assert result["mlp_updates_per_s"] > result["simulated_updates_per_s"] > 100


@pytest.mark.slow
def test_codec_tells_ratios_of_both_tasks_and_the_smallest() -> None:
    result = bench("codec", "--quick", "--seeds", "2")
    rows = {(row["task"], row["codec"]): row for row in result["table"]}
    assert set(rows) == {
        (task, codec) for task in ("mixture", "warped-digits") for codec in ("bf16", "int8", "int4", "control")
    }
    for codec in ("bf16", "int8", "int4", "control"):
        assert result[f"{codec}_updates_ratio"] == max(rows[task, codec]["middle"] for task in ("mixture", "warped-digits"))
    for (task, _), row in rows.items():
        assert len(row["medians"]) == len(result["targets"][task]) > 1
        assert row["worst"] == max(row["medians"]) > 0.2
    assert len({tuple(row["last_errors"]) for row in rows.values()}) == len(rows), "each codec rounds otherwise"
    assert result["smallest"] in ("none", "bf16", "int8", "int4")
    assert not result["counts"]


@pytest.mark.root
@pytest.mark.quiet
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
        (["step", "--model", "resnet35"], "--model = 'resnet35': no such model; did you mean"),
        (["step", "--shape", "chain"], "'chain': one of residual-1M"),
        (["pause", "--bf16"], "--model, --batch and --bf16 are for --device"),
        (["pause", "--device", "cpu", "--size", "1MiB"], "--size is for agents on Spark's executors"),
        (["pause", "--device", "cpu", "--model", "resnet35"], "--model = 'resnet35': no such model; did you mean"),
        pytest.param(
            ["pause", "--device", "cuda"],
            "torch finds no GPU on this node",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
        ),
        (["codec", "--seeds", "0"], "0 is not in the range"),
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
