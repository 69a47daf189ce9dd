"""One real simulation of a unit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpca.sim.compare.plan import Plan
from mpca.sim.compare.settings import Conf, Entry, Shared
from mpca.sim.compare.unit import simulate_unit

pytestmark = pytest.mark.usefixtures("one_thread")

SHARED = Shared(agents=(2,), ratios=("VGG-A",), trials=3, updates=30, single_updates=30, points=30, tested=20, tuning_seeds=1)


@pytest.mark.parametrize("k_batch", [False, True])
def test_an_agent_alone_is_evaluated_as_it_is_whatever_an_exchange_takes(k_batch: bool) -> None:
    shared = replace(SHARED, step=0.01)  # the paper's exchange has 0.54 s beside what is sent
    entries = Entry("single", "single"), Entry("free", "single", control=True, k_batch=True)
    units = Plan(Conf(shared, entries)).look({}).missing.values()
    (unit,) = (one for one in units if (one.batch > shared.batch) is k_batch)
    curves = simulate_unit(unit)
    assert len(curves) == 3
    assert curves[0].cycles[-1] >= 25, "it is read once an update"
    assert len(curves[0].times) >= 25
    assert simulate_unit(replace(unit, transport="relay")) == curves
