"""The agent's side of a method: how a joint state changes an agent's model, and when.

The agent, its trainer, the driver and the simulator ask a method nothing else about it. One exchange of a shard, as its agent
sees it (| is between two batches)::

    updates ... | BEFORE_SNAPSHOT, snapshot, AFTER_SNAPSHOT | update | update | ON_ARRIVAL | update ...

and one update is: pull (`How.PULL`), gradient, tilt (`How.TILT`), step of the optimiser. An agent that asks by itself
(`AgentSide.asks`) exchanges when its updates are made, and waits::

    updates ... | what it `Sends` | waits | the answer, as `How` says | update ...

A further rule is one more value here, and one more case in `install` of `agent.torch_trainer` and `sim.trainers`: mypy names a
`match` that lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mpca.algorithm import Outer, alpha_at

__all__ = ["AgentSide", "How", "Sends", "Threshold", "When"]


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
    EAGER = "eager"  # nothing until the next snapshot, at which the agent makes a step of its own from it (`algorithm.outer`)


class When(Enum):
    """When the agent applies it."""

    BEFORE_SNAPSHOT = "before snapshot"  # at the agent's next exchange, of whichever shard; the snapshot contains it
    AFTER_SNAPSHOT = "after snapshot"  # at the agent's next exchange too; the snapshot does not contain it
    ON_ARRIVAL = "on arrival"  # between any two batches


class Sends(Enum):
    """What an agent that asks by itself sends of a shard. Buffers are sent as they are, whatever is sent of the parameters."""

    STATE = "state"  # its own state
    CHANGE = "change"  # what changed since the joint state that it took last, or since x_0
    THRESHOLD = "threshold"  # that change and the residual, coded as 0 or a threshold with a sign; the rest is the new residual


@dataclass(frozen=True)
class Threshold:
    """How a change is coded (`algorithm.threshold`), and how the threshold adapts to the share of elements that are sent."""

    start: float
    least: float = 0.0
    """The threshold falls when a smaller share than this was sent."""
    most: float = 1.0
    """The threshold grows when a larger share than this was sent."""
    decay: float = 0.95
    """Factor by which it falls, or its inverse by which it grows."""
    clip: float = 0.0
    """What is left is cut off at this many thresholds; 0: never."""


@dataclass(frozen=True)
class AgentSide:
    """How and when an agent applies a joint state, whether it waits for one, and whether it asks by itself.

    Raises:
        ValueError: CORRECT with AFTER_SNAPSHOT, which never damps (`algorithm.penalty.correct`), or EAGER with it; a number is
            negative; or two of `hold_after`, `hold_s`, `snapshot_after` and `asks_after` are given.

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
    asks_after: int = 0
    """0: the driver asks. n: the agent asks by itself after every n updates, for one shard after the other. It waits for the
    answer. Not with `hold_after` or `snapshot_after`."""
    asks_at_loss: float = 0.0
    """With `asks_after`: it asks before that when the losses that the train function logs add up to more than this since it
    asked last; 0: it does not."""
    sends: Sends = Sends.STATE
    """With `asks_after`: what it sends."""
    threshold: Threshold | None = None
    """With Sends.THRESHOLD: how it is coded."""
    outer: Outer | None = None
    """With EAGER: the outer optimiser that the agent has beside the driver."""
    resets_optimizer: bool = False
    """With REPLACE: whether the optimiser's state begins anew with each joint state."""
    exchanges_optimizer: bool = False
    """With REPLACE: whether the optimiser's state is exchanged too, behind the buffers, so that the joint state has it."""
    alpha_start: float = 0.0
    """With PULL or TILT: alpha at the agent's version 1 of a shard; 0: no stronger pull at the beginning (section 6.3)."""
    alpha_decay: float = 0.0
    """With PULL or TILT: factor by which that alpha falls at each update, down to the driver's."""
    decay_by_version: bool = False
    """With PULL or TILT: that alpha falls at each version of the shard instead."""

    def __post_init__(self) -> None:
        if self.answers and self.when is When.AFTER_SNAPSHOT:
            raise ValueError(f"a joint state must be applied before the next snapshot: how={self.how}")
        if (self.how is How.EAGER) != (self.outer is not None):
            raise ValueError(f"an outer optimiser is given with How.EAGER, and only then: how={self.how}")
        if self.hold_after < 0:
            raise ValueError(f"hold_after must be 0 or more: {self.hold_after}")
        if self.hold_s < 0 or (self.hold_s and self.hold_after):
            raise ValueError(f"hold_s must be 0 or more, and 0 with hold_after: {self.hold_s}")
        if self.snapshot_after < 0 or (self.snapshot_after and self.holds):
            raise ValueError(f"snapshot_after must be 0 or more, and 0 with hold_after: {self.snapshot_after}")
        if self.asks_after < 0 or (self.asks_after and (self.holds or self.snapshot_after)):
            raise ValueError(f"asks_after must be 0 or more, and 0 with hold_after or snapshot_after: {self.asks_after}")
        if not self.asks and (self.sends is not Sends.STATE or self.asks_at_loss):
            raise ValueError("sends and asks_at_loss are only for an agent that asks by itself: asks_after is 0")
        if self.exchanges_optimizer and (self.how is not How.REPLACE or self.resets_optimizer or self.sends is not Sends.STATE):
            raise ValueError("an optimiser's state is exchanged only where a joint state replaces the agent's own, and stays")
        if self.sends is not Sends.STATE and self.how is not How.REPLACE:
            raise ValueError("a change is since the joint state that the agent took last as its own: sends needs How.REPLACE")
        if (self.sends is Sends.THRESHOLD) != (self.threshold is not None):
            raise ValueError(f"a threshold is given with Sends.THRESHOLD, and only then: sends={self.sends}")

    @property
    def holds(self) -> bool:
        """Whether the agent waits for each joint state."""
        return self.hold_after > 0 or self.hold_s > 0

    @property
    def asks(self) -> bool:
        """Whether the agent asks for exchanges by itself."""
        return self.asks_after > 0

    @property
    def waits_for_shard(self) -> bool:
        """Whether the next snapshot of a shard must wait until its last joint state has come to all agents.

        It is so if the agent applies the joint state at that very exchange, or if the joint state answers the snapshot before.
        """
        return self.when is not When.ON_ARRIVAL or self.answers

    @property
    def answers(self) -> bool:
        """Whether a joint state answers the agent's snapshot before, so that no other may lie between."""
        return self.how in (How.CORRECT, How.EAGER)

    def penalty(self, alpha: float, age: int | None) -> float:
        """alpha of eq. 7 before the next gradient, or of eq. 6 after it, of an agent.

        Args:
            alpha: the driver's `alpha_for`, which came with the installed joint state.
            age: this agent's updates since it installed version 1 of the shard, or versions since then (`decay_by_version`);
                None: it began at a later version.
        """
        return alpha_at(age, alpha, self.alpha_start, self.alpha_decay)
