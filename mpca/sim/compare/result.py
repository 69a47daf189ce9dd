"""The table of a comparison: what was chosen, and medians and ranges over the reported seeds. Nothing is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from mpca.methods import Method
from mpca.sim.compare.fairness import Curve
from mpca.sim.compare.plan import Chosen, Progress
from mpca.sim.compare.settings import Conf, setting_of
from mpca.sim.cost_table import ROWS, Choice, Said, cost, formulas
from mpca.sim.cost_table import Row as CostRow
from mpca.sim.sheet import Sheet
from mpca.sim.transports import COORDINATED, Coordinated, Peers, Server, Setting
from mpca.units import format_size

__all__ = ["KIND", "Result", "Row", "Times", "result_of", "row_of"]

#: What every row is, and what one is that cannot be had on Spark.
KIND = "simulated, no codec"
SIMULATED_ONLY = "simulated only, no codec"


@dataclass(frozen=True)
class Times:
    """How long the runs of a row took to one target. Infinite: not reached."""

    target: float
    median: float
    least: float
    most: float
    reached: int
    runs: int
    speedup: float | None
    """Over `single`, by medians; None: one of both was not reached."""
    updates: float
    """That an agent had made, median."""
    agent_bytes: float
    """Into and out of an agent until then, median."""

    def text(self) -> str:
        """Median and range, and how many runs there were if not all reached it."""
        if not self.reached:
            return "not reached"
        some = f", {self.reached} of {self.runs}" if self.reached < self.runs else ""
        middle = "not reached" if math.isinf(self.median) else f"{self.median:.0f}"
        return f"{middle} ({self.least:.0f} to {'...' if math.isinf(self.most) else f'{self.most:.0f}'}{some})"


@dataclass(frozen=True)
class Row:
    """One method under one condition."""

    label: str
    control: bool
    agents: int
    ratio: str
    b_over_c: float
    alone: bool
    """One agent runs."""
    method: dict[str, Any]
    tuned: dict[str, Any]
    optimizer: str
    rate: float
    trials: int
    edges: tuple[str, ...]
    times: tuple[Times, ...]
    last_error: float
    """Median of the runs' last evaluations."""
    curves: tuple[Curve, ...]
    kind: str = KIND

    def to_json(self) -> dict[str, Any]:
        """Without curves; what was not reached is null."""
        values = asdict(self)
        del values["curves"]
        values["times"] = [
            {key: None if isinstance(one, float) and math.isinf(one) else one for key, one in times.items()}
            for times in values["times"]
        ]
        return values

    def middle(self) -> list[tuple[float, float, float]]:
        """Time, updates of an agent and median error at each evaluation, as far as all runs have one."""
        first = self.curves[0]
        errors = (median(column) for column in zip(*(one.errors for one in self.curves), strict=False))
        return list(zip(first.times, first.updates, errors, strict=False))


@dataclass(frozen=True)
class Result:
    """A whole comparison."""

    conf: Conf
    targets: tuple[float, ...]
    conditions: list[tuple[int, str, float, list[Row]]]
    """K, b/C as asked, b/C, and the rows."""

    @property
    def rows(self) -> list[Row]:
        """Of all conditions."""
        return [row for *_, rows in self.conditions for row in rows]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences below a table."""
        shared, single = self.conf.shared, self.conf.reference.label
        said = [
            f"Every row is simulated, and has no codec: float32 is exchanged. {shared.task}, batch {shared.batch}.",
            f"Times are updates of one agent that computes all the time (C); median and range of {shared.seeds} seeds that "
            f"chose nothing. x: the median of {single} over the row's. agent: bytes in and out until the last target.",
            f"Targets: what {single} reached after {_shares(shared.target_shares)} of {shared.single_updates} updates, on "
            f"{shared.tuning_seeds} other seeds, by which rates and what is tuned were chosen too. K agents train for the time "
            f"of {shared.updates}.",
        ]
        if any(row.control for row in self.rows):
            said.append("(control): stands beside the claims, and is no method to choose.")
        if any(row.edges for row in self.rows):
            said.append(f"*: after {shared.rounds} rounds the optimum still lies at the edge of what was tried.")
        return tuple(said)

    def sheets(self) -> list[Sheet]:
        """A table for each condition; the notes stand below the last one."""
        found = [self._sheet(*one) for one in self.conditions]
        return [*found[:-1], Sheet(found[-1].title, found[-1].columns, found[-1].rows, self.notes)]

    def _sheet(self, agents: int, ratio: str, b_over_c: float, rows: Sequence[Row]) -> Sheet:
        heads = [head for target in self.targets for head in (f"C to {_percent(target)}", "x")]
        name = "" if ratio == f"{b_over_c:g}" else f" ({ratio})"
        return Sheet(
            f"K = {agents}, b/C = {b_over_c:.2f}{name}, {self.conf.shared.transport} transport",
            ("method", "tuned", "rate", "trials", *heads, "agent", "last error", "row"),
            tuple(self._cells(row) for row in rows),
        )

    @staticmethod
    def _cells(row: Row) -> tuple[str, ...]:
        tuned = ", ".join(
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.tuned.items()
        )
        last = row.times[-1]
        times = [cell for one in row.times for cell in (one.text(), f"{one.speedup:.2f}" if one.speedup else "-")]
        return (
            row.label + " (control)" * row.control,
            (tuned or "-") + " *" * any(edge != "rate" for edge in row.edges),
            f"{row.rate:g}" + " *" * ("rate" in row.edges),
            str(row.trials),
            *times,
            "-" if math.isinf(last.median) else format_size(round(last.agent_bytes)),
            _percent(row.last_error),
            row.kind,
        )

    @property
    def formulas(self) -> list[Said]:
        """The cost formulas of the rows, and of their transport."""
        on = COORDINATED[self.conf.shared.transport]
        rows = [row_of(row.method, row.optimizer) for row in self.rows]
        titles = {None: on.title, Server.name: Server.title, Peers.name: Peers.title}
        named = {(one.method, titles.get(one.transport, "")) for one in rows}
        used = {title for _, title in named if title}
        named |= {(f"transport {title}", "") for title in used} | {("a cycle", "") for title in used if title == on.title}
        return [one for one in formulas(on) if named & {(row, one.transport) for row in one.rows}]

    def formula_lines(self) -> list[str]:
        """`formulas` as text."""
        return [line for one in self.formulas for line in one.lines()]

    def lines(self) -> list[str]:
        """Everything as text."""
        tables = [line for sheet in self.sheets() for line in (*sheet.lines(), "")]
        return [*tables, "Cost formulas in force:", *self.formula_lines()]

    def to_json(self) -> dict[str, Any]:
        """Everything but the curves."""
        return {
            "compare": asdict(self.conf.shared),
            "targets": list(self.targets),
            "rows": [row.to_json() for row in self.rows],
            "formulas": [asdict(one) for one in self.formulas],
        }


def result_of(conf: Conf, progress: Progress) -> Result:
    """The table, when all units are done."""
    shared, conditions = conf.shared, list[tuple[int, str, float, list[Row]]]()
    for agents in shared.agents:
        for ratio in shared.ratios:
            chosen = [one for one in progress.chosen if (one.agents, one.ratio) == (agents, ratio)]
            at = setting_of(ratio, agents, shared.step, shared.bandwidth)
            b_over_c = at.model_bytes / at.rate / at.step_s
            (single,) = (one for one in chosen if one.entry.reference)
            rows = [_row(one, single, progress.targets, conf, b_over_c) for one in chosen]
            conditions.append((agents, ratio, b_over_c, rows))
    return Result(conf, progress.targets, conditions)


def _row(one: Chosen, single: Chosen, targets: Sequence[float], conf: Conf, b_over_c: float) -> Row:
    method = one.entry.method(one.trial.knobs)
    at = setting_of(one.unit.ratio, one.unit.agents, one.unit.step_s, one.unit.bandwidth)
    a_cycle = _a_cycle(at, method, one.unit.optimizer, COORDINATED[one.unit.transport])
    times = tuple(_times(one.curves, single.curves, target, a_cycle) for target in targets)
    return Row(
        one.entry.label,
        one.entry.control,
        one.agents,
        one.ratio,
        b_over_c,
        not method.exchanges,
        method.to_dict(),
        one.trial.knobs,
        one.unit.optimizer,
        one.trial.rate,
        one.trials,
        one.edges,
        times,
        median(curve.errors[-1] for curve in one.curves),
        tuple(one.curves),
        SIMULATED_ONLY if method.simulated else KIND,
    )


def _times(curves: Sequence[Curve], single: Sequence[Curve], target: float, a_cycle: float) -> Times:
    times = [curve.time_to(target) for curve in curves]
    at = [(curve, curve.reached(target)) for curve in curves]
    updates = [math.inf if index is None else curve.updates[index] for curve, index in at]
    moved = [math.inf if index is None else curve.cycles[index] * a_cycle for curve, index in at]
    middle, before = median(times), median(one.time_to(target) for one in single)
    return Times(
        target,
        middle,
        min(times),
        max(times),
        sum(not math.isinf(time) for time in times),
        len(times),
        None if math.isinf(middle) or math.isinf(before) or not middle else before / middle,
        median(updates),
        median(moved),
    )


def _a_cycle(at: Setting, method: Method, optimizer: str, on: Coordinated) -> float:
    """Bytes into and out of an agent in one cycle, by the table of costs: a round of the whole model is S cycles.

    Of agents that ask or gossip, each exchange is one's alone, so that a round is K of them.
    """
    if not method.exchanges:
        return 0.0
    row = row_of(method.to_dict(), optimizer)
    moved = cost(row, at, Choice(tau=1, shards=method.shards, phases=method.phases), on).traffic
    return (moved.agent_in + moved.agent_out) / (at.agents if method.asks or method.simulated else method.shards)


def row_of(method: Mapping[str, Any], optimizer: str = "sgd") -> CostRow:
    """The row of the table of costs that a method has in a run, or the row of which it is a form ("mpca-paper").

    `optimizer` is a name of `models.OPTIMIZERS`: the state of the agents' optimisers may be a part of what is exchanged.

    Example:
        >>> row_of({"name": "mpca-paper"}).method, row_of({"name": "diloco", "overlap": True}).method
        ('mpca', 'diloco-streaming')
        >>> row_of({"name": "diloco", "overlap": True, "eager": True}).method
        'diloco-eager'
        >>> row_of({"name": "dl4j-averaging", "updater": "average"}, "adam").method
        'dl4j-averaging-3M'
    """
    whole = method.get("eager") and method.get("fragments", 1) == 1
    name = method["name"] + ("-eager" if whole else "-streaming" * bool(method.get("overlap")))
    if method.get("updater") == "average":
        name += {"sgd": "", "nesterov": "-2M"}.get(optimizer, "-3M")
    here = (None, "none", Server.name, Peers.name)  # coordinated, alone, through the server, or (gossip) between agents
    fit = [row for row in ROWS if row.transport in here and row.shards is None and not row.peer and name.startswith(row.method)]
    return max(fit, key=lambda row: len(row.method))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _shares(shares: Sequence[float]) -> str:
    return " and ".join(f"{100 * share:g} %" for share in sorted(shares))
