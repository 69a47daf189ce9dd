"""The tables and figures that need no training: by formulas of `sim/papers.py`, or a schedule in virtual time."""

from __future__ import annotations

from math import log10
from statistics import fmean

from mpca.sim import papers
from mpca.sim.compare.figure_types import Bars, Chart, Claim, Shown, Simulate
from mpca.sim.papers import MODELS
from mpca.sim.sheet import Sheet
from mpca.units import format_duration

__all__ = ["deepspark", "figure_9", "table_1", "table_2"]


def table_1(_: Simulate) -> Shown:
    models = sorted(MODELS.values(), key=lambda one: one.b_s)
    fixed, slope = papers.exchange_line()
    measured = [(one.b_s, one.exchange_s) for one in models]
    line = [(0.0, fixed), (models[-1].b_s, fixed + slope * models[-1].b_s)]
    worst = max(models, key=lambda one: abs(fixed + slope * one.b_s - one.exchange_s))
    off = fixed + slope * worst.b_s - worst.exchange_s
    suggested = all(round(5 * one.exchange_s / one.step_s) == one.tau for one in models)
    return Shown(
        [papers.table_1()],
        [Chart("Seconds of an exchange", "b: seconds to send the model once", {"paper": measured, "formula": line})],
        [
            Claim("exchanges grow with the model", abs(off) < 0.2, f"the formula is off by {off:.2f} s at most ({worst.name})"),
            Claim("tau is five exchanges", suggested, "the paper's own tau, rounded" if suggested else "another tau"),
        ],
    )


def table_2(_: Simulate) -> Shown:
    charts = []
    for name in dict.fromkeys(one.model for one in papers.TRAINED):
        rows = [one for one in papers.TRAINED if one.model == name]
        lines = {
            method: [(100 * one.error, gain) for one in rows if (gain := one.speedup(method)) is not None]
            for method in ("sync", "easgd", "mxnet", "mpca")
        }
        charts.append(Chart(f"{name}: times as fast as one GPU, as printed in the paper", "error, %", lines))
    claims = []
    for (model, method), share in papers.COMPUTING.items():
        found = papers.table_2_cost(MODELS[model], method).utilisation
        said = f"{model}, {method}: {100 * share:.0f} % of the time computing"
        claims.append(Claim(said, abs(found - share) <= 0.025, f"{100 * found:.0f} % by the formula"))
    return Shown([papers.table_2()], charts, claims)


def deepspark(_: Simulate) -> Shown:
    taus = [10 ** (one / 4) for one in range(4, 21)]
    line = [(log10(tau), papers.deepspark_speedup(16, round(tau), papers.DISCREPANCY[500], 10)) for tau in taus]
    limit = papers.deepspark_bound(16, papers.DISCREPANCY[500])
    chart = Chart(
        "Equation 3 over tau, with d of tau = 500", "tau", {"speed-up": line, "its limit": [(1, limit), (5, limit)]}, log=True
    )
    best = max(papers.deepspark_speedup(16, tau, d, 10) for tau, d in papers.DISCREPANCY.items())
    claim = Claim(
        "16 agents were 2.5 times as fast as one machine", best >= 2, f"equation 3 gives {best:.2f} with its own S / C"
    )
    return Shown([papers.deepspark_sheet()], [chart], [claim])


# ---- a schedule ----


def figure_9(_: Simulate) -> Shown:
    from mpca.sim.run import Scenario, simulate
    from mpca.sim.table_costs import TableCosts
    from mpca.sim.transports import Setting, Tree

    agents, shards, forever = 3, 3, 1e9
    model = MODELS["VGG-A"]
    at = Setting(agents, model.size_bytes, model.step_s, papers.GIGABIT)
    scenario = Scenario(
        agents=agents, min_agents=agents, method={"name": "mpca-paper"}, cycles=12, parameters=24, buffers=0,
        costs=TableCosts.of(at, Tree(), shards, shards, 24, 0.1),
        deadline_s=forever, start_timeout_s=forever, finish_s=forever, patience_s=forever,
    )  # fmt: skip
    commits = simulate(scenario, seed=0).commits[-6:]
    lanes = ("broadcast", "prepare", "reduce", *(f"agent {agent}" for agent in range(agents)))
    start = min(commits[0].stages[one]["start"] for one in ("broadcast", "reduce"))
    end = commits[-1].t
    bars: list[tuple[int, float, float, int | None, str]] = []
    pauses: dict[int, list[tuple[float, float]]] = {agent: [] for agent in range(agents)}
    for commit in commits:
        for name, stage in commit.stages.items():
            if stage["end"] > start:
                bars.append((lanes.index(name), stage["start"] - start, stage["end"] - start, int(stage["shard"]), ""))
        for agent, (first, last) in commit.pauses.items():
            pauses[agent].append((max(first, start), last))
    stood = 0.0
    for agent, several in pauses.items():
        before = start
        for first, last in [*sorted(several), (end, end)]:
            bars.append((lanes.index(f"agent {agent}"), before - start, first - start, None, "computes"))
            before, stood = last, stood + last - first
    rows = []
    for commit in commits:
        reduce, broadcast = commit.stages["reduce"], commit.stages["broadcast"]
        tau = " / ".join(str(commit.contributors[agent]["tau"]) for agent in range(agents))
        spans = (f"{stage['start'] - start:.1f} to {stage['end'] - start:.1f}" for stage in (reduce, broadcast))
        rows.append((f"{commit.cycle}", f"{reduce['shard']:.0f}", f"{broadcast['shard']:.0f}", *spans, tau))
    both = [
        min(one.stages["reduce"]["end"], one.stages["broadcast"]["end"])
        - max(one.stages["reduce"]["start"], one.stages["broadcast"]["start"])
        for one in commits
    ]
    share = 1 - stood / (agents * (end - start))
    sheet = Sheet(
        f"{agents} agents, {shards} phases, {model.name} at 1 Gbit/s: stages in seconds",
        ("cycle", "shard up", "shard down", "reduce", "broadcast", "tau of the agents"),
        tuple(rows),
        (f"An exchange of a shard comes every {format_duration((end - start) / len(commits) * shards)}.",),
    )
    return Shown(
        [sheet],
        [Bars("Stages of six cycles, and what the agents do", lanes, tuple(bars))],
        [
            Claim("one shard is reduced while another one is broadcast", min(both) > 0, f"{fmean(both):.1f} s of a cycle"),
            Claim("agents compute but for brief moments", share > 0.95, f"{100 * share:.1f} % of the time"),
        ],
    )
