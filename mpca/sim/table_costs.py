"""Costs of a simulated run by the formulas of a transport, in place of the rough ones of `costs.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mpca.sim.costs import Costs
from mpca.sim.transports import COORDINATED, Coordinated, Peers, Relay, Server, Setting

__all__ = ["TableCosts"]


@dataclass(frozen=True, slots=True)
class TableCosts(Costs):
    """What a reduction and a download take is `on`'s; all executors end a download at the same time. Make one with `of`.

    Agents that ask by themselves are served at the driver's port (`transports.Server`), whatever `on` is, and those that
    push to each other send straight (`transports.Peers`).
    """

    on: Coordinated = field(default_factory=Relay)
    at: Setting = field(default_factory=lambda: Setting(1, 0, 1, 1))
    overlapped: bool = True  # the stages of two or three phases run at once and share the links

    @classmethod
    def of(cls, at: Setting, on: Coordinated, phases: int, shards: int, elements: int, spread: float = 0.0) -> TableCosts:
        """Costs for a toy model that stands for the one of a setting.

        Args:
            at: cluster and model.
            on: transport.
            phases: of the method.
            shards: of the method.
            elements: of the toy model.
            spread: the slowest agent's step takes this share longer.
        """
        return cls(
            step_s=at.step_s,
            spread=spread,
            copy_s=on.copies_s(at) / 2 / shards,
            dispatch_s=on.fixed_s(at),
            latency_s=at.latency_s,
            rate=at.rate,
            element_bytes=at.model_bytes / elements,
            slowest=1.0,
            on=on,
            at=at,
            overlapped=phases > 1,
        )

    def to_dict(self) -> dict[str, Any]:
        """As `Costs.to_dict`, with the name of the transport."""
        return {**asdict(self), "on": {"name": self.on.name, **vars(self.on)}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableCosts:
        """The reverse of `to_dict`."""
        on = dict(values["on"])
        kind: Callable[..., Coordinated] = type(COORDINATED[on.pop("name")])
        return cls(**{**values, "on": kind(**on), "at": Setting(**values["at"])})

    def reduce_s(self, elements: int, executors: int) -> float:
        at, size = replace(self.at, agents=max(executors, 1)), elements * self.element_bytes
        return self.on.together_s(at, size) if self.overlapped else self.on.reduce_s(at, size)

    def download_s(self, elements: int) -> float:
        size = elements * self.element_bytes
        return self.on.together_s(self.at, size) if self.overlapped else self.on.broadcast_s(self.at, size)

    def answer_s(self, elements: int) -> float:
        return Server.service_s(self.at, elements * self.element_bytes)

    def peer_s(self, elements: int) -> float:
        return Peers.stream_s(self.at, elements * self.element_bytes)
