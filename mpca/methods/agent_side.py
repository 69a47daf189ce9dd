"""The agent's side of a method: how a joint state changes an agent's model, and when.

The agent, its trainer, the driver and the simulator ask a method nothing else about it. One exchange of a shard, as its agent
sees it (| is between two batches)::

    updates ... | BEFORE_SNAPSHOT, snapshot, AFTER_SNAPSHOT | update | update | ON_ARRIVAL | update ...

and one update is: pull (`How.PULL`), gradient, tilt (`How.TILT`), step of the optimiser.

A further rule is one more value here, and one more case in `install` of `agent.torch_trainer` and `sim.trainers`: mypy names a
`match` that lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mpca.algorithm import alpha_at

__all__ = ["AgentSide", "How", "When"]


class How(Enum):
    """What an arrived joint state of a shard does to the agent's own state of it.

    x_0, the joint state for an agent that joins, and one that replaces parameters which are not finite are always taken as with
    REPLACE (`wire.messages.Install`).
    """

    PULL = "pull"  # it becomes the target that pulls the parameters before every gradient (eq. 7)
    REPLACE = "replace"  # the agent takes it as its own, buffers included; its updates since the snapshot are lost
    TILT = "tilt"  # it becomes the target towards which every gradient is tilted (eq. 6)
    MIX = "mix"  # the parameters move a share of the way to it, once: eq. 7 at the moment when it is applied
    CORRECT = "correct"  # the agent adds what it has beyond the snapshot that it answers (`algorithm.penalty.correct`)


class When(Enum):
    """When the agent applies it."""

    BEFORE_SNAPSHOT = "before snapshot"  # at the agent's next exchange, of whichever shard; the snapshot contains it
    AFTER_SNAPSHOT = "after snapshot"  # at the agent's next exchange too; the snapshot does not contain it
    ON_ARRIVAL = "on arrival"  # between any two batches


@dataclass(frozen=True)
class AgentSide:
    """How and when an agent applies a joint state, and whether it waits for one.

    Raises:
        ValueError: CORRECT with AFTER_SNAPSHOT, which never damps (`algorithm.penalty.correct`); a number is negative; or
            two of `hold_after`, `hold_s` and `snapshot_after` are given.

    Example:
        >>> side = AgentSide(How.PULL, When.ON_ARRIVAL, alpha_start=0.5, alpha_decay=0.7)
        >>> side.penalty(0.1, age=1), side.penalty(0.1, age=None), side.waits_for_shard
        (0.35, 0.1, False)
    """

    how: How = How.PULL
    when: When = When.AFTER_SNAPSHOT
    hold_after: int = 0
    """0: the agent never waits. n: it exchanges after every n updates, in step with the others: it answers a SnapshotRequest
    when it has made exactly n updates since its last joint state (or since x_0), then makes none until the next is applied."""
    hold_s: float = 0.0
    """As `hold_after`, but it holds after the update that ends this many seconds or more after its last joint state."""
    snapshot_after: int = 0
    """0: the agent answers a SnapshotRequest at once. n: when it has made n updates or more since its last snapshot (or since
    x_0). It goes on training before and after. Not with `hold_after`."""
    resets_optimizer: bool = False
    """With REPLACE: whether the optimiser's state begins anew with each joint state."""
    alpha_start: float = 0.0
    """With PULL or TILT: alpha at the agent's version 1 of a shard; 0: no stronger pull at the beginning (section 6.3)."""
    alpha_decay: float = 0.0
    """With PULL or TILT: factor by which that alpha falls at each update, down to the driver's."""
    decay_by_version: bool = False
    """With PULL or TILT: that alpha falls at each version of the shard instead."""

    def __post_init__(self) -> None:
        if self.how is How.CORRECT and self.when is When.AFTER_SNAPSHOT:
            raise ValueError("a delay-corrected joint state must be applied before the next snapshot")
        if self.hold_after < 0:
            raise ValueError(f"hold_after must be 0 or more: {self.hold_after}")
        if self.hold_s < 0 or (self.hold_s and self.hold_after):
            raise ValueError(f"hold_s must be 0 or more, and 0 with hold_after: {self.hold_s}")
        if self.snapshot_after < 0 or (self.snapshot_after and self.holds):
            raise ValueError(f"snapshot_after must be 0 or more, and 0 with hold_after: {self.snapshot_after}")

    @property
    def holds(self) -> bool:
        """Whether the agent waits for each joint state."""
        return self.hold_after > 0 or self.hold_s > 0

    @property
    def waits_for_shard(self) -> bool:
        """Whether the next snapshot of a shard must wait until its last joint state has come to all agents.

        It is so if the agent applies the joint state at that very exchange, or if the joint state answers the snapshot before.
        """
        return self.when is not When.ON_ARRIVAL or self.how is How.CORRECT

    def penalty(self, alpha: float, age: int | None) -> float:
        """alpha of eq. 7 before the next gradient, or of eq. 6 after it, of an agent.

        Args:
            alpha: the driver's `alpha_for`, which came with the installed joint state.
            age: this agent's updates since it installed version 1 of the shard, or versions since then (`decay_by_version`);
                None: it began at a later version.
        """
        return alpha_at(age, alpha, self.alpha_start, self.alpha_decay)
