"""A process that simulates units: ``python -m mpca.sim.compare.worker FD``. It ends with its parent."""

from __future__ import annotations

from mpca.agent.process import die_with
from mpca.data.child import serve
from mpca.sim.compare.unit import simulate_unit

if __name__ == "__main__":
    die_with()  # a unit takes a minute, which is long after its parent's death
    serve(lambda unit, say: simulate_unit(unit))
