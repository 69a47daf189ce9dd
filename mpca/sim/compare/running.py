"""Simulates the units of a comparison in parallel processes, and keeps what they bring."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from mpca.data.child import Died, Done, work
from mpca.errors import RunFailed
from mpca.sim.compare.journal import Journal
from mpca.sim.compare.plan import Plan, Progress
from mpca.sim.compare.settings import Conf
from mpca.sim.compare.unit import Unit

__all__ = ["compare"]

_WORKER = "mpca.sim.compare.worker"


def compare(
    conf: Conf,
    folder: Path,
    processes: int,
    tell: Callable[[int, int, Progress], None],
    warn: Callable[[str], None],
) -> Progress:
    """Simulate what is missing.

    Args:
        conf: what is compared.
        folder: of the results; units that are there are not simulated again.
        processes: how many at once.
        tell: is called when a unit is done: units done, units known, and what they say.
        warn: is called with a sentence for the user.

    Returns:
        What all units say together.

    Raises:
        ConfigError: the folder's results cannot be used.
        MpcaError: a unit failed; the text ends with its traceback.
        RunFailed: a process died.
    """
    plan = Plan(conf)
    with Journal(folder) as journal:
        if journal.dropped:
            warn(journal.dropped)
        asked: set[str] = set()
        waiting: deque[Unit] = deque()

        def look() -> Progress:
            progress = plan.look(journal.done)
            waiting.extend(unit for key, unit in progress.missing.items() if key not in asked)
            asked.update(progress.missing)
            known = len(progress.known)
            tell(known - len(progress.missing), known + progress.later, progress)
            return progress

        progress = look()
        with closing(work(_WORKER, waiting, processes)) as events:
            for event in events:
                if isinstance(event, Died):
                    raise RunFailed(f"a process that simulated {event.task.method['name']} has died: {event.reason}")
                assert isinstance(event, Done)
                journal.add(event.task, event.value)
                progress = look()
    return progress
