"""The equations against histories that were computed another way (`tests/golden/make_histories.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpca.algorithm import (
    JointShard,
    Outer,
    alpha_at,
    beta_at,
    correct,
    extrapolate,
    gamma_at,
    init,
    local_mean,
    outer_step,
    pull,
    tilt,
    update,
    weighted_sum,
)
from mpca.methods import MPCA, PaperMPCA

GOLDEN = Path(__file__).parent.parent / "golden"


def history(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / "histories" / f"{name}.json").read_text())
    return content


def close(actual: Any, expected: Any, relative_error: float) -> None:
    np.testing.assert_allclose(actual, expected, rtol=relative_error, atol=relative_error)


def test_eq9_over_agents_and_over_executors() -> None:
    golden = history("averages")
    agents = [np.float32(x) for x in golden["agents"]]
    for case in golden["cases"]:
        taus = case["taus"]
        parts = [local_mean([agents[i] for i in e], [taus[i] for i in e]) for e in case["executors"]]
        weights = [sum(taus[i] for i in e) for e in case["executors"]]
        kept = [(part, weight) for part, weight in zip(parts, weights, strict=True) if part is not None]
        nested = weighted_sum([part for part, _ in kept], [weight for _, weight in kept]) if kept else None
        direct = weighted_sum(agents, taus)
        if case["mean"] is None:
            assert nested is None
            assert direct is None
        else:
            close(nested, case["mean"], golden["relative_error"])
            close(direct, case["mean"], golden["relative_error"])


def test_eq8_eq4_eq5_over_24_exchanges() -> None:
    golden = history("joint")
    state = init(np.float32(golden["x0"]), golden["parameters"])
    for number, step in enumerate(golden["steps"], start=1):
        state = update(state, np.float32(step["mean"]), step["beta"], delta=0.8)
        close(state.x, step["x"], golden["relative_error"])
        close(state.v, step["v"], golden["relative_error"])
        close(extrapolate(state, step["gamma"]), step["outgoing"], golden["relative_error"])
        assert state.k == number


def test_method_mpca_makes_the_same_history_by_its_own_schedules() -> None:
    golden = history("joint")
    method = MPCA()
    state = method.start(np.float32(golden["x0"]), golden["parameters"])
    for step in golden["steps"]:
        state = method.merge(state, np.float32(step["mean"]))
        close(state.x, step["x"], golden["relative_error"])
        close(method.outgoing(state), step["outgoing"], golden["relative_error"])


@pytest.mark.parametrize("case", history("outer")["cases"], ids=lambda case: f"{case['rate']}/{case['momentum']}")
def test_outer_optimiser_over_8_exchanges(case: dict[str, Any]) -> None:
    golden = history("outer")
    state = init(np.float32(golden["x0"]), golden["parameters"])
    for number, step in enumerate(case["steps"], start=1):
        state = outer_step(state, np.float32(step["mean"]), Outer(case["rate"], case["momentum"], case["nesterov"]))
        close(state.x, step["x"], golden["relative_error"])
        close(state.v, step["v"], golden["relative_error"])
        assert state.k == number


@pytest.mark.parametrize("correction", [False, True])
def test_method_mpca_with_outer_nesterov_makes_that_history_and_projects_nothing(correction: bool) -> None:
    golden = history("outer")
    case = golden["cases"][1]
    method = MPCA(outer_lr=case["rate"], outer_momentum=case["momentum"], correction=correction)
    state = method.start(np.float32(golden["x0"]), golden["parameters"])
    for step in case["steps"]:
        state = method.merge(state, np.float32(step["mean"]))
        close(state.x, step["x"], golden["relative_error"])
        assert method.outgoing(state) is state.x


def test_eq7_shrinks_the_distance_by_one_factor() -> None:
    golden = history("pulls")
    for case in golden["cases"]:
        local = np.float32(golden["local"])
        for expected in case["history"]:
            close(local, expected, golden["relative_error"])
            pull(local, np.float32(golden["target"]), case["alpha"])


def test_eq6_is_plain_sgd_on_the_loss_with_its_regulariser() -> None:
    golden = history("tilts")
    n = golden["numbers"]
    target = np.float32([n["target"]])
    for case in golden["cases"]:
        local = np.float32([n["start"]])
        for expected in case["history"]:
            close(local, [expected], golden["relative_error"])
            local -= np.float32(n["rate"]) * tilt(local - np.float32(n["minimum"]), local, target, case["alpha"])


def test_schedules() -> None:
    golden = history("schedules")
    close([alpha_at(u, 0.05) for u in range(30)], golden["alpha"], golden["relative_error"])
    paper = PaperMPCA()
    close([paper.agent_side.penalty(paper.alpha_for(90.0, 8), k) for k in range(30)], golden["alpha"], golden["relative_error"])
    close([beta_at(k, 0.9) for k in range(30)], golden["beta"], golden["relative_error"])
    close([gamma_at(k, 0.7) for k in range(30)], golden["gamma"], golden["relative_error"])


def test_two_agents_train_on_quadratic_losses() -> None:
    golden = history("training")
    n = golden["numbers"]
    state = init(np.float32([golden["x0"]]), parameters=1)
    agents = [state.x.copy(), state.x.copy()]
    target = None
    for cycle in golden["cycles"]:
        for local, minimum, updates in zip(agents, golden["minima"], golden["updates"], strict=True):
            for _ in range(updates):
                if target is not None:
                    pull(local, target, n["alpha"])
                local -= np.float32(n["rate"]) * (local - np.float32(minimum))
        close(np.concatenate(agents), cycle["snapshots"], golden["relative_error"])
        mean = weighted_sum(agents, golden["updates"])
        assert mean is not None
        close(mean, [cycle["mean"]], golden["relative_error"])
        state = update(state, mean, n["beta"], n["delta"])
        target = extrapolate(state, n["gamma"])
        close([state.x[0], state.v[0], target[0]], [cycle["x"], cycle["v"], cycle["target"]], golden["relative_error"])


@pytest.mark.parametrize("install_first", [True, False])
def test_delay_corrected_install_damps_only_before_the_snapshot(install_first: bool) -> None:
    golden = history("corrections")
    expected = golden["install_then_snapshot" if install_first else "snapshot_then_install"]
    joint = np.zeros(1)
    local = np.ones(1)
    answered = local.copy()  # snapshot 0
    seen = [float(answered[0])]
    for _ in expected[1:]:
        if install_first:
            correct(local, joint, answered)
        snapshot = local.copy()
        if not install_first:
            correct(local, joint, answered)
        answered = snapshot
        seen.append(float(snapshot[0]))
    assert seen == expected


def test_histories_are_those_that_the_script_makes(tmp_path: Path) -> None:
    source = (GOLDEN / "make_histories.py").read_text()
    assert "mpca" not in [line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import", "from"))]
    (tmp_path / "histories").mkdir()
    (tmp_path / "make_histories.py").write_text(source)
    subprocess.run([sys.executable, tmp_path / "make_histories.py"], check=True, timeout=60)
    made = {path.name: path.read_text() for path in (tmp_path / "histories").iterdir()}
    assert made == {path.name: path.read_text() for path in (GOLDEN / "histories").iterdir()}


def test_trajectory_never_sees_the_extrapolated_state() -> None:
    # The same means give the same x and v, whatever gamma made of them in between.
    states: dict[float, JointShard] = {}
    for gamma in (0.0, 0.9):
        state = init(np.float32([1, 2]), parameters=2)
        for mean in ([3, 4], [0, 8], [5, 5]):
            state = update(state, np.float32(mean), beta=0.5, delta=0.5)
            extrapolate(state, gamma)
        states[gamma] = state
    np.testing.assert_array_equal(states[0.0].x, states[0.9].x)
    np.testing.assert_array_equal(states[0.0].v, states[0.9].v)
