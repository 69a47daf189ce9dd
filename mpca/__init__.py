"""mpca: trains PyTorch models on a Spark cluster by multi-phase coordinated asynchronous SGD.

This module is the whole public surface; everything below it may move. Names are loaded when they are first used, so
that `import mpca` in an agent does not import Spark, and on the driver does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

#: Public name -> module that has it.
_HOMES = {
    **dict.fromkeys(("attach", "agents", "device", "files", "log", "samples", "shard", "stopping"), "mpca.agent.attach"),
    **dict.fromkeys(("DumpModel", "Evaluate", "MaxCycles", "MaxTime", "TargetError"), "mpca.driver.objectives"),
    **dict.fromkeys(("Distributor", "Result"), "mpca.api"),
    **dict.fromkeys(("MPCA", "Single", "Sync"), "mpca.methods"),
    "MpcaError": "mpca.errors",
    "images_in_tar": "mpca.spark.data.tars",
    "ingest_dataframe": "mpca.spark.data.dataframes",
    "session": "mpca.spark.run.session",
}

__all__ = [
    "MPCA",
    "Distributor",
    "DumpModel",
    "Evaluate",
    "MaxCycles",
    "MaxTime",
    "MpcaError",
    "Result",
    "Single",
    "Sync",
    "TargetError",
    "__version__",
    "agent",
    "agents",
    "attach",
    "data",
    "device",
    "files",
    "images_in_tar",
    "ingest_dataframe",
    "log",
    "samples",
    "session",
    "shard",
    "stopping",
]


class _CallablePackage(ModuleType):
    """`mpca.agent()` and `mpca.data("train")` are functions of the surface and packages of the layout at once."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = getattr(import_module("mpca.agent.attach"), self.__name__.rpartition(".")[2])
        return function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)  # as plain modules pickle: a train function that calls us is shipped


# Before anything else can import them, since importing a package binds its name here.
for _name in ("agent", "data"):
    import_module(f"mpca.{_name}").__class__ = _CallablePackage


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mpca' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
