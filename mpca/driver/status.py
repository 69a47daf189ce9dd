"""What a run says about itself while it runs: one plain value, which the runner makes and a display draws.

A status is not a record (`mpca.records` is what is kept) and not the driver's state (`driver.cycle` decides): a reader may
drop any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["RunStatus"]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One look at the run. Everything that is not known yet is None."""

    seconds: float  # since the run began
    state: str = "training"  # "starting", "training", "paused", "stopping"
    reason: str = ""  # why the run is in that state, e.g. "2/4 agents, waiting for min_agents=3"
    cycle: int = 0  # cycles that were committed; where agents ask by themselves: exchanges
    counts: str = "cycle"  # what `cycle` counts, or "exchange"
    evaluations: int = 0  # how many there have been; a log writes one line for each
    error: float | None = None  # newest evaluation of the joint model, share of wrong answers in [0, 1]
    loss: float | None = None
    logged: tuple[str, float] | None = None  # the metric that agents logged first, and its mean over them
    target_error: float = 0.0  # 0: none
    evaluated: Sequence[tuple[str, float]] = ()  # other numbers of that evaluation that matter
    targets: Sequence[str] = ()  # by other metrics, such as "accuracy >= 0.97"
    images_per_s: float | None = None  # samples of all agents over the last seconds; None also when no agent counts them
    updates_per_s: float | None = None  # optimiser updates of all agents over the last seconds
    tau: float | None = None  # mean updates of an agent between the last two refreshes of one shard
    agents_alive: int = 0
    agents_wanted: int = 0
    seconds_left: float | None = None  # until max_time; None: no such limit
