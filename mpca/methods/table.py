"""Names of methods, and methods as plain maps, for a file's [method] section and an agent's Start message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpca.checks import build, nearest, refused
from mpca.methods.async_ps import AsyncPS
from mpca.methods.base import Method
from mpca.methods.diloco import DiLoCo
from mpca.methods.dl4j_averaging import DL4JAveraging
from mpca.methods.easgd import EASGD
from mpca.methods.gossip import Gossip
from mpca.methods.gradient_sharing import GradientSharing
from mpca.methods.mpca import MPCA
from mpca.methods.mpca_nesterov import NesterovMPCA
from mpca.methods.mpca_paper import PaperMPCA
from mpca.methods.overlap_local_sgd import OverlapLocalSGD
from mpca.methods.single import Single
from mpca.methods.softsync import SoftSync
from mpca.methods.sync import Sync
from mpca.methods.sync_easgd import SyncEASGD
from mpca.methods.sync_ps import SyncPS

__all__ = ["METHODS", "from_dict", "to_dict"]

_CLASSES: tuple[type[Method], ...] = (
    AsyncPS, DiLoCo, DL4JAveraging, EASGD, Gossip, GradientSharing, MPCA, NesterovMPCA, OverlapLocalSGD, PaperMPCA, Single,
    SoftSync, Sync, SyncEASGD, SyncPS,
)  # fmt: skip
#: A method is what it is called in a file, and its class, whose fields are the section's keys.
METHODS: dict[str, type[Method]] = {cls.name: cls for cls in _CLASSES}


def from_dict(values: Mapping[str, Any]) -> Method:
    """Make the method of a plain map (`Method.to_dict`); text is converted to the key's type.

    Raises:
        ConfigError: unknown name or key (with the nearest known one), wrong type, or a value that the method refuses.

    Example:
        >>> from_dict({"name": "sync", "tau": "5"})
        Sync(tau=5, seconds=0.0, weighted=True)
    """
    rest = dict(values)
    name = rest.pop("name", MPCA.name)
    if name not in METHODS:
        raise refused("method.name", name, f"no such method; {nearest(str(name), METHODS)}")
    method: Method = build(METHODS[name], "method", rest)
    return method


def to_dict(method: Method) -> dict[str, Any]:
    """The reverse of `from_dict`.

    Example:
        >>> to_dict(from_dict({"name": "sync"}))
        {'name': 'sync', 'tau': 10, 'seconds': 0.0, 'weighted': True}
    """
    return method.to_dict()
