"""The preloaded parent: what its agents are like, and what becomes of them when one of both ends."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpca.agent.returned import unpack
from mpca.wire.messages import Finished
from tests.agent import forked_jobs, jobs
from tests.support.agent_parent import AgentParent
from tests.support.fake_executor import FakeExecutor, wait_until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)  # before what looks for things that a test leaves
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentParent]:
    with AgentParent(
        tmp_path_factory.mktemp("parent"), "tests.agent.patient_parent", OMP_NUM_THREADS="2", MKL_NUM_THREADS="2"
    ) as parent:
        yield parent


def _run(parent: AgentParent | None, function: Callable[..., Any], *args: Any, **start: Any) -> Any:
    """What a function returns in an agent that is forked, or started without a parent."""
    before, FakeExecutor.parent = FakeExecutor.parent, parent
    try:
        with FakeExecutor(function, *args, **start) as executor:
            executor.meet()
            executor.begin()
            returns = unpack(executor.expect(Finished).returns)
            assert executor.end() == 0
            return returns
    finally:
        FakeExecutor.parent = before


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# ---- agents ----


def test_a_forked_agent_finds_what_a_started_one_finds(parent: AgentParent) -> None:
    forked, started = (_run(one, forked_jobs.surroundings, threads=2, seed=7) for one in (parent, None))
    assert forked["folder"] == str(parent.folder.rpartition("/")[0])
    for found in (forked, started):
        found.pop("folder")
    assert forked == started
    assert (forked["bad_fork"], forked["cuda"], forked["group"], forked["torch_threads"]) == (False, False, True, 2)


def test_two_agents_of_one_parent_draw_what_their_seeds_say(parent: AgentParent) -> None:
    drawn = [_run(parent, jobs.first_numbers, agent=agent, agents=2, seed=7) for agent in (0, 1)]
    assert drawn[0][0] == drawn[1][0]  # x_0 is made of such
    assert drawn[0][1] != drawn[1][1]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loaders_have_workers(parent: AgentParent, method: str) -> None:
    assert _run(parent, forked_jobs.load, method) == list(range(8))


def test_training_with_two_threads_is_the_same_bit_by_bit(parent: AgentParent) -> None:
    forked, started = (_run(one, forked_jobs.train, 5, threads=2) for one in (parent, None))
    assert forked == started


# ---- ends ----


def test_it_tells_how_an_agent_ended_and_keeps_its_number_until_told(parent: AgentParent, tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+b") as errors:
        agents = [parent.start(errors) for _ in range(2)]
        agents[0].stdin.close()  # an executor that hangs up before Start
        os.kill(agents[1].pid, signal.SIGTERM)
        assert wait_until(agents[0].poll, "the first one's end") == -signal.SIGKILL
        assert wait_until(agents[1].poll, "the second one's end") == -signal.SIGTERM
        for agent in agents:
            assert psutil.Process(agent.pid).status() == psutil.STATUS_ZOMBIE
            agent.wait()
            wait_until(lambda pid=agent.pid: not psutil.pid_exists(pid), "a number that is free again")
            agent.stdout.close()
        agents[1].stdin.close()


def test_no_agent_hides_the_end_of_another(parent: AgentParent) -> None:
    """One that is forked while another's pipes are open holds none of them."""
    FakeExecutor.parent = parent
    try:
        with FakeExecutor(jobs.count_down, 4, 0.001) as first, FakeExecutor(jobs.count_down, 4, 0.001) as second:
            first.meet()
            second.meet()
            os.kill(first.process.pid, signal.SIGKILL)
            assert first.end() == -signal.SIGKILL
            assert first.process.stdout is not None
            while first.process.stdout.read(1 << 16):  # to its end
                pass
            assert second.alive()
    finally:
        FakeExecutor.parent = None


def test_an_agent_is_ended_with_its_group(parent: AgentParent) -> None:
    FakeExecutor.parent = parent
    try:
        with FakeExecutor(jobs.with_child, 0.001) as executor:
            executor.meet()
            executor.train_some()
            child = int(executor.stderr.partition("child=")[2].split()[0])
            assert _alive(child)
            executor.process.kill()
            assert executor.end() == -signal.SIGKILL
            wait_until(lambda: not _alive(child), "end of the data worker")
    finally:
        FakeExecutor.parent = None


def test_its_death_is_that_of_its_agents_and_the_executors_is_its_own(tmp_path: Path) -> None:
    """SIGKILL, when nobody can clean up; the agents are stopped, so that no end of file can reach them."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.support.agent_parent import AgentParent\n"
        f"parent = AgentParent(Path({str(tmp_path)!r}))\n"
        "errors = open('/dev/null', 'wb')\n"
        "print(parent.pid, *[parent.start(errors).pid for _ in range(2)], flush=True)\n"
        "sys.stdin.read()\n"
    )
    for whom in ("parent", "executor"):
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
            assert one.stdout is not None
            pids = [int(pid) for pid in one.stdout.readline().split()]
            for pid in pids[1:]:
                os.kill(pid, signal.SIGSTOP)
            os.kill(pids[0] if whom == "parent" else one.pid, signal.SIGKILL)
            wait_until(lambda pids=pids: not any(_alive(pid) for pid in pids), f"ends of {pids} after that of the {whom}")
            one.kill()


def test_one_that_is_let_go_before_it_has_ended_leaves_no_zombie(parent: AgentParent, tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+b") as errors:
        agent = parent.start(errors)
        parent.say("reap", agent.number)
        wait_until(lambda: not psutil.pid_exists(agent.pid), "a number that is free again")
        agent.stdin.close()
        agent.stdout.close()


# ---- the parent itself ----


def test_it_has_imported_and_done_nothing_else(parent: AgentParent) -> None:
    """No thread, nothing of CUDA: a driver's descriptors would be open."""
    assert len(os.listdir(f"/proc/{parent.pid}/task")) == 1
    opened = [os.readlink(f"/proc/{parent.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{parent.pid}/fd")]
    assert not [one for one in opened if "nvidia" in one]
    mode = os.stat(parent.folder).st_mode
    assert stat.S_IMODE(mode) == 0o700
    assert os.listdir(parent.folder) == []  # names of pipes last until the agent is there


def test_one_with_a_second_thread_forks_nobody(tmp_path: Path) -> None:
    with AgentParent(tmp_path, "tests.agent.threaded_parent") as parent:
        parent.ask("open", 1, "opened")
        (why,) = parent.ask("fork", 1, "refused")
        assert "2 threads" in why
        assert os.listdir(parent.folder) == []


def test_without_agents_and_questions_it_ends_and_its_folder_goes(tmp_path: Path) -> None:
    with AgentParent(tmp_path, "tests.agent.hasty_parent") as parent:
        assert parent.process.wait(60) == 0
        assert list(tmp_path.iterdir()) == []


def test_with_an_agent_it_stays(tmp_path: Path) -> None:
    with AgentParent(tmp_path, "tests.agent.hasty_parent") as parent, (tmp_path / "errors").open("w+b") as errors:
        agent = parent.start(errors)
        parent.listen(1.0)  # ten times as long as it waits
        assert parent.process.poll() is None
        agent.stdin.close()
        agent.wait()
        agent.stdout.close()
        assert parent.process.wait(60) == 0


def test_pipes_that_nobody_came_for_go_with_their_number(parent: AgentParent) -> None:
    parent.ask("open", 1000, "opened")
    assert len(os.listdir(parent.folder)) == 3
    parent.say("reap", 1000)
    parent.ask("here", 1000, "here")
    assert os.listdir(parent.folder) == []


def test_what_it_lacks_costs_the_next_agent_its_fork_and_no_other_anything(tmp_path: Path) -> None:
    """Open files here; a full disk and too many processes are the same to it."""
    with AgentParent(tmp_path, "tests.agent.patient_parent") as parent, (tmp_path / "errors").open("w+b") as errors:
        agent = parent.start(errors)
        before = resource.prlimit(parent.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, (9, before[1]))
        parent.say("open", 2)
        answer = parent.answer()
        if answer[0] == "opened":
            parent.say("fork", 2)
            answer = parent.answer()
        assert answer[:2] == ["refused", 2]
        assert parent.process.poll() is None
        assert agent.poll() is None
        assert os.listdir(parent.folder) == []
        resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, before)
        again = parent.start(errors)
        for one in (agent, again):
            one.stdin.close()
            one.wait()
            one.stdout.close()
