"""What does not change during a run, as the driver's state machine needs it; only an "auto" number of shards does, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mpca.driver.objectives import Goals
from mpca.methods.base import Method
from mpca.wire.orders import BY_UPDATES, EQUAL

__all__ = ["RunShape"]


@dataclass(frozen=True, slots=True)
class RunShape:
    """What does not change during a run. Times are in seconds."""

    run: str
    term: int  # of the driver, one more at each attempt
    shards: int
    phases: int
    exchanges: bool  # False: the method reads models but never broadcasts (single)
    min_agents: int
    deadline_s: float  # of a cycle
    start_timeout_s: float
    waits_for_shard: bool = False  # a shard that is being downloaded is frozen only after all have acknowledged it
    weights: str = BY_UPDATES  # how much a snapshot counts in a mean
    holds: bool = False  # agents wait for each joint state
    auto_shards: bool = False  # S is decided when x_0 is known, by `cutting.Cutting`; `shards` is where it begins
    first_cycle: int = 0
    finish_s: float = 300.0  # for what train functions do behind their loop, after a stop
    saves_to: str = ""  # URL of the backups, for Hadoop's client, if agents' own states belong to them
    norm_limit: float = 0.0  # of `norms.NormLimit`; 0: none
    resumed: bool = False  # the joint model comes from a backup; x_0 is not read
    goals: Goals = field(default_factory=Goals)  # the machine begins no cycle after the last; the shell looks at the others
    data: dict[str, Any] = field(default_factory=dict)  # where the attempt of that backup was in the data
    shard_hosts: tuple[tuple[str, ...], ...] = ()  # hosts of each shard of the data; empty: not on HDFS
    numbers: Callable[[int], tuple[float, float]] = lambda version: (1.0, 0.0)  # beta, gamma of a version
    #: alpha that goes with a joint state, from the mean tau of its contributors and their number
    alpha_for: Callable[[float, int], float] = lambda tau, agents: 0.0

    @classmethod
    def of(cls, method: Method, **rest: Any) -> RunShape:
        """The shape of a run of this method.

        Args:
            method: gives the fields that are the method's.
            rest: all other fields.
        """
        return cls(
            shards=method.shards,
            phases=method.phases,
            auto_shards=method.auto_shards,
            exchanges=method.exchanges,
            waits_for_shard=method.agent_side.waits_for_shard,
            weights=BY_UPDATES if method.weighted else EQUAL,
            holds=method.agent_side.holds,
            numbers=method.numbers,
            alpha_for=method.alpha_for,
            **rest,
        )
