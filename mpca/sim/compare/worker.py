"""A process that simulates units: ``python -m mpca.sim.compare.worker FD``. It ends with its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpca.agent.process import die_with
from mpca.data.child import serve
from mpca.errors import MpcaError
from mpca.sim.compare.fairness import Curve
from mpca.sim.compare.unit import Unit, simulate_unit

__all__: list[str] = []


def _simulate(unit: Unit, say: Callable[[Any], None]) -> list[Curve]:
    try:
        return simulate_unit(unit)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise MpcaError(f"{dict(unit.method)}, K = {unit.agents}, b/C {unit.ratio}, rates {unit.rates}: {reason}") from error


if __name__ == "__main__":
    die_with()  # a unit takes up to a minute, which is too long after its parent's death
    serve(_simulate)
