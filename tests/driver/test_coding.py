"""Which base each order names, who is told to fetch one in full, and whose rest is added: orders in, orders with names out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mpca.algorithm.bases import KEPT, Base
from mpca.driver.cluster import Outgoing
from mpca.driver.coding import Coding
from mpca.driver.events import Acknowledged, ExecutorLost
from mpca.methods import How
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import NEVER, BaseInFull, Carried, Coded, Cut, Download, Freeze, Order, Part, Reduce

TERM, PARAMETERS, LENGTH = 3, 10, 48
ALL = ("e0", "e1", "e2")


def who(executor: str, incarnation: int = 0) -> AgentRef:
    return AgentRef(executor, int(executor[1:]), incarnation)


def crc(broadcast: int) -> int:
    return 1000 + broadcast


class Driver:
    """A `Coding`, and the orders and broadcasts that a driver makes: shard is cycle modulo `shards`."""

    def __init__(self, how: How = How.PULL, shards: int = 1) -> None:
        self.coding = Coding("int8", how, TERM)
        self.shards = shards
        self._order = self._broadcasts = 0
        self.outgoing: dict[int, Outgoing] = {}  # by broadcast

    def submit(
        self,
        executors: Iterable[str] = ALL,
        *,
        freeze: int | None = None,
        asked: Iterable[str] | None = None,
        reduce: int | None = None,
        parts: Iterable[str] | None = None,
        downloads: Iterable[int] = (),
        to: Iterable[str] | None = None,
        cut: bool = False,
    ) -> Order:
        """What goes out. `freeze` and `reduce` are cycles, of all `executors` unless said otherwise."""
        self._order += 1
        names = list(executors)
        agents = [who(name) for name in (names if asked is None else asked)]
        some = [Part(name, 4.0) for name in (names if parts is None else parts)]
        targets = [who(name) for name in (names if to is None else to)]
        order = Order(
            self._order, "r", TERM, 0, 9.0, names,
            freeze=None if freeze is None else Freeze(freeze, freeze % self.shards, agents),
            reduce=None if reduce is None else Reduce(reduce, reduce % self.shards, LENGTH, some),
            downloads=[
                Download(one, joint.shard, joint.version, "replace" if joint.replaces else "install", LENGTH, targets)
                for one, joint in ((one, self.outgoing[one]) for one in downloads)
            ],
            cut=Cut(self.shards, []) if cut else None,
        )  # fmt: skip
        return self.coding.ordered(order)

    def publish(self, version: int, shard: int = 0, parameters: int = PARAMETERS, replaces: bool = False) -> int:
        """A joint state goes out: its broadcast, as `SparkCluster.publish` makes it."""
        self._broadcasts += 1
        joint = Outgoing(shard, version, parameters, replaces)
        self.outgoing[self._broadcasts] = joint
        if self.coding.concerns(joint):
            old = self.coding.base_for(joint)
            self.coding.sent(self._broadcasts, joint, LENGTH, old, crc(self._broadcasts))
        return self._broadcasts

    def base(self, broadcast: int) -> Base:
        """What comes out of a broadcast."""
        joint = self.outgoing[broadcast]
        return Base(TERM, joint.shard, joint.version, crc(broadcast))

    def heard(self, broadcast: int, executors: Iterable[str] = ALL) -> None:
        self.coding.heard([Acknowledged(broadcast, *who(name), 1.0, 2.0, LENGTH) for name in executors])

    def everywhere(self, version: int, shard: int = 0) -> int:
        """A joint state that all executors have."""
        broadcast = self.publish(version, shard)
        self.submit(downloads=[broadcast])
        self.heard(broadcast)
        return broadcast


def coded(base: Base) -> Coded:
    return Coded("int8", base.version, base.crc, PARAMETERS, LENGTH)


def frozen(order: Order) -> Coded | None:
    assert order.freeze is not None
    return order.freeze.coded


def full(order: Order) -> list[Base]:
    assert all(one.length == LENGTH for one in order.bases)
    return [Base(TERM, one.shard, one.version, one.crc) for one in order.bases]


# ---- what a freeze names -----------------------------------------------------------------------------------------------


def test_before_the_first_joint_state_float32_travels() -> None:
    driver = Driver()
    order = driver.submit(freeze=0)
    assert frozen(order) is None
    assert order.bases == []
    reduce = driver.submit(reduce=0).reduce
    assert reduce is not None
    assert (reduce.coded, reduce.after) == (None, NEVER)


def test_the_first_joint_state_goes_out_as_it_is_and_is_the_first_base() -> None:
    driver = Driver()
    driver.submit(freeze=0)
    first = driver.publish(1)
    [download] = driver.submit(downloads=[first]).downloads
    assert (download.coded, download.result) == (None, crc(first))
    driver.heard(first, ["e0"])
    assert driver.coding.base_for(driver.outgoing[first]) == driver.base(first)  # of the next one
    assert frozen(driver.submit(freeze=1)) == coded(driver.base(first))


def test_a_joint_state_goes_out_as_a_difference_from_the_base_that_all_have() -> None:
    driver = Driver()
    driver.submit(freeze=0)
    first = driver.everywhere(1)
    second = driver.publish(2)
    [download] = driver.submit(downloads=[second]).downloads
    assert (download.coded, download.result) == (coded(driver.base(first)), crc(second))


def test_one_that_is_late_keeps_the_others_at_the_base_before() -> None:
    driver = Driver()
    first = driver.everywhere(1)
    second = driver.publish(2)
    driver.heard(second, ["e0", "e1"])
    assert frozen(driver.submit(freeze=1)) == coded(driver.base(first))
    third = driver.publish(3)
    driver.submit(downloads=[third])
    driver.heard(third, ["e0", "e1"])
    order = driver.submit(freeze=2)
    assert frozen(order) == coded(driver.base(third))  # e2 has none of the two that are kept
    assert full(order) == [driver.base(third)]


def test_one_without_agents_that_are_asked_holds_nobody_back() -> None:
    driver = Driver()
    driver.everywhere(1)
    second = driver.publish(2)
    driver.heard(second, ["e0", "e1"])
    assert frozen(driver.submit(freeze=1, asked=["e0", "e1"])) == coded(driver.base(second))


def test_the_late_one_is_lost_and_its_base_is_waited_for_no_more() -> None:
    driver = Driver()
    first = driver.everywhere(1)
    second = driver.publish(2)
    driver.heard(second, ["e0", "e1"])
    assert frozen(driver.submit(freeze=1)) == coded(driver.base(first))
    driver.coding.heard([ExecutorLost("e2", "killed")])
    assert frozen(driver.submit(["e0", "e1"], freeze=2)) == coded(driver.base(second))


def test_an_executor_that_joins_holds_nobody_back_and_is_told_once_to_fetch_the_base() -> None:
    driver = Driver()
    first = driver.everywhere(1)
    order = driver.submit([*ALL, "e3"], freeze=1)
    assert frozen(order) == coded(driver.base(first))
    assert order.bases == [BaseInFull(0, 1, crc(first), LENGTH)]
    assert driver.submit([*ALL, "e3"], freeze=1).bases == []
    assert driver.submit(["e3"]).bases == []
    second = driver.publish(2)
    driver.submit([*ALL, "e3"], downloads=[second])
    driver.heard(second, [*ALL, "e3"])
    assert frozen(driver.submit([*ALL, "e3"], freeze=2)) == coded(driver.base(second))
    assert driver.submit([*ALL, "e3"]).bases == []


def test_each_shard_has_bases_of_its_own() -> None:
    driver = Driver(shards=2)
    first, other = driver.everywhere(1, shard=0), driver.publish(1, shard=1)
    assert frozen(driver.submit(freeze=2)) == coded(driver.base(first))
    driver.heard(other, ["e0"])
    order = driver.submit(freeze=3)
    assert frozen(order) == coded(driver.base(other))


def test_reading_x0_and_local_tensors_names_nothing() -> None:
    driver = Driver()
    driver.everywhere(1)
    order = driver.submit(freeze=-3, reduce=-3)
    assert order.reduce is not None
    assert frozen(order) is order.reduce.coded is None
    driver.coding.took(order.order)
    assert _reduced(driver, 1).after == NEVER


# ---- frozen again ------------------------------------------------------------------------------------------------------


def test_a_cycle_that_is_frozen_again_is_frozen_against_the_same_base() -> None:
    driver = Driver()
    first = driver.everywhere(1)
    second = driver.publish(2)
    again = [driver.submit(freeze=5)]
    driver.heard(second)  # a newer one is everywhere meanwhile
    again += [driver.submit(freeze=5, asked=["e0"]), driver.submit(freeze=5)]
    assert [frozen(order) for order in again] == [coded(driver.base(first))] * 3
    assert frozen(driver.submit(freeze=6)) == coded(driver.base(second))
    assert _reduced(driver, 5).coded == coded(driver.base(first))
    assert _reduced(driver, 6).coded == coded(driver.base(second))


def test_a_cycle_that_was_frozen_without_a_base_stays_without() -> None:
    driver = Driver()
    assert frozen(driver.submit(freeze=5)) is None
    driver.everywhere(1)
    assert frozen(driver.submit(freeze=5)) is None
    assert _reduced(driver, 5).coded is None
    assert frozen(driver.submit(freeze=6)) is not None


def test_a_cycle_whose_base_is_kept_no_more_is_frozen_against_another() -> None:
    driver = Driver()
    driver.everywhere(1)
    driver.submit(freeze=5)
    driver.everywhere(2)
    newest = driver.everywhere(3)
    assert frozen(driver.submit(freeze=5)) == coded(driver.base(newest))
    assert _reduced(driver, 5).coded == coded(driver.base(newest))


def _reduced(driver: Driver, cycle: int, parts: Iterable[str] | None = None) -> Reduce:
    reduce = driver.submit(reduce=cycle, parts=parts).reduce
    assert reduce is not None
    return reduce


# ---- rests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "rests"),
    [
        (How.PULL, "dropped"), (How.TILT, "dropped"), (How.MIX, "dropped"), (How.CORRECT, "answered"),
        (How.REPLACE, "carried"), (How.EAGER, "carried"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_rest_follows_from_what_an_arrival_does(how: How, rests: str) -> None:
    driver = Driver(how)
    driver.everywhere(1)
    order = driver.submit(freeze=1)
    assert order.freeze is not None
    assert order.freeze.rests == rests
    driver.coding.took(driver.submit(reduce=1).order)
    assert bool(driver.submit(freeze=2).carried) == (rests == "carried")


def test_only_the_rest_of_a_sum_that_was_taken_is_added() -> None:
    driver = Driver(How.REPLACE)
    driver.everywhere(1)
    driver.submit(freeze=1)
    given_up = driver.submit(reduce=1)
    driver.submit(freeze=2)
    assert driver.submit(freeze=2).carried == []
    assert _reduced(driver, 2).after == NEVER
    again = driver.submit(reduce=2, parts=["e0", "e2"])
    driver.coding.took(again.order)
    driver.coding.took(again.order)  # nothing more
    order = driver.submit(freeze=3)
    assert order.carried == [Carried("e0", 2), Carried("e2", 2)]  # e1 was not in it
    third = driver.submit(reduce=3)
    assert third.reduce is not None
    assert third.reduce.after == again.order  # and not by its cycle, for which e1 summed in the order that was given up
    assert _reduced(driver, 3).after == again.order  # submitted again
    driver.coding.took(given_up.order)  # too late; and it is known still
    driver.coding.took(third.order)
    assert driver.submit(freeze=4).carried == [Carried(name, 3) for name in ALL]


def test_however_many_orders_come_before_a_sum_is_taken() -> None:
    driver = Driver(How.REPLACE)
    driver.everywhere(1)
    driver.submit(freeze=1)
    first = driver.submit(reduce=1)
    for _ in range(20):
        driver.submit(freeze=-3, asked=["e0"], reduce=-3)
    driver.submit(freeze=2)
    driver.submit(reduce=2)  # with three phases the sum before is taken while this one is made
    driver.coding.took(first.order)
    assert driver.submit(freeze=3).carried == [Carried(name, 1) for name in ALL]


def test_a_sum_of_float32_leaves_no_rest() -> None:
    driver = Driver(How.REPLACE)
    driver.submit(freeze=1)
    driver.everywhere(1)
    driver.coding.took(driver.submit(reduce=1).order)
    order = driver.submit(freeze=2)
    assert frozen(order) is not None
    assert order.carried == []
    assert _reduced(driver, 2).after == NEVER


def test_rests_are_those_of_the_same_shard() -> None:
    driver = Driver(How.EAGER, shards=2)
    driver.everywhere(1, shard=0)
    driver.everywhere(1, shard=1)
    driver.submit(freeze=2)
    taken = driver.submit(reduce=2).order
    driver.coding.took(taken)
    assert driver.submit(freeze=3).carried == []
    assert _reduced(driver, 3).after == NEVER
    assert driver.submit(freeze=4).carried == [Carried(name, 2) for name in ALL]
    assert _reduced(driver, 4).after == taken


# ---- broadcasts --------------------------------------------------------------------------------------------------------


def test_a_broadcast_that_never_goes_out_and_the_newer_one_in_its_place() -> None:
    driver = Driver()
    first = driver.everywhere(1)
    unsent = driver.publish(2)
    driver.coding.withdrawn(unsent)
    assert frozen(driver.submit(freeze=2)) == coded(driver.base(first))
    third = driver.publish(3)  # by now the one that all have is forgotten
    [download] = driver.submit(downloads=[third]).downloads
    assert download.coded in (coded(driver.base(unsent)), coded(driver.base(first)))
    driver.heard(third)
    order = driver.submit(freeze=3)
    assert frozen(order) == coded(driver.base(third))
    assert order.bases == []


def test_an_acknowledgement_of_what_was_withdrawn_is_not_heard() -> None:
    driver = Driver()
    first = driver.everywhere(1)
    second = driver.publish(2)
    driver.coding.withdrawn(second)
    driver.heard(second)
    assert frozen(driver.submit(freeze=1)) == coded(driver.base(first))
    [download] = driver.submit(downloads=[second]).downloads
    assert (download.coded, download.result) == (None, 0)


def test_a_joint_state_for_joiners_in_mid_run_is_a_difference_and_no_base() -> None:
    driver = Driver()
    driver.submit(freeze=0)
    first = driver.everywhere(4)
    joint = driver.publish(4, replaces=True)
    order = driver.submit([*ALL, "e3"], downloads=[joint], to=["e1", "e3"])
    assert [(one.coded, one.result) for one in order.downloads] == [(coded(driver.base(first)), crc(joint))]
    assert order.bases == []  # e3 fetches the base before it decodes
    second = driver.publish(5)
    driver.heard(second, ["e0", "e1"])
    assert frozen(driver.submit([*ALL, "e3"], freeze=1)) == coded(driver.base(first))
    driver.heard(second, ["e2"])
    assert frozen(driver.submit([*ALL, "e3"], freeze=2)) == coded(driver.base(second))


def test_who_has_joined_holds_the_base_that_the_joint_state_was_a_difference_from() -> None:
    driver = Driver()
    driver.submit(freeze=0)
    first = driver.everywhere(4)
    joint = driver.publish(4, replaces=True)
    driver.submit([*ALL, "e3"], downloads=[joint], to=["e3"])
    driver.heard(joint, ["e3"])
    second = driver.publish(5)
    driver.heard(second, ["e0", "e1", "e2"])  # e3 has one of the two, so it is waited for
    assert frozen(driver.submit([*ALL, "e3"], freeze=1)) == coded(driver.base(first))


def test_a_joint_state_for_joiners_travels_as_it_is_when_nobody_holds_a_base_and_is_none_in_mid_run() -> None:
    driver = Driver()
    driver.submit(freeze=0)
    joint = driver.publish(0, replaces=True)  # in the first cycles shards have none
    order = driver.submit([*ALL, "e3"], downloads=[joint], to=["e3"])
    assert [(one.coded, one.result) for one in order.downloads] == [(None, 0)]
    driver.heard(joint, ["e3"])
    assert frozen(driver.submit([*ALL, "e3"], freeze=1)) is None

    driver.everywhere(4)
    driver.coding.heard([ExecutorLost(name, "killed") for name in ALL])
    joint = driver.publish(4, replaces=True)
    order = driver.submit(["e3"], downloads=[joint])
    assert [(one.coded, one.result) for one in order.downloads] == [(None, 0)]
    assert order.bases == []


def test_a_later_joiner_at_the_start_of_a_resumed_run_gets_the_joint_state_as_it_is() -> None:
    driver = Driver()
    joint = driver.publish(41, replaces=True)
    driver.submit(downloads=[joint])
    driver.heard(joint)
    again = driver.publish(41, replaces=True)
    order = driver.submit([*ALL, "e3"], downloads=[again], to=["e3"])
    assert [(one.coded, one.result) for one in order.downloads] == [(None, 0)]
    assert full(order) == [driver.base(joint)]


def test_the_joint_state_at_which_a_resumed_run_begins_is_the_first_base() -> None:
    driver = Driver()
    joint = driver.publish(41, replaces=True)
    order = driver.submit(downloads=[joint])
    assert [(one.coded, one.result) for one in order.downloads] == [(None, crc(joint))]
    assert order.bases == []
    driver.heard(joint)
    assert frozen(driver.submit(freeze=120)) == coded(driver.base(joint))
    assert driver.coding.base_for(Outgoing(0, 42, PARAMETERS, False)) == driver.base(joint)


def test_a_shard_of_buffers_alone_has_no_base() -> None:
    driver = Driver()
    joint = driver.publish(1, parameters=0)
    assert [(one.coded, one.result) for one in driver.submit(downloads=[joint]).downloads] == [(None, 0)]
    driver.heard(joint)
    order = driver.submit(freeze=1)
    assert frozen(order) is None
    assert order.bases == []


def test_a_vector_that_is_no_joint_state_travels_as_it_is() -> None:
    driver = Driver()
    driver.everywhere(1)
    local = Download(900, 0, 0, "replace", 16, [who("e0")])
    order = driver.coding.ordered(Order(50, "r", TERM, 0, 9.0, list(ALL), downloads=[local]))
    assert order.downloads == [local]


# ---- in full -----------------------------------------------------------------------------------------------------------


def test_one_that_downloads_the_base_now_is_not_told_to_fetch_it() -> None:
    driver = Driver()
    first = driver.publish(1)
    driver.submit(downloads=[first])
    driver.heard(first, ["e0"])
    assert driver.submit(["e0", "e1"], downloads=[first], to=["e1"]).bases == []
    order = driver.submit(downloads=[first], to=["e1"])
    assert order.bases == [BaseInFull(0, 1, crc(first), LENGTH)]  # for e2, of which no agent downloads it
    driver.heard(first, ["e1"])
    assert driver.submit().bases == []


def test_nobody_is_told_to_fetch_a_base_before_its_broadcast_has_gone_out() -> None:
    """An order between two cycles, such as one that reads local tensors, comes before the order that has the download."""
    driver = Driver()
    first = driver.publish(1)
    assert driver.submit(freeze=-3, asked=["e0"]).bases == []
    assert driver.submit(downloads=[first]).bases == []
    assert driver.submit(["e0", "e3"]).bases == []  # nobody has said that it has come
    driver.heard(first)
    assert full(driver.submit(["e0", "e3"])) == [driver.base(first)]


def test_after_broadcasts_that_never_go_out_float32_travels() -> None:
    driver = Driver()
    driver.submit(freeze=0)
    for version in (1, 2):
        driver.coding.withdrawn(driver.publish(version))
    order = driver.submit(freeze=1)
    assert frozen(order) is None
    assert order.bases == []
    third = driver.publish(3)
    [download] = driver.submit(downloads=[third]).downloads
    assert (download.coded, download.result) == (None, crc(third))
    driver.heard(third)
    assert frozen(driver.submit(freeze=1)) is None
    assert frozen(driver.submit(freeze=2)) == coded(driver.base(third))


def test_executors_that_missed_all_that_is_kept_exchange_float32() -> None:
    driver = Driver(How.REPLACE)
    first = driver.everywhere(1)
    assert frozen(driver.submit(freeze=1)) == coded(driver.base(first))
    driver.coding.took(driver.submit(reduce=1).order)
    for version in (2, 3):
        driver.heard(driver.publish(version), ["e0"])
    order = driver.submit(["e1", "e2"], freeze=2)
    assert frozen(order) is None
    assert order.carried == []
    assert _reduced(driver, 2).after == NEVER
    assert driver.coding.base_for(Outgoing(0, 4, PARAMETERS, False)) is None
    assert frozen(driver.submit(freeze=3)) is not None


def test_a_base_that_lost_executors_alone_had_is_not_fetched() -> None:
    driver = Driver()
    driver.heard(driver.publish(1), ["e0"])
    driver.coding.heard([ExecutorLost("e0", "killed")])
    order = driver.submit(["e1", "e2"], freeze=1)
    assert frozen(order) is None
    assert order.bases == []


def test_one_that_has_an_older_base_is_told_nothing() -> None:
    driver = Driver()
    driver.everywhere(1)
    second = driver.publish(2)
    driver.heard(second, ["e0", "e1"])
    assert driver.submit(freeze=1).bases == []


def test_a_newer_base_is_told_when_the_one_that_was_told_is_kept_no_more() -> None:
    driver = Driver()
    driver.everywhere(1)
    driver.submit([*ALL, "e3"])
    driver.everywhere(2)
    third = driver.everywhere(3)
    assert full(driver.submit([*ALL, "e3"])) == [driver.base(third)]


# ---- a cut -------------------------------------------------------------------------------------------------------------


def test_a_cut_of_the_model_forgets_all_bases() -> None:
    driver = Driver()
    first = driver.publish(0, replaces=True)
    driver.submit(downloads=[first])
    driver.heard(first)
    order = driver.submit(cut=True)
    assert order.bases == []
    assert frozen(driver.submit(freeze=0)) is None
    driver.heard(first)  # of the old cut, and late
    assert frozen(driver.submit(freeze=1)) is None
    again = driver.publish(0)  # the same version of another shard 0
    assert [one.coded for one in driver.submit(downloads=[again]).downloads] == [None]
    driver.heard(again)
    assert frozen(driver.submit(freeze=2)) == coded(driver.base(again))


# ---- anything ----------------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """A base, as the model of the machine below knows it."""

    base: Base
    broadcast: int
    old: Coded | None  # what it is a difference from
    acknowledged: set[str] = field(default_factory=set)


class AnyRun(RuleBasedStateMachine):
    """Whatever executors do, beside a model that remembers everything: what went out, and who said what."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(How.REPLACE)
        self.living = [*ALL]
        self.made: list[Made] = []  # newest first
        self.open: list[int] = []  # broadcasts that are not withdrawn, oldest first
        self.joint: dict[int, Base] = {}  # what agents join at, by broadcast: the base that it is a difference from
        self.told: set[tuple[str, Base]] = set()
        self.named: dict[int, Base | None] = {}
        self.cycle, self.version, self.executors = 0, 0, len(ALL)
        self.sums: list[tuple[int, int, tuple[str, ...]]] = []  # order, cycle, parts: not taken, of the present cycle
        self.taken = NEVER
        self.taken_from: dict[str, int] = {}
        self.asked: list[str] = []

    # ---- what the model knows

    @property
    def kept(self) -> list[Made]:
        return self.made[:KEPT]

    def holders(self) -> set[str]:
        return set().union(*(one.acknowledged for one in self.kept)) if self.kept else set()

    def best(self, asked: Iterable[str]) -> Coded | None:
        """The base that most of these have, of two the newer one; None: none has any."""
        found, most = None, 0
        for one in self.kept:
            if len(one.acknowledged & set(asked)) > most:
                found, most = coded(one.base), len(one.acknowledged & set(asked))
        return found

    def look(self, order: Order, to: Iterable[str] = ()) -> None:
        """At the bases in full of an order."""
        for base in full(order):
            assert base in [one.base for one in self.kept]
            lacking = set(order.executors) - self.holders() - set(to)
            assert self.holders()
            news = {(name, base) for name in lacking} - self.told
            assert news
            self.told |= news

    # ---- what may happen

    @rule()
    def publish(self) -> None:
        self.version += 1
        old = self.best(self.asked)
        broadcast = self.driver.publish(self.version)
        self.made.insert(0, Made(self.driver.base(broadcast), broadcast, old))
        self.open.append(broadcast)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def download(self, data: st.DataObject) -> None:
        broadcast = data.draw(st.sampled_from(self.open))
        to = data.draw(st.lists(st.sampled_from(self.living), min_size=1, unique=True))
        order = self.driver.submit(self.living, downloads=[broadcast], to=to)
        [download] = order.downloads
        made = next(one for one in self.made if one.broadcast == broadcast)
        assert (download.coded, download.result) == (made.old, made.base.crc)
        self.look(order, to)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        broadcast, name = data.draw(st.sampled_from(self.open)), data.draw(st.sampled_from(self.living))
        self.driver.heard(broadcast, [name])
        next(one for one in self.made if one.broadcast == broadcast).acknowledged.add(name)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        broadcast = data.draw(st.sampled_from(self.open))
        self.open.remove(broadcast)
        self.driver.coding.withdrawn(broadcast)

    @precondition(lambda self: self.made and self.asked)
    @rule()
    def publish_for_joiners(self) -> None:
        best = self.best(self.asked)
        broadcast = self.driver.publish(self.version, replaces=True)
        [download] = self.driver.submit(self.living[:1], downloads=[broadcast], to=self.living[:1]).downloads
        assert (download.coded, download.result) == (best, 0 if best is None else crc(broadcast))
        if best is not None:
            self.joint[broadcast] = next(one.base for one in self.kept if coded(one.base) == best)

    @precondition(lambda self: self.joint)
    @rule(data=st.data())
    def joined(self, data: st.DataObject) -> None:
        """Whoever can decode it holds the base, if it is one of two still."""
        broadcast, name = data.draw(st.sampled_from([*self.joint])), data.draw(st.sampled_from(self.living))
        self.driver.heard(broadcast, [name])
        next(one for one in self.made if one.base == self.joint[broadcast]).acknowledged.add(name)

    @rule(again=st.booleans(), data=st.data())
    def freeze(self, again: bool, data: st.DataObject) -> None:
        if not again:
            self.cycle += 1
            self.sums.clear()
        asked = data.draw(st.lists(st.sampled_from(self.living), min_size=1, unique=True))
        self.asked = asked
        order = self.driver.submit(self.living, freeze=self.cycle, asked=asked)
        base, kept = frozen(order), {coded(one.base): one.base for one in self.kept}
        before = self.named.get(self.cycle)
        if self.cycle in self.named and (before is None or before in kept.values()):
            assert base == (None if before is None else coded(before))
        else:
            assert base == self.best(asked)
        self.named[self.cycle] = None if base is None else kept[base]
        carried = {} if base is None else {name: self.taken_from[name] for name in asked if name in self.taken_from}
        assert order.carried == [Carried(*one) for one in carried.items()]
        self.look(order)

    @precondition(lambda self: self.cycle in self.named)
    @rule(data=st.data())
    def reduce(self, data: st.DataObject) -> None:
        parts = data.draw(st.lists(st.sampled_from(self.living), min_size=1, unique=True))
        order = self.driver.submit(self.living, reduce=self.cycle, parts=parts)
        base, reduce = self.named[self.cycle], order.reduce
        assert reduce is not None
        assert reduce.coded == (None if base is None else coded(base))
        assert reduce.after == (NEVER if base is None else self.taken)
        if base is not None:
            self.sums.append((order.order, self.cycle, tuple(parts)))
        self.look(order)

    @precondition(lambda self: self.sums)
    @rule()
    def take(self) -> None:
        order, cycle, parts = self.sums[-1]
        self.sums.clear()
        self.driver.coding.took(order)
        self.taken = order
        self.taken_from.update(dict.fromkeys(parts, cycle))
        self.cycle += 1  # nobody freezes it any more

    @precondition(lambda self: len(self.living) > 1)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.living))
        self.living.remove(name)
        self.driver.coding.heard([ExecutorLost(name, "killed")])
        for one in self.made:
            one.acknowledged.discard(name)

    @rule()
    def join(self) -> None:
        self.living.append(f"e{self.executors}")
        self.executors += 1

    @rule()
    def other(self) -> None:
        self.look(self.driver.submit(self.living))

    @rule()
    def in_full_at_last(self) -> None:
        """Whoever has none where others have one, and downloads none, was told by now."""
        self.look(self.driver.submit(self.living))
        told = {name for name, base in self.told if base in [one.base for one in self.kept]}
        assert not self.holders() or set(self.living) - self.holders() <= told

    @invariant()
    def a_newer_base_is_encoded_against_the_best(self) -> None:
        found = self.driver.coding.base_for(Outgoing(0, self.version + 1, PARAMETERS, False))
        assert (None if found is None else coded(found)) == self.best(self.asked)


TestAnyRun = AnyRun.TestCase
TestAnyRun.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
