"""What a train function should not do, and the sentence that says so, or the run that bears it: the real agent process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import cloudpickle
import psutil
import pytest

from mpca.agent.returned import unpack
from mpca.wire.messages import Failed, Finished, Installed, Stop
from tests.agent import jobs, misuses
from tests.support.fake_executor import FakeExecutor, wait_until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("forked")]
cloudpickle.register_pickle_by_value(jobs)  # the functions use its classes


def returned(executor: FakeExecutor) -> object:
    return unpack(executor.expect(Finished).returns)


def lives(group: int) -> list[psutil.Process]:
    """Zombies are left to whoever is process 1, which need not look after them."""
    found = []
    for one in psutil.process_iter(["pid", "status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(one.pid) == group and one.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


@pytest.mark.parametrize(
    ("child_does", "code", "says"),
    [
        ("return", 1, "mpca: a process that the train function forked returned from it: end it there by os._exit(0)"),
        pytest.param("raise", 1, "ValueError: the child's own mistake", marks=pytest.mark.slow),
        pytest.param("exit", 3, "", marks=pytest.mark.slow),
        ("step", 1, "ConfigError: this process was forked by the train function: it cannot ask mpca.stopping"),
        pytest.param("ask", 1, "only the agent's own process can", marks=pytest.mark.slow),
    ],
)
def test_a_fork_speaks_for_no_agent_and_its_parent_trains_on(child_does: str, code: int, says: str) -> None:
    steps = 20
    with FakeExecutor(misuses.forks, child_does, steps) as executor:
        executor.meet()
        executor.begin()
        assert returned(executor) == code
        assert executor.progress is not None
        assert executor.progress.steps == 1 + steps
        assert executor.end() == 0
        assert says in executor.stderr


def test_threads_that_outlive_their_function_are_named() -> None:
    with FakeExecutor(misuses.leaves_a_thread, "my uploader") as executor:
        assert returned(executor) == "returned"
        wait_until(lambda: "its threads go on: my uploader; they are killed" in executor.stderr, "the thread's name")
        assert executor.alive(), "its executor kills it"


def test_two_threads_that_step_at_once_are_refused() -> None:
    with FakeExecutor(misuses.steps_on_two_threads, method={"name": "sync", "tau": 1}) as executor:
        executor.meet()
        executor.begin()
        answer, state = executor.snapshot(0, 0)
        assert answer.updates == 1
        wait_until(lambda: "refused" in executor.stderr, "the second thread's step")
        executor.offer(0, 1, state)
        executor.send(Stop("enough"))  # before the arrival is heard of: with it the function may end by itself
        executor.expect(Installed)
        told = returned(executor)
    assert told
    assert all("two threads step attached optimizers at the same time" in one for one in told)


def test_another_thread_may_ask_whether_the_run_is_stopping() -> None:
    with FakeExecutor(misuses.asks_on_a_thread) as executor:
        executor.meet()
        executor.train_some()
        executor.send(Stop("enough"))
        asked, heard = returned(executor)  # type: ignore[misc]
        assert executor.end() == 0
        assert asked > 0
        assert heard


@pytest.mark.parametrize(
    ("world_size", "says"),
    [
        pytest.param(0, "; agents need no process group: leave out init_process_group", marks=pytest.mark.slow),
        (3, "torch.distributed is initialised: world_size=3; agents exchange by mpca, and the loss of one would block"),
    ],
)
def test_a_process_group_is_refused(world_size: int, says: str) -> None:
    with FakeExecutor(misuses.begins_a_group, world_size) as executor:
        failed = executor.expect(Failed)
        assert executor.end() == 1
    assert says in failed.error


def test_a_process_group_that_begins_after_attach_is_refused_at_the_next_step() -> None:
    with FakeExecutor(misuses.begins_a_group_late) as executor:
        executor.meet()
        executor.begin()
        failed = executor.expect(Failed)
        assert executor.end() == 1
    assert "torch.distributed is initialised: world_size=2; agents exchange by mpca, and the loss of one would" in failed.error


@pytest.mark.slow
def test_a_process_group_of_one_is_no_matter() -> None:
    with FakeExecutor(misuses.begins_a_group, 1) as executor:
        executor.meet()
        executor.begin()
        assert returned(executor) == "attached"


@pytest.mark.slow
def test_lambdas_in_a_data_set_reach_workers_that_are_forked() -> None:
    with FakeExecutor(misuses.shares_lambdas, "fork") as executor:
        assert returned(executor) == list(range(1, 11))


@pytest.mark.parametrize(("train", "args"), [(misuses.shares_lambdas, ("spawn",)), (misuses.collates_by_a_lambda, ())])
def test_what_spawned_workers_cannot_have_is_refused_with_remedy(train: Callable[..., object], args: tuple[str, ...]) -> None:
    with FakeExecutor(train, *args) as executor:
        failed = executor.expect(Failed)
        executor.end()
        wait_until(lambda: not lives(executor.process.pid), "the end of what multiprocessing has started")
    assert "ConfigError: the data set, collate_fn or worker_init_fn cannot be sent to data workers: " in failed.error
    assert "spawn makes them; leave it to fork" in failed.error


def test_the_same_attach_again_changes_nothing() -> None:
    with FakeExecutor(misuses.attaches_again) as executor:
        assert len(executor.meet().layout) == 2
        executor.begin()
        assert returned(executor) == 1, "hooks of the optimiser"
        assert executor.progress is not None
        assert executor.progress.steps == 5
