"""The agent's loop between two batches: what it says on the pipe, what it does with the model, and when it waits."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpca import methods
from mpca.agent.loop import PROGRESS_INTERVAL_S, AgentLoop, Laid
from mpca.agent.metrics import Metrics
from mpca.agent.state import LEAVING, AgentMachine
from mpca.agent.trainer import Later
from mpca.clock import ManualClock
from mpca.shm import AgentSegment
from mpca.wire.messages import (
    Begin,
    Cut,
    Exchange,
    Failed,
    Finished,
    Hello,
    Install,
    Installed,
    Message,
    Progress,
    Snapshot,
    SnapshotRequest,
    Stop,
)
from mpca.wire.slots import HEADER_BYTES, MODES, SlotHeader
from tests.support.fake_executor import wait_until
from tests.support.pipe import START, PipeEnds

SECONDS = 10.0  # for what another thread does
ELEMENTS = 3


class Model:
    """The trainer's port: a vector, how it was pulled, and how long reading and replacing it take."""

    def __init__(self, clock: ManualClock) -> None:
        self.bounds, self.parameters = [0, ELEMENTS], ELEMENTS
        self.x = np.array([1.0, 2.0, 3.0], np.float32)
        self.pulled: list[tuple[tuple[int, float], ...]] = []
        self.tilted: list[tuple[tuple[tuple[int, float], ...], Any]] = []
        self.taken: list[tuple[int, list[float], int, str]] = []
        self._clock = clock
        self.copies: threading.Event | None = None  # what is copied is there only then, if the caller lets it be so

    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        self.pulled.append(pulls)

    def tilt(self, pulls: tuple[tuple[int, float], ...], optimizer: Any) -> None:
        self.tilted.append((pulls, optimizer))

    def snapshot(self, shard: int, out: np.ndarray, later: Later | None = None) -> None:
        self._clock.advance(0.25)
        now = self.x.copy()
        self._copied(lambda: np.copyto(out, now), later)

    def install(self, shard: int, data: np.ndarray, version: int, mode: str, later: Later | None = None) -> None:
        self._clock.advance(0.125)
        self._copied(lambda: self.taken.append((shard, data.tolist(), version, mode)), later)

    def _copied(self, copy: Callable[[], None], later: Later | None) -> None:
        copies = self.copies
        if copies is None or later is None:
            copy()
            return

        def wait() -> None:
            assert copies.wait(SECONDS)
            copy()

        later(wait)

    def reset_optimizer(self) -> None: ...


class Agent:
    """One agent that has said Hello, in this process."""

    def __init__(self, ends: PipeEnds, method: dict[str, Any], local: bool = False) -> None:
        self.ends, self.clock = ends, ManualClock(100.0)
        self.model, self.segment = Model(self.clock), AgentSegment([0, ELEMENTS], agent=0)
        machine = AgentMachine(0, 0, 1, methods.from_dict(method).agent_side)
        self.metrics = Metrics()
        self.metrics.add({"loss": 0.5})
        self.loop = AgentLoop(ends.link, machine, self.clock, self.metrics)
        ends.say(START)
        assert ends.link.receive(None) == [START]
        tensors = {"n": ["int64", [], 8]} if local else {}
        slots = self.segment.slots
        self.hello = Hello(0, 0, 1, "3", "2", "0", "x0", [], tensors, {}, [0, ELEMENTS], ELEMENTS, 3, 4096, slots)

    def lay(self, shards: int) -> Laid:
        """The model, cut into so many shards: a new segment from the second time on."""
        if shards != len(self.hello.bounds) - 1:
            old = weakref.ref(self.model)
            del self.model
            assert old() is None, "a GPU may have no room for two"
            bounds = [ELEMENTS * edge // shards for edge in range(shards + 1)]
            self.model, self.segment = Model(self.clock), AgentSegment(bounds, agent=0)
            self.hello = replace(self.hello, bounds=bounds, slots=self.segment.slots)
        return self.model, self.segment, self.hello

    def join(self) -> None:
        """Until it may train; x_0 is read meanwhile."""
        self.ends.say(Begin())
        self.loop.join(self.lay)
        assert self.ends.heard() == [self.hello]

    def offer(self, version: int, vector: list[float], mode: str = "install") -> None:
        """Lay an arrival into its slot, and say so."""
        self.segment.shard_view(0, slot=1)[:] = vector
        header = SlotHeader(0, 2, version, 0, 4 * ELEMENTS, MODES[mode])
        at = self.segment.slots[1]
        self.segment._map[at : at + HEADER_BYTES] = header.pack()
        self.ends.say(Install(0, version, mode, 0.5))

    def said(self, kind: type[Message] | None = None) -> list[Message]:
        """What it has said by now, of that kind or all but Progress."""
        heard = self.ends.heard()
        return [one for one in heard if (isinstance(one, kind) if kind else not isinstance(one, Progress))]


Starting = Callable[..., Agent]


@pytest.fixture
def start() -> Iterator[Starting]:
    """Starts an agent of a method, and frees what it holds."""
    with ExitStack() as held:

        def made(method: dict[str, Any], local: bool = False) -> Agent:
            agent = Agent(held.enter_context(PipeEnds()), method, local)
            held.callback(lambda: agent.segment.close())
            return agent

        yield made


MPCA = {"name": "mpca", "shards": 1, "install": "arrival"}


def test_x0_is_handed_over_before_the_first_step(start: Starting) -> None:
    agent = start(MPCA)
    agent.ends.say(SnapshotRequest(-1, 0), Begin())
    agent.loop.join(agent.lay)
    assert agent.said() == [agent.hello, Snapshot(-1, 0, 0, 100.0, 100.25)]
    assert agent.segment.shard_view(0).tolist() == [1.0, 2.0, 3.0]


def test_a_model_that_is_cut_anew_has_a_new_segment_and_is_said_hello_for_again(start: Starting) -> None:
    agent = start(MPCA)
    first, old = agent.hello, agent.segment
    joining = threading.Thread(target=agent.loop.join, args=(agent.lay,))
    joining.start()
    assert agent.ends.heard() == [first]
    agent.ends.say(SnapshotRequest(-1, 0))
    assert agent.ends.heard() == [Snapshot(-1, 0, 0, 100.0, 100.25)]
    agent.ends.say(Cut(3))
    assert agent.ends.heard() == [agent.hello]
    assert (old.fd, agent.hello.bounds, len(agent.hello.slots)) == (-1, [0, 1, 2, 3], 4)
    agent.ends.say(Begin())
    joining.join(SECONDS)
    assert not joining.is_alive()


def test_what_is_asked_is_done_between_two_batches_and_the_time_that_it_took_is_counted(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    agent.clock.advance(2.0)
    agent.loop.samples += 8
    agent.loop.between_batches()
    (first,) = agent.said(Progress)
    assert first == Progress(1, 8, 2.0, 0.0, {"loss": 0.5}, [], "loop")
    agent.ends.say(SnapshotRequest(0, 0))
    agent.offer(1, [7.0, 8.0, 9.0])
    agent.loop.between_batches()
    assert agent.said() == [Snapshot(0, 0, 2, 102.0, 102.25), Installed(0, 1, "install", 102.25, 102.375)]
    assert agent.model.taken == [(0, [7.0, 8.0, 9.0], 1, "install")]
    assert agent.model.pulled == [((0, 0.5),)]
    agent.clock.advance(PROGRESS_INTERVAL_S)
    agent.loop.between_batches()
    (second,) = agent.said(Progress)
    assert (second.steps, second.train_s, second.pause_s) == (3, 2.875, 0.375)


def test_a_mixed_arrival_is_pulled_to_once(start: Starting) -> None:
    agent = start({"name": "overlap-local-sgd", "tau": 2})
    agent.join()
    agent.offer(1, [7.0, 8.0, 9.0])
    agent.ends.say(SnapshotRequest(0, 0))
    agent.loop.between_batches()
    assert (agent.model.taken, agent.said()) == ([], [])
    agent.loop.between_batches()
    agent.loop.between_batches()
    assert (agent.model.taken, agent.model.pulled) == ([(0, [7.0, 8.0, 9.0], 1, "install")], [((0, 0.5),)])
    assert [type(one) for one in agent.said()] == [Installed, Snapshot]


def test_an_eager_agent_goes_on_elsewhere_once_its_snapshot_is_taken(start: Starting) -> None:
    agent = start({"name": "diloco", "period": 1, "overlap": True, "eager": True, "outer_lr": 1.0, "outer_momentum": 0.5})
    agent.join()
    agent.offer(1, [5.0, 6.0, 7.0])
    agent.loop.between_batches()
    assert [one[2:] for one in agent.model.taken] == [(1, "install")], "which moves nothing"
    assert agent.model.pulled == []
    agent.model.x += 2
    agent.ends.say(SnapshotRequest(3, 0))
    agent.loop.between_batches()
    np.testing.assert_array_equal(agent.segment.shard_view(0), [7, 8, 9])
    assert agent.model.taken[1:] == [(0, [5 + (2 + 0.5 * 2) / 2 + n for n in range(3)], 0, "replace")]
    (said,) = agent.said(Snapshot)
    assert said.end - said.start == 0.25 + 0.125


def test_eq_6_tilts_gradients_before_each_step_and_moves_no_parameters(start: Starting) -> None:
    agent = start({**MPCA, "regulariser": True, "alpha": 2.0, "alpha_start": 0.0})
    agent.join()
    agent.loop.before_step("adam")
    agent.offer(1, [7.0, 8.0, 9.0])
    agent.loop.between_batches()
    agent.loop.before_step("adam")
    agent.loop.before_step("sgd")
    agent.loop.between_batches()
    assert agent.model.tilted == [(((0, 0.5),), "adam"), (((0, 0.5),), "sgd")]
    assert agent.model.pulled == []


def test_updates_go_on_while_shards_are_copied_and_each_is_answered_when_its_copy_is_done(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    agent.model.copies = threading.Event()
    agent.offer(1, [7.0, 8.0, 9.0])
    agent.ends.say(SnapshotRequest(0, 0))
    for _ in range(3):
        agent.loop.between_batches()
        agent.model.x += 1
    assert agent.said() == []
    assert SlotHeader.unpack(agent.segment.memory[:HEADER_BYTES].tobytes()).seq % 2, "the executor may not read the slot"
    agent.model.copies.set()
    wait_until(lambda: agent.model.taken, "the arrival was copied")
    said: list[Message] = []
    wait_until(lambda: said.extend(agent.said()) or len(said) == 2, "both are answered")
    assert said == [Installed(0, 1, "install", 100.0, 100.125), Snapshot(0, 0, 1, 100.125, 100.375)]
    assert agent.segment.shard_view(0).tolist() == [1.0, 2.0, 3.0], "as it was when it was asked for"
    assert not SlotHeader.unpack(agent.segment.memory[:HEADER_BYTES].tobytes()).seq % 2
    agent.loop.between_batches()
    assert agent.model.pulled[-1] == ((0, 0.5),)


@pytest.mark.parametrize(
    ("name", "updates", "expected"),
    [("sync", 1, [(Snapshot, 2)]), ("easgd", 2, [(Snapshot, 1), (Exchange, 2)])],
)
def test_an_agent_that_waits_for_others_answers_by_itself_before(
    start: Starting, name: str, updates: int, expected: list[tuple[type[Message], int]]
) -> None:
    """With the loop's lock, which it has while it waits, it keeps the other thread from that."""
    agent = start({"name": name, "tau": 2})
    agent.join()
    agent.model.copies = threading.Event()
    agent.ends.say(SnapshotRequest(0, 0))
    for _ in range(updates):
        agent.loop.between_batches()
    training = threading.Thread(target=agent.loop.between_batches)
    training.start()
    agent.model.copies.set()
    said: list[Any] = []
    wait_until(lambda: said.extend(agent.said()) or len(said) == len(expected), "it says what it has")
    assert [(type(one), one.updates) for one in said] == expected
    assert agent.segment.shard_view(0).tolist() == [1.0, 2.0, 3.0]
    agent.offer(1, [7.0, 8.0, 9.0])
    training.join(SECONDS)
    assert not training.is_alive()


def test_what_is_still_copied_is_answered_before_the_last_message(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    agent.model.copies = threading.Event()
    agent.ends.say(SnapshotRequest(0, 0), Stop("enough"))
    agent.loop.between_batches()
    threading.Timer(0.1, agent.model.copies.set).start()
    agent.loop.leave(b"result")
    assert agent.said() == [Snapshot(0, 0, 1, 100.0, 100.25), Finished(b"result")]


def test_one_that_comes_together_with_stop_after_the_function_has_returned_is_answered_too(start: Starting) -> None:
    agent = start(MPCA, local=True)
    agent.join()
    agent.model.copies = threading.Event()
    leaving = threading.Thread(target=agent.loop.leave, args=(b"result",))
    leaving.start()
    wait_until(lambda: agent.loop._machine.state is LEAVING, "local tensors may be asked for")
    agent.ends.say(SnapshotRequest(0, 0), Stop("enough"))
    threading.Timer(0.1, agent.model.copies.set).start()
    leaving.join(SECONDS)
    assert agent.said() == [Snapshot(0, 0, 0, 100.0, 100.25), Finished(b"result")]


def failing(shard: int, out: np.ndarray, later: Later | None = None) -> None:
    """A snapshot whose copy does not come."""

    def wait() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert later is not None
    later(wait)


def test_a_copy_that_fails_at_last_is_the_end_of_the_function(start: Starting) -> None:
    """As its own kernels would have been."""
    agent = start(MPCA)
    agent.join()
    agent.ends.say(SnapshotRequest(0, 0), Stop("enough"))
    agent.model.snapshot = failing  # type: ignore[method-assign]
    agent.loop.between_batches()
    with pytest.raises(RuntimeError, match="illegal memory access"):
        agent.loop.leave(b"result")
    agent.loop.fail("RuntimeError: it", "its traceback")
    assert agent.said() == [Failed("RuntimeError: it", "its traceback")]


@pytest.mark.parametrize("together", [(Stop("enough"),), ()], ids=["with Stop", "alone"])
def test_one_that_fails_behind_the_function_is_told_once(start: Starting, together: tuple[Message, ...]) -> None:
    agent = start(MPCA, local=True)
    agent.join()
    agent.model.snapshot = failing  # type: ignore[method-assign]
    agent.ends.say(SnapshotRequest(0, 0), *together)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        agent.loop.leave(b"result")
    agent.loop.fail("RuntimeError: it", "its traceback")
    assert agent.said() == [Failed("RuntimeError: it", "its traceback")]


def test_after_the_last_message_no_failure_is_told(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    agent.ends.say(Stop("enough"))
    agent.loop.between_batches()
    agent.loop.leave(b"result")
    agent.loop.fail("RuntimeError: it", "its traceback")
    assert agent.said() == [Finished(b"result")]


def test_progress_is_said_twice_a_second_at_most(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    for _ in range(17):  # two seconds
        agent.loop.between_batches()
        agent.clock.advance(0.125)
    assert [one.steps for one in agent.said(Progress)] == [1, 5, 9, 13, 17]


def test_an_update_waits_for_nobody(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    began = time.monotonic()
    for _ in range(10):
        agent.loop.between_batches()
    assert time.monotonic() - began < 5.0


def test_a_method_in_step_waits_for_the_answer_after_its_updates(start: Starting) -> None:
    agent = start({"name": "sync", "tau": 2})
    agent.join()
    agent.ends.say(SnapshotRequest(0, 0))
    agent.loop.between_batches()
    assert agent.said() == []
    over = threading.Event()

    def train() -> None:
        agent.loop.between_batches()
        over.set()

    training = threading.Thread(target=train)
    training.start()
    assert agent.said() == [Snapshot(0, 0, 2, 100.0, 100.25)]
    assert not over.is_set()
    agent.offer(1, [7.0, 8.0, 9.0])
    assert over.wait(SECONDS)
    training.join()
    assert agent.model.taken == [(0, [7.0, 8.0, 9.0], 1, "install")]


def test_an_agent_that_asks_waits_for_the_answer_and_is_pulled_to_it_once(start: Starting) -> None:
    agent = start({"name": "easgd", "tau": 2})
    agent.join()
    agent.loop.between_batches()
    assert agent.said() == []
    training = threading.Thread(target=agent.loop.between_batches)
    training.start()
    (asked,) = agent.said()
    assert isinstance(asked, Exchange)
    assert (asked.number, asked.shard, asked.updates, asked.version, asked.end - asked.start) == (1, 0, 2, -1, 0.25)
    assert agent.segment.shard_view(0).tolist() == [1.0, 2.0, 3.0]
    assert training.is_alive()
    agent.offer(1, [7.0, 8.0, 9.0])
    training.join(SECONDS)
    assert (agent.model.taken, agent.model.pulled) == ([(0, [7.0, 8.0, 9.0], 1, "install")], [((0, 0.5),)])


def test_an_agent_asks_by_the_losses_that_its_function_logs(start: Starting) -> None:
    """Each is 0.5."""
    agent = start({"name": "easgd", "tau": 100, "loss_cut": 1.25})
    agent.join()
    agent.loop.between_batches()
    agent.loop.between_batches()
    assert agent.said() == []
    training = threading.Thread(target=agent.loop.between_batches)
    training.start()
    (asked,) = (one for one in agent.said() if isinstance(one, Exchange))
    assert asked.updates == 3
    agent.ends.say(Stop("enough"))
    training.join(SECONDS)
    assert not training.is_alive()


def test_stop_is_seen_before_the_next_batch_and_what_came_with_it_is_served_there(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    assert not agent.loop.stopping
    agent.ends.say(SnapshotRequest(0, 0), Stop("enough"))
    assert agent.loop.stopping
    agent.loop.between_batches()
    assert agent.said() == [Snapshot(0, 0, 1, 100.0, 100.25)]
    agent.loop.leave(b"result")
    assert agent.said() == [Finished(b"result")]


def test_stop_changes_nothing_on_a_thread_that_only_asks(start: Starting) -> None:
    """The training thread may be in the middle of a batch."""
    agent = start({"name": "sync", "tau": 2})
    agent.join()
    agent.ends.say(SnapshotRequest(0, 0))
    agent.loop.between_batches()
    agent.ends.say(Stop("enough"))
    seen: list[bool] = []
    asking = threading.Thread(target=lambda: seen.extend(agent.loop.stopping for _ in range(2)))
    asking.start()
    asking.join(SECONDS)
    assert seen == [True, True]
    assert agent.said() == []
    assert agent.loop.stopping
    assert agent.said() == [Snapshot(0, 0, 1, 100.0, 100.25)]


def test_the_driver_hears_once_that_a_thread_which_reads_ahead_was_told_of_stop(start: Starting) -> None:
    agent = start(MPCA)
    agent.join()
    agent.ends.say(Stop("enough"))
    asking = threading.Thread(target=lambda: agent.loop.stopping)
    asking.start()
    asking.join(SECONDS)
    for _ in range(3):  # what was read ahead is trained
        agent.clock.advance(PROGRESS_INTERVAL_S)
        agent.loop.between_batches()
    assert [one.function for one in agent.said(Progress)] == ["left", "loop", "overrun"]


def test_with_local_tensors_it_is_read_until_it_is_let_go(start: Starting) -> None:
    agent = start(MPCA, local=True)
    agent.join()
    agent.loop.between_batches()
    assert [one.function for one in agent.said(Progress)] == ["loop"]
    agent.ends.say(SnapshotRequest(0, 0), Stop("its train function has returned"))
    agent.loop.leave(b"result")
    heard = agent.ends.heard()
    assert [type(one) for one in heard] == [Progress, Snapshot, Progress, Finished]
    assert heard[0] == Progress(1, 0, 0.0, 0.0, {}, [], "returned")
    assert heard[-1] == Finished(b"result")


def test_means_of_metrics_go_once_a_second_and_at_the_end(start: Starting) -> None:
    agent = start({"name": "mpca", "shards": 1})
    agent.join()
    for n in range(8):
        agent.metrics.add({"loss": n})
        agent.loop.between_batches()
        agent.clock.advance(PROGRESS_INTERVAL_S)
    said = [one.metrics for one in agent.said(Progress)]
    assert said == [{"loss": 0.25}, {}, {"loss": 1.5}, {}, {"loss": 3.5}, {}, {"loss": 5.5}, {}]
    agent.ends.say(Stop("enough"))
    agent.loop.leave(b"")
    assert [one.metrics for one in agent.said(Progress)][-1] == {"loss": 7.0}
