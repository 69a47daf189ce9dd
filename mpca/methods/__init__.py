"""Methods: rules for snapshots and arrived joint states. One small file each, and a table of names.

To add one, write its file after `sync.py`'s example, add a row to `table.METHODS`, and export the class here and in `mpca`; the
common tests then cover it.
"""

from __future__ import annotations

from mpca.methods.agent_side import AgentSide, How, Sends, Threshold, When
from mpca.methods.async_ps import AsyncPS
from mpca.methods.base import Method, Served
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
from mpca.methods.table import METHODS, from_dict, to_dict

__all__ = [
    "EASGD",
    "METHODS",
    "MPCA",
    "AgentSide",
    "AsyncPS",
    "DL4JAveraging",
    "DiLoCo",
    "Gossip",
    "GradientSharing",
    "How",
    "Method",
    "NesterovMPCA",
    "OverlapLocalSGD",
    "PaperMPCA",
    "Sends",
    "Served",
    "Single",
    "SoftSync",
    "Sync",
    "SyncEASGD",
    "SyncPS",
    "Threshold",
    "When",
    "from_dict",
    "to_dict",
]
