"""Events and instructions of the agent's state machine.

The executor's messages (`Begin`, `SnapshotRequest`, `Install`, `ReadersChanged`, `Stop` of `wire.messages`) are events too; all
other events are here. They are named tuples, since they are made at every optimiser update, and millions of times by the
simulator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "STEPPED",
    "Ask",
    "Attached",
    "CloseOwn",
    "CutAnew",
    "EndGroup",
    "LinkLost",
    "Publish",
    "Raised",
    "Release",
    "ResetOptimizer",
    "Returned",
    "SaveOwn",
    "SayFailed",
    "SayFinished",
    "SayHello",
    "SayProgress",
    "Stepped",
    "StopSeen",
    "Take",
    "TakeReaders",
]

# ---- events --------------------------------------------------------------------------------------------------------


class Attached(NamedTuple):
    """The user's function called `attach`: model and optimiser are known."""

    local: bool = False  # the model has tensors that stay local


class Stepped(NamedTuple):
    """The optimiser completed updates. A method that holds, or asks by itself, gets them one at a time."""

    updates: int = 1
    loss: float = 0.0  # that was logged for it; of a method that asks by the losses


class Returned(NamedTuple):
    """The user's function returned."""

    returns: bytes


class Raised(NamedTuple):
    """The user's function raised."""

    error: str
    traceback: str


class StopSeen(NamedTuple):
    """The train function knows that the run is ending: its iterator has ended, or `mpca.stopping()` returned True."""


class LinkLost(NamedTuple):
    """End of file: the executor is gone."""


#: The event of every update, made once.
STEPPED = Stepped()

# ---- instructions: the loop carries all of them out at once, between two batches, in their order -------------------


class SayProgress(NamedTuple):
    """Send Progress now, since `function` has changed."""


class SayHello(NamedTuple):
    """Send Hello."""


class CutAnew(NamedTuple):
    """Cut the model into so many shards: a new trainer, a new segment, and a new Hello for both. SayHello follows."""

    shards: int


class Publish(NamedTuple):
    """Copy the shard into the snapshot slot, then send Snapshot."""

    cycle: int
    shard: int
    updates: int  # tau


class Ask(NamedTuple):
    """Fill the snapshot slot with what the method sends of the shard, then send Exchange."""

    number: int
    shard: int
    updates: int  # tau
    version: int


class Take(NamedTuple):
    """Give the arrived shard to the trainer (`Trainer.install`), then send Installed.

    `share`: pull once by it if it is not 0; with `How.EAGER` that of `agent.eager`.
    """

    shard: int
    version: int
    mode: str
    share: float = 0.0


class TakeReaders(NamedTuple):
    """Give the data stream the new list of readers."""

    readers: dict[str, Any]


class Release(NamedTuple):
    """Send Installed without reading the arrived shard: a newer one is installed already."""

    shard: int
    version: int
    mode: str


class ResetOptimizer(NamedTuple):
    """Reset the optimiser to its state at `attach`: its moments belong to parameters that were replaced."""


class SaveOwn(NamedTuple):
    """Copy what is this agent's own into memory, then send StateSaved. An `error` is sent in its place."""

    number: int
    error: str = ""


class CloseOwn(NamedTuple):
    """Close the memory of this number: the executor has it open."""

    number: int


class SayFinished(NamedTuple):
    """Send a last Progress, then Finished; exit with code 0."""

    returns: bytes


class SayFailed(NamedTuple):
    """Send a last Progress, then Failed; exit with code 1."""

    error: str
    traceback: str


class EndGroup(NamedTuple):
    """Kill the agent's process group, including the agent and its data workers."""
