"""Events of the driver's JVM, from their bytes. The twin is ``org.mpca.wire.Event``; `driver.events` explains the fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgpack

from mpca.driver.events import ClusterEvent
from mpca.errors import RemoteProtocolError
from mpca.spark.yarn.client import loss_reason
from mpca.wire.messages import Hello
from mpca.wire.orders import Answer, Rediscovered

__all__ = ["unpack"]

_EVENTS: dict[str, type[ClusterEvent]] = {cls.__name__: cls for cls in get_args(ClusterEvent)}
#: Fields that are not plain values.
_NESTED: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("AgentHello", "hello"): lambda fields: Hello(**fields),
    ("ExecutorLost", "reason"): loss_reason,
    ("OrderDone", "answers"): lambda packed: [Answer.unpack(one) for one in packed],
    ("AgentsFound", "agents"): lambda rows: [Rediscovered(**row) for row in rows],
}


def unpack(packed: bytes) -> ClusterEvent:
    """The event of these bytes.

    Raises:
        RemoteProtocolError: the JVM is of another version: it names another event, or other fields.
    """
    fields = msgpack.unpackb(packed, raw=False, strict_map_key=False)
    kind = fields.pop("kind")
    try:
        values = {name: _NESTED.get((kind, name), _plain)(value) for name, value in fields.items()}
        return _EVENTS[kind](**values)
    except (KeyError, TypeError) as error:
        raise RemoteProtocolError(f"unknown event from the JVM: kind={kind}, fields={sorted(fields)}: {error}") from error


def _plain(value: Any) -> Any:
    return value
