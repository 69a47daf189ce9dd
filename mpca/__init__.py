"""mpca: trains PyTorch models on a Spark cluster by multi-phase coordinated asynchronous SGD.

This module is the whole public surface; everything below it may move. Names are loaded when they are first used, so
that `import mpca` in an agent does not import Spark, and on the driver does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names for editors and type checkers; a test holds them to `_HOMES`
    from mpca.agent.attach import attach, dataset, device, files, log, rank, samples, shard, stopping, world_size
    from mpca.api.distributor import Distributor, Result
    from mpca.driver.callbacks import Callback
    from mpca.driver.objectives import DumpModel, EarlyStopping, Evaluate, KeepBest, MaxCycles, MaxTime, Target
    from mpca.errors import MpcaError
    from mpca.methods import (
        EASGD,
        MPCA,
        AsyncPS,
        DiLoCo,
        DL4JAveraging,
        Gossip,
        GradientSharing,
        NesterovMPCA,
        OverlapLocalSGD,
        PaperMPCA,
        Single,
        SoftSync,
        Sync,
        SyncEASGD,
        SyncPS,
    )
    from mpca.spark.data.dataframes import ingest_dataframe
    from mpca.spark.data.tars import images_in_tar
    from mpca.spark.run.session import session

__version__ = "0.2.0"

_IN_AGENTS = ("attach", "dataset", "device", "files", "log", "rank", "samples", "shard", "stopping", "world_size")
_OBJECTIVES = ("DumpModel", "EarlyStopping", "Evaluate", "KeepBest", "MaxCycles", "MaxTime", "Target")
_METHODS = (
    "EASGD", "MPCA", "AsyncPS", "DL4JAveraging", "DiLoCo", "Gossip", "GradientSharing", "NesterovMPCA", "OverlapLocalSGD",
    "PaperMPCA", "Single", "SoftSync", "Sync", "SyncEASGD", "SyncPS",
)  # fmt: skip
#: Public name -> module that has it.
_HOMES = {
    **dict.fromkeys(_IN_AGENTS, "mpca.agent.attach"),
    **dict.fromkeys(_OBJECTIVES, "mpca.driver.objectives"),
    **dict.fromkeys(("Distributor", "Result"), "mpca.api.distributor"),
    **dict.fromkeys(_METHODS, "mpca.methods"),
    "Callback": "mpca.driver.callbacks",
    "MpcaError": "mpca.errors",
    "images_in_tar": "mpca.spark.data.tars",
    "ingest_dataframe": "mpca.spark.data.dataframes",
    "session": "mpca.spark.run.session",
}

__all__ = [
    "EASGD",
    "MPCA",
    "AsyncPS",
    "Callback",
    "DL4JAveraging",
    "DiLoCo",
    "Distributor",
    "DumpModel",
    "EarlyStopping",
    "Evaluate",
    "Gossip",
    "GradientSharing",
    "KeepBest",
    "MaxCycles",
    "MaxTime",
    "MpcaError",
    "NesterovMPCA",
    "OverlapLocalSGD",
    "PaperMPCA",
    "Result",
    "Single",
    "SoftSync",
    "Sync",
    "SyncEASGD",
    "SyncPS",
    "Target",
    "__version__",
    "attach",
    "dataset",
    "device",
    "files",
    "images_in_tar",
    "ingest_dataframe",
    "log",
    "rank",
    "samples",
    "session",
    "shard",
    "stopping",
    "world_size",
]

if not TYPE_CHECKING:  # with it, any name would pass a type checker

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'mpca' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
