"""The papers' tables and figures as commands, and how each one that trains is simulated in minutes.

Each figure says which paper and section it shows, and compares what the paper says of it with what came out here: a claim that
breaks is printed as one. What needs no training is in `untrained.py`. What is trained here is a small net on computed data,
with rates chosen on seeds that are not reported (`fairness.py`); where the paper fixed a number (tau, alpha, gamma), it is
taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import inf, log10
from statistics import fmean
from typing import Any

from mpca.sim import papers
from mpca.sim.compare import untrained
from mpca.sim.compare.figure_types import Chart, Claim, Figure, Shown, Simulate
from mpca.sim.compare.result import Result, Row, result_of
from mpca.sim.compare.settings import Conf, Entry, Shared
from mpca.sim.papers import MODELS, SPARKNET_TAUS
from mpca.sim.sheet import Sheet

__all__ = ["FIGURES"]

#: Minutes on two cores: one bandwidth, few rates.
_BASE = Shared(trials=5, rounds=1, updates=800, single_updates=2400, points=80, tested=1000, target_shares=(0.15, 0.5))
_SINGLE = Entry("single", "single")


def _simulated(conf: Conf, simulate: Simulate, claims: Callable[[Result], list[Claim]]) -> Shown:
    result = result_of(conf, simulate(conf))
    charts = [
        Chart(
            sheet.title,
            "time, in updates of an agent that computes all the time (C)",
            {row.label: [(t, e) for t, _, e in row.middle() if t <= conf.shared.updates] for row in rows},
            percent=True,
        )
        for sheet, (*_, rows) in zip(result.sheets(), result.conditions, strict=True)
    ]
    return Shown(result.sheets(), charts, claims(result))


def _sooner(result: Result, said: str, target: int, *labels: str, agents: int = 0) -> Claim:
    """The labels, from the one that is soonest at a target to the last one."""
    rows = {row.label: row for row in result.rows if not agents or row.agents == agents}
    return _ordered(said, [(label, rows[label]) for label in labels], target)


def _ordered(said: str, rows: Sequence[tuple[str, Row]], target: int) -> Claim:
    times = [row.times[target] for _, row in rows]
    before = [_before(a, b, target) for (_, a), (_, b) in pairwise(rows)]
    holds = False if False in before else None if None in before else True
    error = f"{100 * times[0].target:.1f} %"
    found = ", ".join(
        f"{name} {'not reached' if one.median == inf else f'{one.median:.0f} C'}"
        for (name, _), one in zip(rows, times, strict=True)
    )
    overlap = holds is not None and any(a.least <= b.most and b.least <= a.most for a, b in pairwise(times))
    return Claim(said, holds, f"to {error}: {found}{'; ranges of seeds overlap' if overlap else ''}")


def _before(first: Row, second: Row, target: int) -> bool | None:
    """Whether the first row was sooner; None: it was not there when its runs ended, and neither was the other one by then."""
    a, b = first.times[target].median, second.times[target].median
    return None if a == inf and b > first.curves[0].times[-1] else a < b


def _figure_10a(simulate: Simulate) -> Shown:
    numbers = {"gamma_ramp": 0, "delta": 0.8}
    entries = (
        _SINGLE,
        Entry("gamma 0", "mpca-paper", {**numbers, "gamma": 0.0}),
        Entry("gamma 0.7", "mpca-paper", {**numbers, "gamma": 0.7}),
    )
    return _simulated(Conf(replace(_BASE, ratios=("ResNet-110",)), entries), simulate, lambda result: [
        _sooner(result, "without a ramp, extrapolation is slower at first", 0, "gamma 0", "gamma 0.7"),
        _sooner(result, "and is the faster one in the end", -1, "gamma 0.7", "gamma 0"),
    ])  # fmt: skip


def _figure_10c(simulate: Simulate) -> Shown:
    entries = (
        _SINGLE,
        Entry("none contested", "mpca-paper"),
        Entry("weighted", "mpca-paper", contested=3),
        Entry("unweighted", "mpca-paper", {"weighted": False}, contested=3),
    )
    return _simulated(Conf(replace(_BASE, ratios=("ResNet-34",)), entries), simulate, lambda result: [
        _sooner(result, "with three agents at half speed, weighting by tau is between both", -1, *(
            one.label for one in entries[1:]
        )),
    ])  # fmt: skip


def _figure_13(simulate: Simulate) -> Shown:
    model, counts = MODELS["ResNet-110"], (2, 4, 8)
    entries = (
        _SINGLE,
        Entry("sync", "sync", {"tau": model.sync_tau}),
        Entry("easgd", "easgd", {"tau": model.easgd_tau}),
        Entry("async-ps", "async-ps"),
        Entry("mpca-paper", "mpca-paper"),
    )

    def claims(result: Result) -> list[Claim]:
        grows = [(f"K = {row.agents}", row) for row in reversed(result.rows) if row.label == "mpca-paper"]
        order = [
            _sooner(result, said, -1, *labels, agents=8)
            for said, labels in (
                ("mpca before EASGD", ("mpca-paper", "easgd")),
                ("EASGD before sync", ("easgd", "sync")),
                ("sync before MXNet (here async-ps at the driver's port)", ("sync", "async-ps")),
                ("MXNet before one GPU", ("async-ps", "single")),
            )
        ]
        return [*order, _ordered("13c: more agents are faster", grows, -1)]

    return _simulated(Conf(replace(_BASE, agents=counts, ratios=(model.name,)), entries), simulate, claims)


def _figure_10b(_: Simulate) -> Shown:
    """Agents begin at one model, train alone for tau updates, and take the mean of one third of the model, or of all."""
    import numpy as np

    from mpca import data, models
    from mpca.models.stacked import Stack, one_thread
    from mpca.sim.science.batches import Batches

    one_thread()
    agents, shards, before, rate, seeds = 8, 3, 300, 0.003, range(10)
    taus = (1, 2, 5, 15, 25, 50, 90, 150, 300)
    train = data.load("mixture", "train", 0).tensors  # type: ignore[union-attr]
    test = data.load("mixture", "test", 0).tensors  # type: ignore[union-attr]
    start = Stack(partial(models.create, "mixture_mlp"), list(seeds), [rate] * len(seeds), "adam")
    first = Batches(train, 16, seeds, agents, 0)
    for _number in range(before):
        start.step(*first.take())
    stacks = [start.twin() for _agent in range(agents)]
    batches = [Batches(train, 16, seeds, agent, 0) for agent in range(agents)]
    edges = [start.runs * (start.elements * shard // shards) for shard in range(shards + 1)]

    def errors(flat: Any) -> float:
        return float(start.errors(flat, *test).mean())

    rows, done = [], 0
    for tau in taus:
        for stack, each in zip(stacks, batches, strict=True):
            for _number in range(tau - done):
                stack.step(*each.take())
        done = tau
        flats = np.empty((agents, edges[-1]), np.float32)
        for stack, flat in zip(stacks, flats, strict=True):
            stack.read(0, start.elements, flat)
        mean = flats.mean(axis=0)
        mixed = []
        for flat in flats:
            for a, b in pairwise(edges):
                one = flat.copy()
                one[a:b] = mean[a:b]
                mixed.append(errors(one))
        rows.append((tau, fmean(errors(flat) for flat in flats), errors(mean), fmean(mixed)))
    sheet = Sheet(
        f"{agents} agents, alone for tau updates: errors on the test split",
        ("tau", "own model", "mean of all", f"own, with one of {shards} shards replaced by the mean's"),
        tuple((f"{tau}", *(f"{100 * one:.1f} %" for one in each)) for tau, *each in rows),
        (
            f"Means of {len(seeds)} seeds. All agents begin at one model, after {before} updates. The paper's figure draws the "
            f"cause; what it leads to is measured here.",
        ),
    )
    names = ("own model", "mean of all", "one shard replaced")
    lines = {name: [(float(row[0]), row[1 + number]) for row in rows] for number, name in enumerate(names)}
    gaps = [mixed - own for _tau, own, _mean, mixed in rows]
    found = ", ".join(
        f"{100 * gap:+.1f} % at tau {row[0]}" for gap, row in zip(gaps, rows, strict=True) if row[0] in (5, 50, 300)
    )
    return Shown(
        [sheet],
        [Chart(sheet.title, "tau", lines, percent=True)],
        [
            Claim("a replaced shard makes a worse model", max(gaps) > 0, f"error over the own model's: {found}"),
            Claim("the more so, the longer agents were alone", gaps[-1] > max(0.0, gaps[2]), found),
        ],
    )


#: Those of figure 4's tau that a training of minutes can have, without one that lies close to its neighbours.
_TAUS = tuple(tau for tau in SPARKNET_TAUS if tau <= 500 and tau != 2)


def _free(agents: tuple[int, ...], simulate: Simulate) -> tuple[Result, dict[tuple[int, int], float]]:
    """Figure 3's squares: updates of one machine over parallel updates, to the last target."""
    shared = replace(
        _BASE, agents=agents, ratios=("0.001",), step=10.0, transport="relay", optimizer="nesterov", rates=(0.01, 0.09),
        trials=3, rounds=0, updates=900, single_updates=1600, points=100, spread=0.0,
    )  # fmt: skip
    conf = Conf(shared, (_SINGLE, *(Entry(f"tau = {tau}", "sync", {"tau": tau}) for tau in _TAUS)))
    result = result_of(conf, simulate(conf))
    alone = next(row for row in result.rows if row.alone).times[-1].updates
    rounds = {
        (row.agents, row.method["tau"]): row.times[-1].updates / row.method["tau"]
        for row in result.rows
        if not row.alone and row.times[-1].updates < inf
    }
    return result, {(1, tau): 1.0 for tau in _TAUS} | papers.figure_3(alone, rounds)


def _noted(sheet: Sheet, result: Result) -> Sheet:
    shared = result.conf.shared
    edges = [f"{row.label}, K = {row.agents}" for row in result.rows if row.edges]
    said = (
        f"{shared.task}, batch {shared.batch}, {shared.optimizer}, to an error of {100 * result.targets[-1]:.1f} %: medians of "
        f"{shared.seeds} seeds; each square's rate is chosen on {shared.tuning_seeds} other seeds. K = 1 is 1 by definition. "
        f"-: not reached in {shared.updates} updates. Updates are counted, no network."
        + (f" The best rate lay at the edge of the grid: {'; '.join(edges)}." if edges else ""),
    )
    return replace(sheet, notes=(*sheet.notes, *said))


def _sparknet_3(simulate: Simulate) -> Shown:
    agents = (2, 5)
    result, free = _free(agents, simulate)
    lines = {
        f"K = {count}": [(log10(tau), gain) for (k, tau), gain in sorted(free.items()) if k == count] for count in (1, *agents)
    }
    often, seldom = (free.get((5, tau), 0.0) for tau in (1, _TAUS[-1]))
    least, most = free.get((2, 1), 0.0), free.get((5, 1), 0.0)
    at = {k: -max((gain, -tau) for (count, tau), gain in free.items() if count == k)[1] for k in agents}
    most_at = ", ".join(f"K = {k}: tau = {tau}" for k, tau in at.items())
    return Shown(
        [_noted(papers.figure_3_sheet(free), result)],
        [Chart("Speed-up if communication cost nothing", "tau", lines, log=True)],
        [
            Claim(
                "at tau = 1 the speed-up grows with K, less than K", least < most < 5, f"K = 2: {least:.2f}, K = 5: {most:.2f}"
            ),
            Claim("modest delays can be better than tau = 1", max(at.values()) > 1, f"best at {most_at}"),
            Claim(
                "long rounds lose some of it",
                seldom < often,
                f"tau = {_TAUS[-1]}: {f'{seldom:.2f}' if seldom else 'not reached'}, tau = 1: {often:.2f} (K = 5)",
            ),
        ],
    )


def _sparknet_4(simulate: Simulate) -> Shown:
    agents = 5
    result, free = _free((agents,), simulate)
    row = {tau: gain for (count, tau), gain in free.items() if count == agents}
    overheads = [10 ** (one / 4) for one in range(-12, 9)]
    points = papers.figure_4(row, agents, overheads)
    lines = {
        "naive": [(log10(overhead), naive) for overhead, naive, *_ in points],
        "SparkNet": [(log10(overhead), best) for overhead, _, best, _ in points],
    }
    ((_, naive, best, tau),) = papers.figure_4(row, agents, (100.0,))
    return Shown(
        [_noted(papers.figure_4_sheet(row, agents), result)],
        [Chart(f"Speed-up over one machine, K = {agents}", "S / C", lines, log=True)],
        [
            Claim("naive parallelisation gains nothing at S / C = 1", papers.naive_speedup(agents, 1) < 1, "by the formula"),
            Claim("SparkNet does even at S / C = 100", best > 1 > naive, f"{best:.2f} at tau = {tau}, naive {naive:.2f}"),
        ],
    )


_MPCA = "MPCA SGD (Langer, Hall, He, Rahayu 2018)"
_NET = "a 7 k MLP on the computed mixture, in the simulator with real gradients"
#: By their names on the command line.
FIGURES: dict[str, Figure] = {
    "9": Figure(
        f"{_MPCA}, section 4.2, figure 9",
        "Simulated: driver and agents in virtual time, exchanges by formulas of Spark's tree and torrent; nothing is trained.",
        untrained.figure_9,
    ),
    "10a": Figure(
        f"{_MPCA}, section 4.3, figure 10a",
        f"Simulated: {_NET}, b/C and exchange times of ResNet-110 by the formula of Table 1; the paper trained ResNet-110.",
        _figure_10a, "10a",
    ),
    "10b": Figure(
        f"{_MPCA}, section 4.4, figure 10b", "Trained here: a 7 k MLP on the computed mixture, without a network.", _figure_10b
    ),
    "10c": Figure(
        f"{_MPCA}, section 4.6, figure 10c",
        f"Simulated: {_NET}, b/C and exchange times of ResNet-34 by the formula of Table 1; the paper trained ResNet-34.",
        _figure_10c, "10c",
    ),
    "13": Figure(
        f"{_MPCA}, section 7.1, figure 13 (a, b: K = 8; c: K = 2 and 4 too)",
        f"Simulated: {_NET}, b/C and exchange times of ResNet-110 by the formula of Table 1; the paper trained ResNet-110. Its "
        f"MXNet, a slice of the server on each agent, is async-ps at the driver's port here.",
        _figure_13, "13",
    ),
    "table1": Figure(
        f"{_MPCA}, section 3.1.2, Table 1", "The paper's numbers beside formulas; nothing is simulated.", untrained.table_1
    ),
    "table2": Figure(
        f"{_MPCA}, section 7.3, Table 2",
        "Times are the paper's, the rest is by the formulas of the table of costs; nothing is simulated.",
        untrained.table_2,
    ),
    "sparknet-3": Figure(
        "SparkNet (Moritz, Nishihara, Stoica, Jordan 2016), section 3.1.2, figure 3",
        f"Simulated: {_NET}; the paper trained AlexNet on a part of ImageNet.",
        _sparknet_3, "sparknet",
    ),
    "sparknet-4": Figure(
        "SparkNet (Moritz, Nishihara, Stoica, Jordan 2016), section 3.1.2, figure 4",
        f"By equations 1 and 2 from a simulated row of figure 3: {_NET}; the paper trained AlexNet on a part of ImageNet.",
        _sparknet_4, "sparknet",
    ),
    "deepspark": Figure(
        "DeepSpark (Kim, Park, Jang, Yoon 2016), section 5.2, equation 3",
        "The formula with the paper's own numbers; nothing is simulated.",
        untrained.deepspark,
    ),
}  # fmt: skip
