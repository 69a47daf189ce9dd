"""Storage of bytes that outlive a run: the `Store` port, its local store, and backups."""

from __future__ import annotations

from mpca.storage.backup import BackupInfo, Backups, BackupState, Found, hidden_folder, model_file
from mpca.storage.layout import ModelLayout
from mpca.storage.local import LocalStore
from mpca.storage.locations import Location
from mpca.storage.lock import Holder, RunLock
from mpca.storage.manifest import agent_file
from mpca.storage.parts import PartWriter, joined
from mpca.storage.process import Process
from mpca.storage.store import Store

__all__ = [
    "BackupInfo",
    "BackupState",
    "Backups",
    "Found",
    "Holder",
    "LocalStore",
    "Location",
    "ModelLayout",
    "PartWriter",
    "Process",
    "RunLock",
    "Store",
    "agent_file",
    "hidden_folder",
    "joined",
    "model_file",
]
