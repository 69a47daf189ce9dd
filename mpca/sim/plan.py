"""A plan: what every method would do on a cluster that need not exist, from a measured step, the model's size, K and the links.

Formulas alone (`cost_table.py`), in seconds for any K. How well a method learns is not in it; `verdict` says what is known of
that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from mpca.methods import METHODS
from mpca.sim.cost_table import ROWS, Choice, Cost, Row, cost
from mpca.sim.papers import TRAINED
from mpca.sim.sheet import Sheet
from mpca.sim.transports import Coordinated, Setting
from mpca.units import format_duration, format_rate, format_size

__all__ = ["Planned", "growth_sheet", "method_sheet", "plan", "to_json", "verdict"]

_A_DAY_S = 86400
#: DDP's share of computing from which plain synchronous training is the better advice.
_ENOUGH = 0.8
#: The paper's runs: mpca's period in updates (13 to 17 by 7.1, the others by its exchange times), up to which one a run is the
#: example, and its model.
_EXAMPLES = ((15, 17, "ResNet-110"), (25, 25, "ResNet-152"), (90, 90, "VGG-A"))
_PAPERS_AGENTS = 8


@dataclass(frozen=True)
class Planned:
    """One method at one K."""

    agents: int
    row: Row
    transport: str
    cost: Cost

    @property
    def name(self) -> str:
        """The method, and what tells its rows apart."""
        only = " (simulated)" if self.row.method in METHODS and METHODS[self.row.method].simulated else ""
        return self.row.method + only + (f", {self.row.shards or 'auto'} shards" if self.row.shards is not None else "")

    @property
    def updates_per_s(self) -> float:
        """Of all agents together."""
        return self.agents * self.cost.tau / self.cost.period_s

    def rate(self, way: str) -> float:
        """Bytes a second of one of `Traffic`'s fields."""
        return float(getattr(self.cost.traffic, way)) / self.cost.period_s


def plan(at: Setting, agents: Iterable[int], choice: Choice, on: Coordinated) -> list[Planned]:
    """Every row of the table at every K.

    Args:
        at: cluster and model; its own number of agents is not used.
        agents: the K to plan for.
        choice: what is chosen of the methods.
        on: the transport of coordinated methods.
    """
    return [_planned(row, replace(at, agents=count), choice, on) for count in agents for row in ROWS]


def _planned(row: Row, at: Setting, choice: Choice, on: Coordinated) -> Planned:
    if row.method == "single":
        at = replace(at, agents=1)
    found = cost(row, at, choice if row.shards is None else replace(choice, shards=row.shards), on)
    return Planned(at.agents, row, row.transport or on.name, found)


def to_json(planned: Planned) -> dict[str, Any]:
    """A row with its units in the names of its keys."""
    found = planned.cost
    bytes_per_s = {f"{way}_bytes_per_s": planned.rate(way) for way in asdict(found.traffic)}
    return {
        "agents": planned.agents,
        "method": planned.row.method,
        "transport": planned.transport,
        "peer": planned.row.peer,
        "shards": found.shards,
        "auto_shards": planned.row.shards == 0,
        "tau": found.tau,
        "period_s": found.period_s,
        "exchange_s": found.exchange_s,
        "waits_s": found.waits_s,
        "staleness": found.staleness,
        "utilisation": found.utilisation,
        "updates_per_s": planned.updates_per_s,
        **bytes_per_s,
        "agent_bytes_per_day": _A_DAY_S * (planned.rate("agent_in") + planned.rate("agent_out")),
        "driver_bytes_per_day": _A_DAY_S * (planned.rate("driver_in") + planned.rate("driver_out")),
    }


def method_sheet(at: Setting, planned: Sequence[Planned]) -> Sheet:
    """All methods at one K."""
    rows: list[tuple[str, ...]] = []
    for one in planned:
        found, data = one.cost, to_json(one)
        shards = f" ({found.shards})" if one.row.shards == 0 else ""
        computes = f"{100 * found.utilisation:.0f} %"
        if found.exchange_s == 0:
            rows.append((one.name, *("-",) * 5, computes, *("-",) * 4))
            continue
        rows.append((
            one.name + shards + " *" * one.row.peer,
            one.transport,
            format_duration(found.exchange_s),
            format_duration(found.period_s),
            _short(found.tau),
            _short(found.staleness),
            computes,
            *(format_size(round(one.rate(way + "_in") + one.rate(way + "_out"))) for way in ("agent", "driver")),
            *(format_size(round(data[way + "_bytes_per_day"])) for way in ("agent", "driver")),
        ))  # fmt: skip
    return Sheet(
        f"K = {at.agents}, {format_size(round(at.model_bytes))} at {format_rate(8 * at.rate)}, {format_duration(at.step_s)} an "
        f"update: b/C = {_ratio(at):.2f}; float32, no codec",
        (
            "method",
            "transport",
            "exchange",
            "period",
            "tau",
            "stale",
            "computes",
            "agent/s",
            "driver/s",
            "agent/day",
            "driver/day",
        ),
        tuple(rows),
        (
            "exchange: of one shard. period, tau: between two exchanges of the same shard, in time and in an agent's updates.",
            "stale: age of what arrives, in own updates. agent, driver: bytes in and out. *: not this engine's, a lower limit.",
        ),
    )


def growth_sheet(planned: Iterable[Planned]) -> Sheet:
    """All methods over K: tau, and the share of time computing."""
    cells: dict[tuple[str, str], list[str]] = {}
    counts: dict[int, None] = {}
    for one in planned:
        if one.row.method != "single":
            counts[one.agents] = None
            cell = f"{_short(one.cost.tau)} {100 * one.cost.utilisation:.0f}%"
            cells.setdefault((one.name + " *" * one.row.peer, one.transport), []).append(cell)
    return Sheet(
        "Over K: tau, and the share of time in which agents compute",
        ("method", "transport", *(f"K = {count}" for count in counts)),
        tuple((*names, *row) for names, row in cells.items()),
    )


def verdict(at: Setting, choice: Choice, on: Coordinated) -> str:
    """Whether a cluster is worth it for these numbers, as far as arithmetic and the paper's runs can tell."""
    if at.agents == 1:
        return "One agent is no cluster: nothing is gained."
    ddp, ours = (_cost_of(method, at, choice, on) for method in ("ddp", "mpca"))
    if ddp.utilisation >= _ENOUGH:
        text = (
            "worth it, and without mpca, if a batch as many times as large still helps your model: on these links plain "
            f"synchronous training (DDP) computes up to {100 * ddp.utilisation:.0f} % of the time, with "
            f"{at.agents * ddp.utilisation:.1f} times the samples of one machine and nothing stale."
        )
    else:
        text = _as_in_the_paper(at.agents, ours) + f" What limits it most is {_limit(at, choice, on)}."
    return f"K = {at.agents}: {text} This is arithmetic; more updates are not always more progress, and only a run can tell."


def _as_in_the_paper(agents: int, ours: Cost) -> str:
    """What the run of the paper with the next longer period says."""
    seen = f"with mpca every part of the model is exchanged once in {_short(ours.tau)} updates of an agent"
    example = next(((n, name) for n, most, name in _EXAMPLES if ours.tau <= most), None)
    if example is None:
        return f"probably not worth it: {seen}, and the slowest of the paper's runs had about {_EXAMPLES[-1][0]}."
    n, model = example
    gains = [gain for one in TRAINED if one.model == model and (gain := one.speedup("mpca")) is not None]
    worth = "worth a try" if max(gains) > _PAPERS_AGENTS / 2 else "worth it only where the machines stand there anyway"
    text = (
        f"{worth}: {seen}. In the paper's run with about {n} ({model}), {_PAPERS_AGENTS} GPUs reached the same errors "
        f"{min(gains):.1f} to {max(gains):.1f} times as fast as one."
    )
    return text if agents == _PAPERS_AGENTS else f"{text} With {agents} nobody has measured it."


def _limit(at: Setting, choice: Choice, on: Coordinated) -> str:
    """What shortens mpca's period most when it costs nothing."""
    engine = f"what this engine carries ({format_rate(8 * at.engine_rate)})"
    without = {
        "the links' bandwidth": replace(at, rate=inf, driver_rate=at.driver_rate and inf),
        engine: replace(at, engine_rate=inf, prepare_rate=inf),
        "the number of messages at the driver": replace(at, message_s=0),
        "the fixed time of a cycle": replace(at, job_s=0, latency_s=0),
    }
    return min(without, key=lambda name: _cost_of("mpca", without[name], choice, on).period_s)


def _cost_of(method: str, at: Setting, choice: Choice, on: Coordinated) -> Cost:
    (row,) = (one for one in ROWS if one.method == method and one.shards is None)
    return cost(row, at, choice, on)


def _ratio(at: Setting) -> float:
    """b/C: times of an update that sending the model once takes."""
    return at.model_bytes / at.rate / at.step_s


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 10 and value != int(value) else f"{value:.0f}"
