"""What a backup makes of the files that executors write for it: all of them, or none."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

from mpca.driver.agent_files import AgentFiles
from mpca.driver.events import AgentSaved, ExecutorLost
from mpca.driver.instructions import SaveJoint
from mpca.storage import BackupState, ModelLayout
from mpca.timeouts import AGENTS_SAVED_S
from mpca.wire.agent_ref import AgentRef

LAYOUT = ModelLayout.of([["weight", [2], "parameter", 0]], parameters=2)
STATE = BackupState(LAYOUT, np.zeros(2, np.float32), np.zeros(2, np.float32), [0, 2], [3], "r", 1, 7)
FIRST, SECOND = AgentRef("e1", 0, 0), AgentRef("e2", 1, 4)
ASKED = SaveJoint(5, {FIRST: "agent-00000-0.pt", SECOND: "agent-00001-4.pt"})


def said(who: AgentRef, number: int = 5, error: str = "") -> AgentSaved:
    return AgentSaved(*who, number=number, bytes=0 if error else 90 + who.agent, sha256="ab" * 32, seconds=0.5, error=error)


@pytest.fixture
def files() -> AgentFiles:
    return AgentFiles(ASKED, STATE, agents=2, now=100.0)


def test_the_backup_is_complete_when_every_file_is_there(files: AgentFiles) -> None:
    files.saved(said(SECOND))
    assert files.complete(101.0) is None
    files.saved(said(FIRST))
    state = files.complete(101.0)
    assert state is not None
    assert state.cycle == 7
    assert state.agents == {
        "0": {"file": "agent-00000-0.pt", "bytes": 90, "sha256": "ab" * 32},
        "1": {"file": "agent-00001-4.pt", "bytes": 91, "sha256": "ab" * 32},
    }


def test_an_answer_to_another_question_or_of_another_process_counts_nothing(files: AgentFiles) -> None:
    files.saved(said(FIRST, number=4))
    files.saved(said(AgentRef("e1", 0, 1)))
    files.saved(said(AgentRef("e3", 0, 0)))
    files.saved(said(SECOND))
    assert files.complete(101.0) is None


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("error", "agent 1: IOException: disk full"),
        ("lost", "executor e2 was lost"),
        ("late", r"agents \[1\] were not written"),
    ],
)
def test_without_one_of_them_it_has_none(files: AgentFiles, caplog: pytest.LogCaptureFixture, what: str, why: str) -> None:
    caplog.set_level(logging.WARNING)
    files.saved(said(FIRST))
    now = 101.0
    if what == "error":
        files.saved(said(SECOND, error="IOException: disk full"))
    elif what == "lost":
        files.lost(ExecutorLost("e2", "gone"))
    else:
        assert files.complete(100.0 + AGENTS_SAVED_S) is None
        now = 100.1 + AGENTS_SAVED_S
    state = files.complete(now)
    assert state is STATE
    assert caplog.records[0].getMessage().startswith("the backup of cycle 7 is without the agents' own states: ")
    assert re.search(why, caplog.text)


def test_an_executor_that_is_lost_after_its_file_was_written_costs_nothing(files: AgentFiles) -> None:
    files.saved(said(FIRST))
    files.lost(ExecutorLost("e1", "gone"))
    files.saved(said(SECOND))
    state = files.complete(101.0)
    assert state is not None
    assert len(state.agents) == 2


def test_a_run_that_lacks_an_agent_has_none() -> None:
    files = AgentFiles(ASKED, STATE, agents=3, now=100.0)
    files.saved(said(FIRST))
    files.saved(said(SECOND))
    assert files.complete(100.0) is STATE


@pytest.mark.parametrize("last", ["saved", "lost"])
def test_a_backup_without_them_waits_until_nobody_writes_into_its_folder(files: AgentFiles, last: str) -> None:
    files.saved(said(FIRST, error="the agent is LEAVING"))
    assert files.complete(101.0) is None
    if last == "saved":
        files.saved(said(SECOND))
    else:
        files.lost(ExecutorLost("e2", "gone"))
    assert files.complete(101.0) is STATE
