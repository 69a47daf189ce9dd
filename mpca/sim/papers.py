"""Figures and tables of the papers that follow from formulas, with the papers' own numbers beside them.

What needs runs (figures 9, 10 and 13 of MPCA SGD, the iterations behind SparkNet's figure 3) is in `compare/figures.py`
and `compare/untrained.py`; functions here that need such numbers take them as arguments. The sources: MPCA SGD (Langer, Hall,
He, Rahayu 2018); SparkNet (Moritz, Nishihara, Stoica, Jordan 2016); DeepSpark (Kim, Park, Jang, Yoon 2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from mpca.sim.cost_table import ROWS, Choice, Cost, cost
from mpca.sim.sheet import Sheet
from mpca.sim.transports import Paper, Setting
from mpca.units import format_duration, format_size

__all__ = [
    "COMPUTING", "DISCREPANCY", "GIGABIT", "MODELS", "SPARKNET_TAUS", "TRAINED", "Model", "Trained", "deepspark_bound",
    "deepspark_sheet", "deepspark_speedup", "exchange_line", "figure_3", "figure_3_sheet", "figure_4", "figure_4_sheet",
    "naive_speedup", "of_paper", "sparknet_speedup", "table_1", "table_2", "table_2_cost",
]  # fmt: skip

#: The paper's network, in bytes a second (6.1), and its number of agents.
GIGABIT = 1e9 / 8
_AGENTS = 8
_MIB = 1 << 20


@dataclass(frozen=True)
class Model:
    """A row of MPCA SGD's Table 1, and the settings of its runs in section 7."""

    name: str
    mib: float
    """As the text has it: ResNet-110 is 6.7 MiB in section 6.4 and 7 in the table."""
    exchange_s: float
    batch: int
    step_s: float
    ratio: float
    """Communication over computation."""
    tau: int
    """Suggested for the synchronous approach."""
    sync_tau: int = 0
    """Used by it; 0: no run is reported."""
    easgd_tau: int = 0
    phases: int = 3

    @property
    def size_bytes(self) -> float:
        """M."""
        return self.mib * _MIB

    @property
    def b_s(self) -> float:
        """b: the time to send the model once."""
        return self.size_bytes / GIGABIT


#: Table 1. tau of the runs: 7.1 and 6.3 (58, 20), 7.2.1 (by Table 1, 50), 7.2.2 (100, 95); VGG-A ran in two phases.
MODELS: dict[str, Model] = {
    one.name: one
    for one in (
        Model("ResNet-110", 6.7, 1.1, 64, 0.095, 11.6, 58, 58, 20),
        Model("ResNet-34", 83, 9.2, 128, 0.582, 15.7, 79),
        Model("ResNet-152", 223, 23.6, 32, 0.809, 29.2, 146, 146, 50),
        Model("VGG-A", 491, 51.1, 50, 0.474, 107.8, 539, 100, 95, phases=2),
    )
}


@dataclass(frozen=True)
class Trained:
    """A row of MPCA SGD's Table 2: average time to a test error. None: not reached; `mxnet` without L2 for VGG-A."""

    model: str
    error: float
    unit: str
    single: float | None
    sync: float
    easgd: float
    mxnet: float
    mpca: float

    def speedup(self, method: str) -> float | None:
        """How many times faster than one GPU; None: one GPU did not get there."""
        if self.single is None:
            return None
        return self.single / float(getattr(self, method))


#: Table 2.
TRAINED: tuple[Trained, ...] = (
    Trained("ResNet-110", 0.5, "s", 179, 103, 112, 165, 109),
    Trained("ResNet-110", 0.3, "s", 457, 252, 260, 322, 255),
    Trained("ResNet-110", 0.1, "s", 10429, 2559, 2070, 7361, 1841),
    Trained("ResNet-152", 0.6, "h", 20.9, 11.5, 12.3, 18.7, 8.9),
    Trained("ResNet-152", 0.5, "h", 38.4, 16.9, 18.0, 32.7, 13.7),
    Trained("ResNet-152", 0.4, "h", 103.1, 30.9, 27.2, 55.4, 22.1),
    Trained("VGG-A", 0.6, "h", 10.2, 11.2, 9.4, 19.2, 6.7),
    Trained("VGG-A", 0.5, "h", 26.7, 24.4, 14.1, 36.0, 10.5),
    Trained("VGG-A", 0.4, "h", None, 78.4, 53.4, 62.5, 32.0),
)

#: Columns of Table 2, and their rows of the table of costs.
_COLUMNS = {
    "single": ("single", "none"),
    "sync": ("sync", None),
    "easgd": ("easgd", "server"),
    "mxnet": ("async-ps", "slices"),
    "mpca": ("mpca", None),
}
#: What the text says of the same: share of time computing (6.3, 7.1, 7.2.1, 7.2.2); "near 100 %" is taken as 1, "1/2" as it is.
COMPUTING = {
    ("ResNet-110", "sync"): 0.833, ("ResNet-110", "easgd"): 0.97, ("ResNet-110", "mpca"): 1.0,
    ("ResNet-152", "sync"): 0.833, ("ResNet-152", "easgd"): 0.95, ("ResNet-152", "mpca"): 1.0,
    ("VGG-A", "sync"): 0.5, ("VGG-A", "easgd"): 0.9,
}  # fmt: skip


def of_paper(model: Model, agents: int = _AGENTS) -> Setting:
    """The paper's test bed with one of its models; messages, copies and the engine's own limits cost nothing there."""
    free = Setting(agents, model.size_bytes, model.step_s, GIGABIT, latency_s=0, message_s=0)
    return replace(free, engine_rate=inf, prepare_rate=inf, copy_rate=inf)


def exchange_line(models: Iterable[Model] = MODELS.values()) -> tuple[float, float]:
    """Seconds and model times of an exchange, by least squares over Table 1: about 0.54 s and 12.3 b."""
    points = [(one.b_s, one.exchange_s) for one in models]
    mean_x, mean_y = (sum(each) / len(points) for each in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - slope * mean_x, slope


def table_1() -> Sheet:
    """MPCA SGD's Table 1, with the exchange, the ratio and tau by the formulas."""
    rows = []
    for one in MODELS.values():
        exchange = Paper().exchange_s(of_paper(one), one.size_bytes)
        rows.append((
            one.name, f"{one.mib:g}", f"{one.b_s:.3f}", f"{one.exchange_s:g}", f"{exchange:.2f}", f"{one.step_s:g}",
            f"{one.ratio:g}", f"{exchange / one.step_s:.1f}", f"{one.tau}", f"{round(5 * exchange / one.step_s)}",
        ))  # fmt: skip
    fixed, slope = exchange_line()
    return Sheet(
        "MPCA SGD, Table 1: 1 Gbit/s, 8 executors; beside each of the paper's numbers, what the formulas give",
        ("model", "MiB", "b, s", "exchange, s", "formula", "batch, s", "comm./comp.", "formula", "tau", "formula"),
        tuple(rows),
        (f"The line through the paper's exchanges is {fixed:.2f} s + {slope:.1f} b; tau is five exchanges of computing.",),
    )


def table_2_cost(model: Model, method: str) -> Cost:
    """What a method of Table 2 costs on the paper's test bed, with the tau of its run."""
    name, transport = _COLUMNS[method]
    rows = [one for one in ROWS if (one.method, one.transport, one.shards) == (name, transport, None)]
    row = rows[-1]  # EASGD in the paper's own form
    tau = {"sync": model.sync_tau, "easgd": model.easgd_tau}.get(method)
    return cost(row, of_paper(model), Choice(tau=tau, shards=model.phases, phases=model.phases), Paper())


def table_2() -> Sheet:
    """MPCA SGD's Table 2: times and speed-ups as printed, and of each run what follows from formulas."""
    rows = []
    for model in MODELS.values():
        trained = [one for one in TRAINED if one.model == model.name]
        for method in _COLUMNS if trained else ():
            found = table_2_cost(model, method)
            said = COMPUTING.get((model.name, method))
            a_day = (found.traffic.agent_in + found.traffic.agent_out) / found.period_s * 86400
            times = [getattr(one, method) for one in trained]
            speedups = [one.speedup(method) for one in trained]
            rows.append((
                model.name, method, f"{found.tau:.0f}" if method != "single" else "-",
                format_duration(found.period_s) if method != "single" else "-",
                f"{100 * found.utilisation:.0f}", f"{100 * said:.0f}" if said else "-", format_size(round(a_day)),
                " / ".join("-" if one is None else f"{one:g}" for one in times) + f" {trained[0].unit}",
                " / ".join("-" if one is None else f"{one:.2f}" for one in speedups),
            ))  # fmt: skip
    errors = "; ".join(
        f"{name}: {' / '.join(f'{100 * one.error:.0f} %' for one in TRAINED if one.model == name)}"
        for name in dict.fromkeys(one.model for one in TRAINED)
    )
    return Sheet(
        "MPCA SGD, Table 2: 1 Gbit/s, 8 executors",
        ("model", "method", "tau", "round", "computes, %", "paper", "agent a day", "time to the errors (paper)", "x one GPU"),
        tuple(rows),
        (
            f"Errors: {errors}. Times and speed-ups are the paper's; the columns before them follow from the table of costs.",
            "mxnet is async-ps with a slice an agent; VGG-A was trained without L2 there. mpca's tau is its period in updates.",
        ),
    )


# ---- SparkNet ----

#: tau over which figure 4 takes the maximum.
SPARKNET_TAUS = (1, 2, 5, 10, 25, 100, 500, 1000, 2500)


def naive_speedup(agents: int, overhead: float) -> float:
    r"""Speed-up of synchronous SGD with one batch divided among K machines.

    .. math:: \frac{C}{C / K + S}                                                (SparkNet, 3.1.2 and figure 4)

    Args:
        agents: K.
        overhead: S / C.
    """
    return 1 / (1 / agents + overhead)


def sparknet_speedup(free: float, tau: int, overhead: float) -> float:
    r"""Speed-up of SparkNet's rounds, from what it would be if communication cost nothing.

    .. math:: \frac{N C}{(\tau C + S) M} = \frac{N}{\tau M} \cdot \frac{\tau}{\tau + S / C}   (SparkNet, equations 1 and 2)

    Args:
        free: :math:`N / (\tau M)`, a square of figure 3: updates of one machine over parallel updates.
        tau: updates of a round.
        overhead: S / C.
    """
    return free * tau / (tau + overhead)


def figure_3(single: float, rounds: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    r"""Speed-up when communication costs nothing, :math:`N / (\tau M)`, for each (K, tau).

    The text has :math:`\tau M / N` in two places and its inverse in 3.1.2; only the latter grows with K, and is taken here.

    Args:
        single: N, updates that one machine needs.
        rounds: M, rounds that K machines need, by (K, tau).
    """
    return {(agents, tau): single / (tau * needed) for (agents, tau), needed in rounds.items()}


def figure_3_sheet(free: Mapping[tuple[int, int], float]) -> Sheet:
    """SparkNet's figure 3 as a table, from `figure_3`: a row for each K, and tau falling from left to right."""
    taus = sorted({tau for _, tau in free}, reverse=True)
    rows = tuple(
        (f"{agents}", *(f"{free[agents, tau]:.2f}" if (agents, tau) in free else "-" for tau in taus))
        for agents in sorted({agents for agents, _ in free})
    )
    columns = ("K", *(f"tau = {tau}" for tau in taus))
    return Sheet("SparkNet, figure 3: speed-up over one machine if communication cost nothing", columns, rows)


def figure_4(free: Mapping[int, float], agents: int, overheads: Iterable[float]) -> list[tuple[float, float, float, int]]:
    """Speed-ups over S / C: naive parallelisation, SparkNet at its best tau, and that tau.

    Args:
        free: the row of figure 3 for these agents, by tau.
        agents: K; 5 in the paper.
        overheads: S / C.
    """
    found = []
    for overhead in overheads:
        best = max(free, key=lambda tau: sparknet_speedup(free[tau], tau, overhead))
        found.append((overhead, naive_speedup(agents, overhead), sparknet_speedup(free[best], best, overhead), best))
    return found


def figure_4_sheet(free: Mapping[int, float], agents: int = 5) -> Sheet:
    """SparkNet's figure 4 as a table, from a row of figure 3, which the paper's text does not have: it must be measured."""
    overheads = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
    rows = tuple(
        (f"{overhead:g}", f"{naive:.2f}", f"{best:.2f}", f"{tau}")
        for overhead, naive, best, tau in figure_4(free, agents, overheads)
    )
    return Sheet(
        f"SparkNet, figure 4: speed-up over one machine, K = {agents}",
        ("S / C", "naive", "SparkNet", "at tau"),
        rows,
        ("SparkNet measured S = 20 s and C = 2 s: S / C = 10.",),
    )


# ---- DeepSpark ----

#: d(0.6, tau, 16): how many times more updates 16 asynchronous agents need, by tau (its Table 1).
DISCREPANCY: dict[int, float] = {100: 8.66, 200: 9.21, 500: 9.64}
#: "the time spent in parameter exchange is about 10x of the time spent in minibatch training" (5.1): GoogLeNet, 16 nodes.
_DEEPSPARK_OVERHEAD = 10


def deepspark_speedup(agents: int, tau: int, discrepancy: float, overhead: float) -> float:
    r"""Speed-up of n agents that exchange with one server every tau updates.

    .. math:: \frac{n \tau}{\tau d + d\,(S / C)\,n^2}                             (DeepSpark, equation 3)

    Args:
        agents: n.
        tau: updates between two exchanges.
        discrepancy: d(a, tau, n).
        overhead: S / C, of one exchange of one agent.
    """
    return agents * tau / (tau * discrepancy + discrepancy * overhead * agents * agents)


def deepspark_bound(agents: int, discrepancy: float) -> float:
    """What equation 3 tends to for a large tau: n / d (DeepSpark, equation 4)."""
    return agents / discrepancy


def deepspark_sheet(overhead: float = _DEEPSPARK_OVERHEAD) -> Sheet:
    """DeepSpark's equations 3 and 4 with its own numbers."""
    rows = tuple(
        (f"{tau}", f"{d:g}", f"{deepspark_speedup(16, tau, d, overhead):.2f}", f"{deepspark_bound(16, d):.2f}")
        for tau, d in DISCREPANCY.items()
    )
    return Sheet(
        f"DeepSpark, equations 3 and 4: 16 agents, S / C = {overhead:g}",
        ("tau", "d(0.6, tau, 16)", "speed-up (3)", "its limit (4)"),
        rows,
        (
            "It measured 2.5 over one machine at 0.7 accuracy. With its own S / C, equation 3 gives a slow-down: it counts all "
            "n exchanges of a period one after the other, and the text does not say how long one of them took.",
        ),
    )
