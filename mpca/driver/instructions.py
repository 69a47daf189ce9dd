"""What the driver's state machine asks its shell to do.

The shell (`runner.py` in production, the same runner over virtual time in the simulator) carries each instruction out and feeds
the named event back. Times are seconds of the machine's clock (`now`), on all hosts of the cluster. Lengths are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mpca.driver.events import ExchangeArrived
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Order

__all__ = [
    "AdoptInitial",
    "CancelOrder",
    "CutJoint",
    "CutOff",
    "End",
    "Instruction",
    "Prepare",
    "PublishJoint",
    "Rediscover",
    "SaveJoint",
    "Serve",
    "StartAgent",
    "SubmitOrder",
    "Withdraw",
    "Write",
]


@dataclass(frozen=True, slots=True)
class StartAgent:
    """Start the agent, or take hold of its process again if that lives."""

    who: AgentRef


@dataclass(frozen=True, slots=True)
class SubmitOrder:
    order: Order


@dataclass(frozen=True, slots=True)
class CancelOrder:
    order: int
    reason: str


@dataclass(frozen=True, slots=True)
class AdoptInitial:
    """Take the sum of `order` as x_0 of `shard`, or as local tensors. Answer: Initial."""

    order: int
    shard: int
    length: int


@dataclass(frozen=True, slots=True)
class CutJoint:
    """Cut x_0 into another number of shards, and start agents with that from now on. The next Hello says where the cuts are."""

    shards: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Blend the sum of `order` into the joint model, extrapolate, publish. Answer: Prepared."""

    order: int
    cycle: int
    shard: int
    length: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Answer an agent's exchange. Answer: ExchangeServed."""

    sent: ExchangeArrived
    take: bool  # take in what was sent; else the agent gets the joint state as it is
    reason: str = ""  # why it cannot be taken in: then the joint state replaces the agent's own


@dataclass(frozen=True, slots=True)
class PublishJoint:
    """Publish the joint state of every shard for agents that join. Answer: JointPublished."""


@dataclass(frozen=True, slots=True)
class SaveJoint:
    """The joint model is what agents' files will belong to: take it as it is now. AgentSaved follows for each agent.

    It comes once more, with the same number, when the order that tells agents goes out again.
    """

    number: int  # of the Save
    files: dict[AgentRef, str]  # names of the files, in `storage.hidden_folder`


@dataclass(frozen=True, slots=True)
class Withdraw:
    broadcast: int


@dataclass(frozen=True, slots=True)
class Rediscover:
    """Ask these executors which agents live. Answers: one AgentsFound from each."""

    executors: list[str]


@dataclass(frozen=True, slots=True)
class Write:
    """A record for the run folder. Its times are seconds of the machine; the shell turns them into `t`."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CutOff:
    """A train function that was told to stop and did not return."""

    agent: int
    reason: str
    work_lost: bool  # as far as the driver knows, the function had left its loop


@dataclass(frozen=True, slots=True)
class End:
    status: str
    reason: str
    final: bool = False  # as of StopRequested
    cut_off: tuple[CutOff, ...] = ()


#: What `handle` returns.
Instruction = (
    StartAgent
    | SubmitOrder
    | CancelOrder
    | AdoptInitial
    | CutJoint
    | Prepare
    | Serve
    | PublishJoint
    | SaveJoint
    | Withdraw
    | Rediscover
    | Write
    | End
)
