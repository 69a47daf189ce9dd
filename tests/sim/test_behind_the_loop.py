"""What stands behind the loops of train functions: who is waited for, and what the run ends as."""

from __future__ import annotations

import pytest

from mpca.api.finish import exit_code
from mpca.driver.events import OrderFailed
from mpca.records import AgentRecord
from mpca.sim.agents import Behind
from mpca.sim.cluster import SimCluster
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.world import World
from mpca.wire.orders import Order


def run(*behind: Behind, around: object = None, local: bool = False, **more: float) -> Outcome:
    scenario = Scenario(agents=3, cycles=6, behind=behind, local=local, **more)  # type: ignore[arg-type]
    return simulate(scenario, 5, around)  # type: ignore[arg-type]


def lasted(outcome: Outcome) -> float:
    """Seconds from the last cycle to the end."""
    return outcome.seconds - outcome.commits[-1].t


def finished(outcome: Outcome) -> set[int]:
    return {one.index for one in outcome.records if isinstance(one, AgentRecord) and one.event == "finished"}


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("local", [False, True])
def test_work_behind_the_loop_is_waited_for(silent: bool, local: bool) -> None:
    outcome = run(Behind(0, 20.0, silent=silent), Behind(1, 250.0, silent=silent), local=local)
    assert (outcome.status, outcome.end.cut_off, finished(outcome)) == ("max_cycles", (), {0, 1, 2})
    assert 250.0 < lasted(outcome) < 256.0


def test_work_that_takes_longer_is_cut_off_by_name() -> None:
    outcome = run(Behind(0, 20.0), Behind(1, 45.0), finish_s=30.0)
    (cut,) = outcome.end.cut_off
    assert (cut.agent, cut.work_lost, finished(outcome)) == (1, True, {0, 2})
    assert cut.reason.startswith("was at work behind its loop 30")
    assert 30.0 < lasted(outcome) < 36.0
    assert exit_code(outcome.end, None) == 1


def test_a_loop_that_goes_on_is_waited_for_as_long_as_the_work_of_the_others_and_four_seconds_at_least() -> None:
    alone = run(Behind(0, ends="overruns"))
    assert 4.0 < lasted(alone) < 8.0
    assert [(one.agent, one.work_lost) for one in alone.end.cut_off] == [(0, False)]
    assert exit_code(alone.end, None) == 0
    beside = run(Behind(0, ends="overruns"), Behind(1, 60.0))
    assert 60.0 < lasted(beside) < 66.0
    assert [one.agent for one in beside.end.cut_off] == [0]


def test_what_raises_behind_its_loop_fails_the_run_and_the_others_have_four_seconds() -> None:
    outcome = run(Behind(0, 30.0, "raises"), Behind(1, 250.0))
    assert (outcome.status, outcome.end.final) == ("failed", True)
    first, *rest = outcome.reason.splitlines()
    assert first.endswith("raised ValueError: behind the loop")
    assert rest == ["Traceback ...", "before that, training had come to its end: max_cycles, 6 cycles"]
    assert 34.0 < lasted(outcome) < 40.0
    assert [one.agent for one in outcome.end.cut_off] == [0, 1]


def test_a_process_that_dies_behind_its_loop_is_named() -> None:
    outcome = run(Behind(0, 10.0, "dies"))
    (cut_off,) = outcome.end.cut_off
    assert (cut_off.agent, cut_off.work_lost) == (0, True)
    assert cut_off.reason.startswith("died: exit code 137: killed, ")
    assert lasted(outcome) < 16.0


class DeafStop:
    """A cluster whose first order to stop fails before anybody has heard of it."""

    def __init__(self, inner: SimCluster) -> None:
        self._inner = inner
        self.refused: list[int] = []
        self._news: list[object] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def submit(self, order: Order) -> None:
        if order.stop and not self.refused:
            self.refused.append(order.order)
            self._news.append(OrderFailed(order.order, None, "the job was aborted"))
            return
        self._inner.submit(order)

    def poll(self, timeout_s: float) -> list[object]:
        news, self._news = self._news, []
        return [*news, *self._inner.poll(timeout_s)]


def test_a_stop_whose_order_failed_is_said_again() -> None:
    ports: list[DeafStop] = []

    def around(cluster: SimCluster, world: World) -> DeafStop:
        ports.append(DeafStop(cluster))
        return ports[0]

    outcome = run(Behind(0, 20.0), around=around)
    assert len(ports[0].refused) == 1
    assert (outcome.end.cut_off, finished(outcome)) == ((), {0, 1, 2})


def test_training_is_counted_until_the_stop() -> None:
    """Four times the work behind the loop changes nothing of what a run reports as its seconds."""
    short, long = run(Behind(0, 50.0)), run(Behind(0, 200.0))
    assert long.seconds > short.seconds + 140.0
    assert long.trained_s == short.trained_s
    assert 0 < long.trained_s < long.commits[-1].t + 5.0
