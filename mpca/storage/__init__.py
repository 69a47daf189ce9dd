"""Storage of bytes that outlive a run: the `Store` port, its local and in-memory stores, and backups."""

from __future__ import annotations

from mpca.storage.backup import BackupInfo, Backups, BackupState, Found, model_file
from mpca.storage.layout import ModelLayout
from mpca.storage.local import LocalStore
from mpca.storage.locations import Location
from mpca.storage.lock import Holder, RunLock
from mpca.storage.memory import Crash, MemoryStore
from mpca.storage.parts import PartWriter, joined
from mpca.storage.process import Process
from mpca.storage.store import Store

__all__ = [
    "BackupInfo",
    "BackupState",
    "Backups",
    "Crash",
    "Found",
    "Holder",
    "LocalStore",
    "Location",
    "MemoryStore",
    "ModelLayout",
    "PartWriter",
    "Process",
    "RunLock",
    "Store",
    "joined",
    "model_file",
]
