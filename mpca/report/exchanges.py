"""The section of the report about exchanges that agents ask for by themselves: how much, how stale and how long by agent."""

from __future__ import annotations

from collections.abc import Sequence

from mpca.records import ExchangeRecord
from mpca.report.blocks import section, table
from mpca.units import format_size

__all__ = ["section_of"]

_HEADS = ("agent", "exchanges", "refused", "tau", "staleness", "waited for its turn", "answered in", "bytes up and down")


def section_of(exchanges: Sequence[ExchangeRecord]) -> str:
    """The section as HTML."""
    rows = []
    for agent in sorted({one.agent for one in exchanges}):
        mine = [one for one in exchanges if one.agent == agent]
        refused = sum(bool(one.reason) for one in mine)
        tau, staleness, wait, served = (
            sum(getattr(one, name) for one in mine) / len(mine) for name in ("tau", "staleness", "wait", "served")
        )
        moved = sum(one.bytes.get("driver_in", 0) + one.bytes.get("driver_out", 0) for one in mine)
        row = (agent, len(mine) - refused, refused, f"{tau:.1f}", f"{staleness:.1f}", f"{1000 * wait:.0f} ms")
        rows.append((*row, f"{1000 * served:.0f} ms", format_size(moved)))
    note = "Agents ask by themselves, and the driver serves one at a time: there are no cycles. Means by agent."
    return section("Exchanges by agent", note, table(_HEADS, rows, frozenset(_HEADS)))
