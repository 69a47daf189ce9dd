"""The real agent process, seen from the executor's end of its pipe: started by itself, and forked from a preloaded parent."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mpca.agent.returned import unpack
from mpca.algorithm import pull
from mpca.wire.messages import Failed, Finished, Installed, Progress, Snapshot, SnapshotRequest, Stop
from tests.agent import jobs
from tests.support.fake_executor import FakeExecutor, wait_until

SLOW_STEP_S = 0.02
SIZE = 10
X0 = np.concatenate([np.arange(SIZE, dtype=np.float32), np.zeros(2, np.float32)])  # weight, then the buffer


pytestmark = [pytest.mark.long, pytest.mark.usefixtures("preloaded")]  # before what looks for things that a test leaves


@pytest.fixture(params=["started", "forked"], autouse=True)
def way(request: pytest.FixtureRequest) -> str:
    """How each test's agents come into being."""
    if request.param == "forked":
        request.getfixturevalue("forked")
    return request.param


def test_hello_tells_layout_hash_and_segment() -> None:
    with FakeExecutor(jobs.count_down, SIZE, SLOW_STEP_S, agent=3, incarnation=2, shards=3) as executor:
        hello = executor.meet()
        assert (hello.agent, hello.incarnation, hello.pid) == (3, 2, executor.process.pid)
        assert hello.layout == [["weight", [10], "parameter", 0], ["seen", [2], "buffer", 10]]
        assert (hello.bounds, hello.parameters) == ([0, 4, 8, 12], 10)
        assert hello.x0_hash == hashlib.sha256(X0.tobytes()).hexdigest()
        assert hello.segment_bytes == 4 * 4096


def test_x0_is_read_and_replaced_before_the_first_step() -> None:
    with FakeExecutor(jobs.count_down, SIZE, SLOW_STEP_S, shards=2) as executor:
        executor.meet()
        for shard, part in ((0, X0[:6]), (1, X0[6:])):
            answer, values = executor.snapshot(cycle=shard - 2, shard=shard)
            assert answer.updates == 0
            np.testing.assert_array_equal(values, part)
        other = X0 * 2 + 1
        assert executor.install(0, 0, other[:6], mode="replace").mode == "replace"
        executor.install(1, 0, other[6:], mode="replace")
        np.testing.assert_array_equal(executor.snapshot(-1, 1)[1], other[6:])  # buffers were replaced, too
        executor.begin()
        done = 0
        for cycle in (0, 2):
            answer, values = executor.snapshot(cycle, 0)
            done += answer.updates
        assert done > 0
        np.testing.assert_array_equal(values, other[:6] - done)


def test_yields_come_between_batches_with_tau_since_the_last_of_the_same_shard() -> None:
    with FakeExecutor(jobs.count_down, SIZE, 0.001, shards=2) as executor:
        executor.meet()
        executor.begin()
        done = [0, 0]
        for cycle in range(8):
            shard = cycle % 2
            answer, values = executor.snapshot(cycle, shard)
            done[shard] += answer.updates
            weights = values if shard == 0 else values[:4]
            np.testing.assert_array_equal(weights, X0[shard * 6 : shard * 6 + len(weights)] - done[shard])
            assert answer.start <= answer.end <= time.monotonic()
        assert min(done) > 0


def test_pull_equals_the_numpy_algorithm() -> None:
    method = {"name": "mpca", "shards": 1, "alpha": 0.25, "alpha_start": 0.25, "install": "arrival"}
    with FakeExecutor(jobs.count_down, SIZE, SLOW_STEP_S, None, True, method=method) as executor:
        executor.meet()
        target = np.linspace(-50, 50, SIZE + 2, dtype=np.float32)
        assert executor.install(0, 1, target, alpha=0.25).version == 1  # while it waits: the target of the very first pull
        executor.begin()
        local, done = X0[:SIZE].copy(), 0
        for cycle in range(3):  # the first may be served before the first step
            answer, values = executor.snapshot(cycle, 0)
            done += answer.updates
        for step in range(done):
            local -= 1  # the update
            if step + 1 < done:  # a SnapshotRequest is served between the update and the next pull
                pull(local, target[:SIZE], 0.25)
        np.testing.assert_allclose(values[:SIZE], local, rtol=1e-5)
        # The buffer goes its own way; it is added to after the hook, once less than there were updates.
        np.testing.assert_array_equal(values[SIZE:], [done - 1] * 2)


def test_an_agent_that_was_ruined_once_is_well_from_its_replacement_on() -> None:
    """Its shards come one after the other while it goes on training; and moments that are NaN would ruin its next update."""
    method = {"name": "mpca", "shards": 2}
    with FakeExecutor(jobs.ruined_once, SIZE, 5, 0.001, shards=2, method=method) as executor:
        executor.meet()
        cycle = executor.train_some()
        while np.isfinite(executor.snapshot(cycle, 0)[1]).all():
            cycle += 1
        joint = np.full(SIZE + 2, 0.5, np.float32)
        executor.offer(0, 7, joint[:6], mode="replace")
        steps = executor.expect(Progress).steps
        while executor.expect(Progress).steps <= steps:  # it trains on, with parameters that are not finite
            pass
        executor.install(1, 7, joint[6:], mode="replace")
        executor.expect(Installed)
        done = 0
        while done < 20:
            cycle += 1
            answer, values = executor.snapshot(cycle, 0)
            done += answer.updates
            assert np.isfinite(values).all()
        # Adam's first updates are of lr each, whatever the gradient is
        assert np.abs(values - 0.5).max() <= 0.01 * done * 1.5


def test_arrival_waits_for_the_next_exchange_and_comes_after_its_snapshot() -> None:
    method = {"name": "mpca", "shards": 1, "install": "exchange"}
    with FakeExecutor(jobs.count_down, SIZE, 0.001, method=method) as executor:
        executor.meet()
        cycle = executor.train_some()
        executor.offer(0, 1, X0)
        executor.send(SnapshotRequest(cycle, 0))
        answer, _ = executor.read_snapshot(cycle, 0)
        taken = executor.expect(Installed)
        assert (taken.shard, taken.version) == (0, 1)
        assert answer.end <= taken.start


def test_method_that_holds_takes_exactly_tau_updates_between_arrivals() -> None:
    method = {"name": "sync", "tau": 3}
    with FakeExecutor(jobs.count_down, SIZE, 0.001, method=method) as executor:
        executor.meet()
        executor.begin()
        state = X0
        for cycle in range(3):
            executor.send(SnapshotRequest(cycle, 0))  # asked early; answered when three updates are done
            answer, values = executor.read_snapshot(cycle, 0)
            assert answer.updates == 3
            np.testing.assert_array_equal(values[:SIZE], state[:SIZE] - 3)
            state = values + 100
            executor.install(0, cycle + 1, state)
        executor.snapshot(3, 0)
        executor.send(Stop("enough"))  # while it holds
        assert unpack(executor.expect(Finished).returns) == 12
        assert executor.end() == 0


def test_stop_ends_the_loop_and_the_last_progress_counts_everything() -> None:
    with FakeExecutor(jobs.count_down, SIZE, 0.001) as executor:
        executor.meet()
        os.kill(executor.process.pid, signal.SIGINT)  # Ctrl-C in a terminal: for the driver to act on, not for the agent
        executor.train_some()
        executor.send(Stop("target reached"))
        done = unpack(executor.expect(Finished).returns)
        assert executor.end() == 0
        progress = executor.progress
        assert progress is not None
        assert (progress.steps, progress.samples) == (done, 4 * done)
        assert 0 < executor.logged["loss"] <= done
        assert 0 < progress.pause_s < progress.train_s


def test_an_agent_tells_that_its_function_has_left_the_loop_and_then_what_it_returns(tmp_path: Path) -> None:
    with FakeExecutor(jobs.works_behind, SIZE, 0.001, str(tmp_path / "go")) as executor:
        executor.meet()
        executor.train_some()
        executor.send(Stop("target reached"))
        while (left := executor.expect(Progress)).function == "loop":
            pass
        assert left.function == "left"
        (tmp_path / "go").touch()
        assert unpack(executor.expect(Finished).returns) == left.steps
        assert executor.progress is not None
        assert (executor.progress.function, executor.progress.steps) == ("ended", left.steps)


def test_an_agent_tells_that_its_function_goes_on_with_its_loop() -> None:
    with FakeExecutor(jobs.never_asks, SIZE) as executor:
        executor.meet()
        executor.train_some()
        executor.send(Stop("target reached"))
        while (said := executor.expect(Progress)).function == "loop":
            pass
        assert said.function == "overrun"
        assert executor.expect(Progress).steps > said.steps


def test_an_agent_that_takes_no_step_shows_where_its_python_is() -> None:
    with FakeExecutor(jobs.stuck, SIZE) as executor:
        executor.meet()
        executor.begin()
        wait_until(lambda: "in stuck" in executor.stderr, "the stack of a function that is stuck")
        assert "Timeout (0:00:01)!" in executor.stderr


@pytest.mark.slow
def test_a_function_that_returns_early_has_finished() -> None:
    with FakeExecutor(jobs.count_down, SIZE, 0.0, 5) as executor:
        executor.meet()
        executor.begin()
        assert unpack(executor.expect(Finished).returns) == 5
        assert executor.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
def test_a_function_that_exits_has_finished_if_it_does_not_complain(code: int) -> None:
    with FakeExecutor(jobs.exits_early, SIZE, code) as executor:
        executor.meet()
        executor.begin()
        if code:
            assert executor.expect(Failed).error == "SystemExit: 3"
        else:
            assert unpack(executor.expect(Finished).returns) is None
        assert executor.end() == min(code, 1)


def test_what_is_printed_never_reaches_the_control_pipe() -> None:
    with FakeExecutor(jobs.chatter, agent=1, agents=4) as executor:
        assert unpack(executor.expect(Finished).returns) == {"agent": 1, "agents": 4, "read": 0}
        executor.end()
        for said in ("print", "descriptor 1", "a shell"):
            assert f"hello from {said}\n" in executor.stderr


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (jobs.fail_in_step, "ValueError: the user's own mistake"),
        pytest.param(
            jobs.refused,
            r"mpca\.errors\.ConfigError: a parameter has half precision: parameter=weight, .* torch\.autocast",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            jobs.forgotten,
            r"mpca\.errors\.ConfigError: an optimizer was made before mpca.attach and is not attached: optimizer=SGD",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            jobs.unshippable,
            "TypeError: what the train function returned cannot be sent to the driver: returned is of type generator",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_failure_carries_the_users_frames_and_ends_with_exit_code_1(function, error: str) -> None:
    with FakeExecutor(function) as executor:
        failed = executor.expect(Failed)
        assert executor.end() == 1
    assert re.match(error, failed.error), failed.error
    assert failed.traceback.rstrip().endswith(failed.error)
    if function is jobs.fail_in_step:
        assert "in fail_in_step" in failed.traceback.splitlines()[1], "our own frames come first"


@pytest.mark.slow
def test_agents_make_the_same_x0_and_draw_other_numbers_afterwards() -> None:
    drawn = []
    for agent in (0, 1):
        with FakeExecutor(jobs.first_numbers, agent=agent, agents=2, seed=7) as executor:
            executor.meet()
            executor.begin()
            drawn.append(unpack(executor.expect(Finished).returns))
    assert drawn[0][0] == drawn[1][0]
    assert drawn[0][1] != drawn[1][1]


def test_end_of_file_kills_the_group_data_workers_included() -> None:
    with FakeExecutor(jobs.with_child, 0.001) as executor:
        executor.meet()
        executor.train_some()
        child = int(re.search(r"child=(\d+)", executor.stderr)[1])
        executor.hang_up()
        assert executor.end() == -signal.SIGKILL
        wait_until(lambda: not _running(child), f"end of data worker {child}")


@pytest.mark.slow
def test_stopped_agent_dies_with_its_parent() -> None:
    """A stopped process cannot read an end of file: the parent-death signal is what ends it."""
    script = (
        "import sys\n"
        "from tests.agent import jobs\n"
        "from tests.support.fake_executor import FakeExecutor\n"
        "executor = FakeExecutor(jobs.count_down, 4, 0.001)\n"
        "executor.meet()\n"
        "print(executor.process.pid, flush=True)\n"
        "sys.stdin.read()\n"  # it lives until it is killed, or this test has ended
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        agent = int(parent.stdout.readline())
        os.kill(agent, signal.SIGSTOP)
        parent.kill()
    wait_until(lambda: not _running(agent), f"end of agent {agent}", deadline_s=10)


@pytest.mark.slow
def test_late_words_of_the_executor_find_the_agent_leaving() -> None:
    with FakeExecutor(jobs.count_down, SIZE, 0.0, 3) as executor:
        executor.meet()
        executor.begin()
        executor.send(SnapshotRequest(0, 0))  # may or may not be served before the function returns
        kinds = set()
        while Finished not in kinds:
            kinds.add(type(executor.expect(object)))  # type: ignore[type-var]
        assert kinds <= {Snapshot, Finished}
        assert executor.end() == 0


def _running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_local_tensors_are_read_while_it_trains_and_after_its_function_returned() -> None:
    steps = 5
    with FakeExecutor(jobs.count_batches, steps, shards=2) as executor:
        hello = executor.meet()
        assert hello.local == {"norm.num_batches_tracked": ["int64", [], 8], "teacher": ["float32", [2], 8]}
        assert hello.bounds == [0, 3, 7, 15]
        assert executor.snapshot(-3, 2)[1].tolist() == [0] * 8
        teacher = [0, 0x3F80, 0, 0x4000]  # 1.0 and 2.0, in words
        executor.install(2, 0, np.float32([*teacher, 7, 0, 0, 0]), mode="replace")
        executor.begin()
        while executor.expect(Progress).function != "returned":
            pass
        answer, values = executor.snapshot(-4, 2)
        assert answer.updates == 0
        counted = 7 + steps
        assert values.tolist() == [*teacher, counted, 0, 0, 0]
        assert executor.process.poll() is None, "it waits until it is told"
        executor.send(Stop("it was read"))
        assert unpack(executor.expect(Finished).returns) == {"batches": counted, "teacher": [1.0, 2.0]}


def test_a_layer_unfrozen_in_mid_run_ends_the_run_by_its_name() -> None:
    with FakeExecutor(jobs.unfreeze, 3, shards=1) as executor:
        executor.meet()
        executor.begin()
        failed = executor.expect(Failed)
        assert "parameter=0.weight was frozen and now requires a gradient" in failed.error
        assert "before mpca.attach" in failed.error


def test_all_bad_records_are_told_before_the_last_word() -> None:
    with FakeExecutor(jobs.met_bad_records, 250) as executor:
        said = [executor.expect(Progress) for _ in range(3)]
        executor.expect(Finished)
    assert [len(one.bad) for one in said] == [100, 100, 50]
    assert [record for one in said for record, _ in one.bad] == [f"record{number}" for number in range(250)]


def test_an_optimiser_with_a_closure_trains() -> None:
    with FakeExecutor(jobs.with_lbfgs, 3, shards=1) as executor:
        executor.meet()
        executor.begin()
        first, last = unpack(executor.expect(Finished).returns)
        assert last < first
        assert executor.progress is not None
        assert executor.progress.steps == 3


@pytest.mark.parametrize("by_name", [False, True])
def test_two_models_attached_one_after_the_other_are_handed_over_and_pulled_between_two_batches(by_name: bool) -> None:
    critic_steps = 3
    method = {"name": "mpca", "shards": 1, "install": "arrival"}
    with FakeExecutor(jobs.adversarial, by_name, critic_steps, 0.001, method=method) as executor:
        names = ("generator", "critic") if by_name else ("0", "1")
        assert [row[0] for row in executor.meet().layout] == [f"{name}.{own}" for own in ("weight", "seen") for name in names]
        executor.begin()
        done = 0
        for cycle in range(4):
            answer, values = executor.snapshot(cycle, 0)
            done += answer.updates
            # one update of the generator and three of the critic, and never between them
            np.testing.assert_array_equal(values[:4], np.arange(4) - done)
            np.testing.assert_array_equal(values[4:6], np.arange(2) - critic_steps * done)
        joint = np.full(10, 1000, np.float32)
        executor.install(0, 1, joint, alpha=0.5)
        cycle, far = 4, 0
        while far < 10:  # pulled each time, under a graph that would refuse if it came too early
            cycle += 1
            answer, values = executor.snapshot(cycle, 0)
            far += answer.updates
        assert (values[:6] > 900).all(), values
        executor.send(Stop("enough"))
        assert unpack(executor.expect(Finished).returns) >= done + far
        assert executor.end() == 0
