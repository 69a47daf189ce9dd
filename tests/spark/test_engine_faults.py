"""What an agent's process can do to a run besides being killed: it is asked to end, crashes in C code, holds its lock."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.jobs import quadratic
from tests.spark.support import alive
from tests.spark.test_engine_losing import check_away_and_back, check_model, check_survivors
from tests.support.fake_executor import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_agents_that_are_ended_politely_or_crash_in_c_are_replaced(engine) -> None:
    """Two at once and one later, in one run; agent 0 is touched by none of it."""
    pids = {}

    def story(run):
        yield lambda: run.reducing(3)
        pids["SIGTERM"], pids["segfault"] = run.pid(1), run.pid(2)
        run.tell_agent(2, "segfault")
        run.end_agent(1)
        wait_until(lambda: not alive(pids["SIGTERM"]), "the end of what was asked to end", 5.0)
        yield lambda: run.takes_part(1, incarnation=1) and run.takes_part(2, incarnation=1)
        pids["abort"] = run.pid(1)
        run.tell_agent(1, "abort")
        yield lambda: run.takes_part(1, incarnation=2)
        for agent, word in ((2, "segfault"), (1, "abort")):
            assert run.fired(agent, word) == [pids[word]]
        run.end()

    told = engine(quadratic, story=story, obey=True)
    assert told.ended.exit_code == 0, told.ended.reason
    ended = {one.pid: one.reason for one in told.agents("lost")}
    assert ended.keys() == set(pids.values())
    assert ended[pids["SIGTERM"]].startswith(f"exit code {128 + signal.SIGTERM}")
    crashed = ended[pids["segfault"]]
    assert crashed.startswith(f"exit code {128 + signal.SIGSEGV}; Fatal Python error: Segmentation fault, File ")
    assert crashed.endswith("in string_at")
    crashed = ended[pids["abort"]]
    assert crashed.startswith(f"exit code {128 + signal.SIGABRT}; Fatal Python error: Aborted, File ")
    assert crashed.endswith("in _obey")
    assert {(one.index, one.incarnation) for one in told.agents("replaced")} == {(1, 1), (2, 1), (1, 2)}
    assert all(one.submissions == 1 for one in told.cycles), "no executor was lost with its agent"
    check_survivors(told, 0)
    check_model(told)


def test_an_agent_that_holds_its_interpreters_lock_is_left_out_and_welcome_again(engine) -> None:
    """No thread of it answers, that which talks to its executor included.

    Seven seconds with a deadline of two, for seventy with one of sixty: the same wait, by the same clock.
    """
    deadline_s, hold_s = 2.0, 7.0
    seen = {}

    def story(run):
        yield lambda: run.reducing(6)
        run.tell_agent(1, f"hold {hold_s}")
        yield lambda: run.fired(1, "hold") and any(agent == 1 for _, agent in run.late)
        seen["late"] = max(cycle for cycle, agent in run.late if agent == 1)
        yield lambda: run.takes_part(0, incarnation=0, after=seen["late"])
        yield lambda: run.takes_part(1, incarnation=0, after=seen["late"])
        assert run.fired(1, "hold") == [run.pid(1)]
        run.end()

    told = engine(quadratic, story=story, obey=True, sets=(f"cluster.cycle_deadline={deadline_s}s",))
    assert told.ended.exit_code == 0, told.ended.reason
    check_away_and_back(told, 1)
    assert 1 in told.cycle(seen["late"]).left_out
    assert not told.agents("replaced")
    assert len([one for one in told.cycles if 1 not in one.contributors]) >= 3, "the run went on without it"
    check_survivors(told, 0, 1, 2)
    check_model(told)  # nothing of what it was asked for meanwhile entered late


#: An environment that is broken on one executor: the first one on which an agent is to start. Executors have a folder each.
BROKEN_ON_ONE = """\
#!/bin/sh
mkdir {mark} 2> /dev/null && pwd > {mark}/bad
while ! [ -s {mark}/bad ]; do sleep 0.01; done
if [ "$(pwd)" = "$(cat {mark}/bad)" ]; then
  echo "ImportError: libcudart.so.12: cannot open shared object file" >&2
  exit 3
fi
exec {python} "$@"
"""


@pytest.mark.parametrize("preload", ["true", "false"])
def test_an_executor_on_which_no_agent_starts_is_left_empty_and_the_run_has_all_agents(
    engine, tmp_path: Path, caplog: pytest.LogCaptureFixture, preload: str
) -> None:
    python, mark = tmp_path / "python", tmp_path / "mark"
    python.write_text(BROKEN_ON_ONE.format(mark=mark, python=sys.executable))
    python.chmod(0o755)

    def story(run):
        def newest(agent: int) -> int:
            return max((who.incarnation for who in run.pids if who.agent == agent), default=-1)

        yield lambda: all(run.takes_part(agent, newest(agent)) for agent in range(3))
        run.end()

    sets = ("cluster.agents_per_executor=2", f"cluster.python={python}", f"cluster.preload={preload}")
    told = engine(quadratic, story=story, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    bad = Path((mark / "bad").read_text().strip()).name
    lost = told.agents("lost")
    assert {one.executor_id for one in lost} == {bad}
    # two agents may have been there, and one of them on its way when the other one died for the third time
    assert 3 <= len(lost) <= 4
    assert all("libcudart.so.12" in one.reason for one in lost), [one.reason for one in lost]
    (said,) = [one.getMessage() for one in caplog.records if "quarantined" in one.getMessage()]
    assert said.startswith(
        f"executor={bad} host=localhost quarantined for 600 s: agents died there 3 times, the last one with "
    )
    assert said.endswith("libcudart.so.12: cannot open shared object file")
    assert bad not in {one.executor_id for one in told.agents("started") + told.agents("replaced")}
    check_survivors(told, *({0, 1, 2} - {one.index for one in lost}))


def test_an_environment_that_is_broken_everywhere_ends_the_run_with_the_place_and_the_words(engine, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ImportError: libcudart.so.12' >&2\nexit 3\n")
    python.chmod(0o755)
    told = engine(quadratic, sets=(f"cluster.python={python}",))
    assert (told.ended.exit_code, told.cycles) == (1, [])
    first, *tail = told.ended.reason.splitlines()
    assert re.match(r"agent \d on host localhost \(executor \d+\) cannot start: exit code 3", first), first
    assert "ImportError: libcudart.so.12" in tail


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A memory cgroup of its own: who is moved into it may have 64 MiB more than it has."""
    root = Path("/sys/fs/cgroup/memory")
    group = (root if root.is_dir() else root.parent) / f"mpca-test-little-memory-{os.getpid()}"
    group.mkdir()
    yield group
    group.rmdir()


@pytest.mark.root
@pytest.mark.quiet
def test_an_agent_that_the_kernel_ends_for_memory_is_replaced_and_its_executor_lives(engine, little_memory: Path) -> None:
    """Its own cgroup is full, not its executor's, as where a node's manager limits each process."""
    pids = []

    def story(run):
        yield lambda: run.reducing(3)
        pids.append(run.pid(1))
        limit(little_memory, run.pid(1), 64 << 20)
        run.tell_agent(1, "eat 512")
        yield lambda: run.takes_part(1, incarnation=1)
        assert run.fired(1, "eat") == pids
        run.end()

    told = engine(quadratic, story=story, obey=True)
    assert told.ended.exit_code == 0, told.ended.reason
    assert oom_kills(little_memory) == 1
    (lost,) = told.agents("lost")
    assert (lost.index, lost.pid) == (1, pids[0])
    assert lost.reason.startswith(f"exit code {128 + signal.SIGKILL}")
    assert "memory" in lost.reason
    assert all(one.submissions == 1 for one in told.cycles), "no executor was lost with its agent"
    check_survivors(told, 0, 2)
    check_model(told)


def limit(group: Path, pid: int, more: int) -> None:
    """Move a process into the group, and let it have so many bytes more. What it has stays charged to where it was."""
    (group / "cgroup.procs").write_text(str(pid))
    old = group / "memory.limit_in_bytes"
    (old if old.exists() else group / "memory.max").write_text(str(more))


def oom_kills(group: Path) -> int:
    old = group / "memory.oom_control"
    text = (old if old.exists() else group / "memory.events").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))
