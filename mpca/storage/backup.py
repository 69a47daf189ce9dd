"""Backups: what a run can go on from, on another cluster, with another number of agents, in their final form.

One folder a backup, ``epoch-0001-cycle-00000042``, which appears at once and whole (P18)::

    model.safetensors        the joint model under the names of the model's own state_dict; opens without mpca
    trajectory.safetensors   the trajectory (eq. 4) under the names of the parameters
    manifest.json            all else, with length and sha256 of both files and a sha256 of itself

It is written into a hidden folder beside, synced, read back and compared, and then renamed; older ones go only after that.
Reading takes the newest that is valid to the last bit and says what was wrong with newer ones (P19). Optimiser state is not
in it: it belongs to the agents, who start anew. Not for deciding when to write: the caller does, beside training.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mpca.errors import BackupError
from mpca.storage.layout import ModelLayout, Vector
from mpca.storage.store import Store
from mpca.storage.tensors import RawTensor, dump, parse
from mpca.units import format_size

__all__ = ["FORMAT", "BackupInfo", "BackupState", "Backups", "Found", "model_file"]

FORMAT = 1
MODEL, TRAJECTORY, MANIFEST = "model.safetensors", "trajectory.safetensors", "manifest.json"
_TEMPORARY, _TRASH = ".tmp-", ".trash-"
_log = logging.getLogger("mpca.backup")


@dataclass(frozen=True)
class BackupState:
    """Everything that a run needs to go on. `data`, `seeds`, `software` and `progress` are maps that JSON can hold."""

    layout: ModelLayout
    vector: Vector  # float32[N]: the joint model, buffers included; never the extrapolated one
    trajectory: Vector  # float32[p]: its parameters' trajectory
    bounds: list[int]  # shard edges in elements
    exchanges: list[int]  # by shard: its position in the schedules, and its version
    run: str
    epoch: int  # attempt of the driver that wrote it
    cycle: int  # the one that was running: a run that goes on begins with it
    method: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # position in the data
    seeds: dict[str, Any] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)  # versions
    progress: dict[str, Any] = field(default_factory=dict)  # seconds trained, steps, best error, incarnations, ...


@dataclass(frozen=True)
class BackupInfo:
    """A backup that is there."""

    name: str
    path: str  # as a person finds it
    epoch: int
    cycle: int
    size_bytes: int


@dataclass(frozen=True)
class Found:
    """The newest valid backup, and what was wrong with newer ones."""

    info: BackupInfo
    state: BackupState
    passed_over: list[str]


def model_file(layout: ModelLayout, vector: Vector) -> bytes:
    """``model.safetensors`` of a joint model: its own ``state_dict``, loadable without mpca."""
    return dump(layout.model_tensors(vector), {"format": "pt"})


class Backups:
    """The backups of one run in one folder of a store. One writer at a time (`lock.RunLock` sees to it).

    Args:
        store: where.
        folder: of the store, holds nothing but this run's backups.
        keep: how many whole ones are left, 1 or more.
        guard: raises when this writer has lost its right to write; asked before a backup becomes visible.
    """

    def __init__(self, store: Store, folder: str, keep: int = 3, guard: Callable[[], None] = lambda: None) -> None:
        self._store, self._folder, self._keep, self._guard = store, folder, max(keep, 1), guard

    def write(self, state: BackupState) -> BackupInfo:
        """Write a backup and then remove those beyond `keep`. One of the same epoch and cycle is left as it is.

        Raises:
            BackupError: storage failed; nothing became visible, and the older backups are all there.
        """
        name = f"epoch-{state.epoch:04d}-cycle-{max(state.cycle, 0):08d}"
        if self._complete(name):
            return self._info(name)
        temporary = self._at(_TEMPORARY + name)
        size = 0
        try:
            self._sweep()
            files: dict[str, dict[str, Any]] = {}
            for file, make in (
                (MODEL, lambda: model_file(state.layout, state.vector)),
                (TRAJECTORY, lambda: dump(state.layout.trajectory_tensors(state.trajectory))),
            ):
                files[file] = self._put(f"{temporary}/{file}", make())
                size += files[file]["bytes"]
            self._put(f"{temporary}/{MANIFEST}", _manifest(state, files))
            self._store.sync(temporary)
            self._guard()
            if self._store.exists(self._at(name)):  # one that is damaged
                self._discard(name)
            self._rename(temporary, self._at(name))
            self._store.sync(self._folder)
        except OSError as error:
            self._drop(temporary)
            where = self._store.describe(self._at(name))
            raise BackupError(f"backup not written: path={where}, size={format_size(size)}: {error}") from error
        self._prune()
        return self._info(name)

    def found(self) -> list[BackupInfo]:
        """Those whose manifest and file lengths are right, newest first; `read` looks at every byte."""
        infos = []
        for name in self.names():
            if self._complete(name):
                with suppress(FileNotFoundError):  # its writer has just removed it: there are newer ones
                    infos.append(self._info(name))
        return infos

    def names(self) -> list[str]:
        """Of all that are there, whole or not, newest first: the names sort by epoch, then cycle."""
        return [name for name in reversed(self._store.names(self._folder)) if name.startswith("epoch-")]

    def manifest(self, name: str) -> dict[str, Any]:
        """What a backup says of itself; `read` looks at the rest.

        Raises:
            BackupError: it is missing, damaged, or of another format.
        """
        try:
            return self._manifest(name)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BackupError(f"{name}: {_fault(error)}") from error

    def newest(self) -> Found:
        """The newest valid backup; each newer one that is not is warned of with its fault.

        Raises:
            BackupError: there is none; says what is wrong with each that is there.
        """
        faults: list[str] = []
        for name in self.names():
            try:
                state = self.read(name)
            except BackupError as error:
                faults.append(str(error))
                continue
            if faults:
                _log.warning("older backup taken: name=%s, passed over: %s", name, "; ".join(faults))
            return Found(self._info(name), state, faults)
        where = self._store.describe(self._folder)
        raise BackupError(f"no valid backup: path={where}: {'; '.join(faults) or 'there is none'}")

    def read(self, name: str) -> BackupState:
        """One backup, every byte checked.

        Raises:
            BackupError: it is missing, incomplete or damaged; names the file and what is wrong with it.
        """
        try:
            manifest = self._manifest(name)
            tensors = {file: self._tensors(name, file, manifest) for file in (MODEL, TRAJECTORY)}
            layout = ModelLayout.from_json(manifest["layout"], tensors[MODEL])
            if layout.digest != manifest["layout_sha256"]:
                raise ValueError("layout does not match its hash")
            return BackupState(
                layout,
                layout.flat(tensors[MODEL]),
                layout.flat_parameters(tensors[TRAJECTORY]),
                **{key: manifest[key] for key in _STATE_KEYS},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackupError(f"{name}: {_fault(error)}") from error

    # ---- one step each ----

    def _put(self, path: str, data: bytes) -> dict[str, Any]:
        """Write, sync, read back: what storage says it holds is what was meant."""
        digest = hashlib.sha256(data).hexdigest()
        length = len(data)
        self._store.write(path, data)
        self._store.sync(path)
        del data  # a large model: not two copies at once
        held = self._store.read(path)
        if len(held) != length or hashlib.sha256(held).hexdigest() != digest:
            raise OSError(f"read back differs: path={path}, bytes={len(held)} of {length}")
        return {"bytes": length, "sha256": digest}

    def _rename(self, old: str, new: str) -> None:
        try:
            self._store.rename(old, new)
        except OSError:  # the reply may be lost and the rename done
            if self._store.exists(old) or not self._store.exists(new):
                raise

    def _manifest(self, name: str) -> dict[str, Any]:
        text = self._store.read(f"{self._at(name)}/{MANIFEST}")
        manifest: dict[str, Any] = json.loads(text)
        if not isinstance(manifest, dict):
            raise ValueError(f"{MANIFEST} is not a map: {text[:40]!r}")
        claimed = manifest.pop("sha256", None)
        if claimed != hashlib.sha256(_canonical(manifest)).hexdigest():
            raise ValueError(f"{MANIFEST} does not match its own sha256")
        if manifest["format"] != FORMAT:
            raise ValueError(f"format {manifest['format']}, this mpca reads {FORMAT}; use the mpca that wrote it")
        return manifest

    def _tensors(self, name: str, file: str, manifest: dict[str, Any]) -> dict[str, RawTensor]:
        data = self._store.read(f"{self._at(name)}/{file}")
        claimed = manifest["files"][file]
        if len(data) != claimed["bytes"]:
            raise ValueError(f"{file} has {len(data)} bytes instead of {claimed['bytes']}")
        if hashlib.sha256(data).hexdigest() != claimed["sha256"]:
            raise ValueError(f"{file} does not match its sha256")
        return parse(data)

    def _complete(self, name: str) -> bool:
        try:
            files = self._manifest(name)["files"]
            return all(self._store.size(f"{self._at(name)}/{file}") == one["bytes"] for file, one in files.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def _info(self, name: str) -> BackupInfo:
        manifest = self._manifest(name)
        size = sum(one["bytes"] for one in manifest["files"].values())
        where = self._store.describe(self._at(name))
        return BackupInfo(name, where, manifest["epoch"], manifest["cycle"], size)

    def _prune(self) -> None:
        """Remove what is older than the newest `keep` whole ones. Storage that fails here costs space and nothing else."""
        try:
            whole = 0
            for name in self.names():
                if whole >= self._keep:
                    self._discard(name)
                elif self._complete(name):
                    whole += 1
        except OSError as error:
            _log.warning("old backups not removed: path=%s: %s", self._store.describe(self._folder), error)

    def _discard(self, name: str) -> None:
        """Hide, then delete: a reader never meets half a backup."""
        self._rename(self._at(name), self._at(_TRASH + name))
        self._store.delete(self._at(_TRASH + name))

    def _sweep(self) -> None:
        """Remove what a writer that was killed left behind."""
        for name in self._store.names(self._folder):
            if name.startswith((_TEMPORARY, _TRASH)):
                self._store.delete(self._at(name))

    def _drop(self, path: str) -> None:
        try:
            self._store.delete(path)
        except OSError as error:  # the next write sweeps it
            _log.warning("unfinished backup not removed: path=%s: %s", self._store.describe(path), error)

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name


_STATE_KEYS = (
    "bounds",
    "exchanges",
    "run",
    "epoch",
    "cycle",
    "method",
    "data",
    "seeds",
    "software",
    "progress",
)


def _manifest(state: BackupState, files: dict[str, dict[str, Any]]) -> bytes:
    manifest = {
        "format": FORMAT,
        **{key: getattr(state, key) for key in _STATE_KEYS},
        "layout_sha256": state.layout.digest,
        "files": files,
        "layout": state.layout.to_json(),
    }
    manifest = json.loads(_canonical(manifest))  # as a reader will see it, so that the hash is of the same text
    manifest["sha256"] = hashlib.sha256(_canonical(manifest)).hexdigest()
    return json.dumps(manifest, indent=1).encode()


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def _fault(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{str(error.filename or '').rpartition('/')[2] or 'a file'} is missing"
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
        return f"{MANIFEST} is not JSON: {error}"
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error)
