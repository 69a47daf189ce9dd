"""What the agent's state machine is told, and what it says to do.

The executor's words (`Begin`, `SnapshotRequest`, `Install`, `Members`, `Stop` of `wire.messages`) are events as they come; the
rest is here. All are named tuples: they are made at every optimiser update, and by the simulator millions of times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "STEPPED",
    "Attached",
    "EndGroup",
    "LinkLost",
    "Publish",
    "Raised",
    "Release",
    "ResetOptimizer",
    "Returned",
    "SayFailed",
    "SayFinished",
    "SayHello",
    "SayProgress",
    "Stepped",
    "StopSeen",
    "Take",
    "TakeMembers",
]

# ---- events --------------------------------------------------------------------------------------------------------


class Attached(NamedTuple):
    """The user's function called `attach`: model and optimiser are known."""

    local: bool = False  # the model has tensors that stay local


class Stepped(NamedTuple):
    """The optimiser completed updates. With a method that holds, one at a time."""

    updates: int = 1


class Returned(NamedTuple):
    """The user's function returned."""

    returns: bytes


class Raised(NamedTuple):
    """The user's function raised."""

    error: str
    traceback: str


class StopSeen(NamedTuple):
    """The train function knows that it is to stop: its iterator has ended, or `mpca.stopping()` said so."""


class LinkLost(NamedTuple):
    """End of file: the executor is gone."""


#: The event of every update, made once.
STEPPED = Stepped()

# ---- instructions: all are carried out at once, between two batches, in the order given ----------------------------


class SayProgress(NamedTuple):
    """Send Progress now: where the user's function is has changed."""


class SayHello(NamedTuple):
    """Send Hello."""


class Publish(NamedTuple):
    """Copy the shard into the snapshot slot, then send Snapshot."""

    cycle: int
    shard: int
    updates: int  # tau


class Take(NamedTuple):
    """Give the arrival to the trainer (`Trainer.install`), then send Installed."""

    shard: int
    version: int
    mode: str


class TakeMembers(NamedTuple):
    """Tell the data stream who reads from now on."""

    members: dict[str, Any]


class Release(NamedTuple):
    """Send Installed without looking at the arrival: a newer one is installed already."""

    shard: int
    version: int
    mode: str


class ResetOptimizer(NamedTuple):
    """Put the optimiser's state back to what it was at `attach`: its moments are of parameters that were thrown away."""


class SayFinished(NamedTuple):
    """Send a last Progress, then Finished; leave with exit code 0."""

    returns: bytes


class SayFailed(NamedTuple):
    """Send a last Progress, then Failed; leave with exit code 1."""

    error: str
    traceback: str


class EndGroup(NamedTuple):
    """Kill the agent's process group, itself and its data workers included."""
