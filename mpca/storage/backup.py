"""Backups, from which a run can resume on another cluster and with another number of agents.

Each backup is a folder, ``term-0001-cycle-00000042``, which appears at once and complete::

    model.safetensors        the joint model under the names of the model's own state_dict; opens without mpca
    trajectory.safetensors   the trajectory (eq. 4), or an outer optimiser's momentum, under the names of the parameters
    updater.safetensors      only of a method that averages the agents' optimisers: the mean of their states, as PARAMETER/KEY
    agent-00003-0.pt         with `backup.optimizers`: an agent's own state (`agent.own_state`), written by its executor
    manifest.json            everything else, with length and sha256 of all files and a sha256 of itself

A writer writes into a hidden folder beside it, syncs, reads back, compares, and then renames; older backups are removed after
that. A reader takes the newest backup in which every bit is valid, and reports the faults of newer ones: changed bytes,
impossible values, non-finite numbers, a link in place of a file. Without agents' own states, a run that goes on begins with
new optimisers. Not for deciding when to write: the caller does this while training goes on.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from mpca.errors import BackupError
from mpca.storage import manifest as form
from mpca.storage.blocks import Piece, blocks
from mpca.storage.layout import ModelLayout, Vector
from mpca.storage.manifest import MANIFEST, MODEL, TRAJECTORY, UPDATER
from mpca.storage.store import Store
from mpca.storage.tensors import RawTensor, dump, parse, pieces
from mpca.units import format_size

__all__ = ["BackupInfo", "BackupState", "Backups", "Found", "hidden_folder", "model_file"]

#: Largest manifest. It lists the tensors of a model: ResNet-152's has 90 KB.
_MANIFEST_BYTES = 64 << 20
_METADATA = {"format": "pt"}  # of a model's file, for who reads it with torch
_BLOCK_BYTES = 8 << 20  # are read back at a time
_REASON_CHARS = 300
_TEMPORARY, _TRASH = ".tmp-", ".trash-"
_NAME = re.compile(r"(?:\.tmp-|\.trash-)?term-(\d{4,})-cycle-\d{8,}")
_log = logging.getLogger("mpca.backup")
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class BackupState:
    """Everything that a run needs to resume. `data`, `seeds`, `software` and `progress` are maps that JSON can hold."""

    layout: ModelLayout
    vector: Vector  # float32[N]: the joint model, with buffers and what the layout has of optimisers; never extrapolated
    trajectory: Vector  # float32[p]: the trajectory of its parameters
    bounds: list[int]  # shard edges in elements
    exchanges: list[int]  # by shard, the number of its exchanges: its position in the schedules, and its version
    run: str
    term: int  # attempt of the driver that wrote it
    cycle: int  # the cycle that was running; a resumed run begins with it
    method: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # position in the data
    seeds: dict[str, Any] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)  # versions
    progress: dict[str, Any] = field(default_factory=dict)  # seconds trained, steps, best error, incarnations, ...
    #: Agent -> {"file", "bytes", "sha256"} of its own state; empty, or of all agents. The files lie in `hidden_folder` when the
    #: backup is written.
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class BackupInfo:
    """An existing backup."""

    name: str
    path: str  # for people
    term: int
    cycle: int
    size_bytes: int


@dataclass(frozen=True)
class Found:
    """The newest valid backup, and the faults of newer ones."""

    info: BackupInfo
    state: BackupState
    passed_over: list[str]


def _name_of(term: int, cycle: int) -> str:
    return f"term-{term:04d}-cycle-{max(cycle, 0):08d}"


def hidden_folder(term: int, cycle: int) -> str:
    """Name of the folder in which the backup of that term and cycle is made, beside the others."""
    return _TEMPORARY + _name_of(term, cycle)


def _term_of(name: str) -> int:
    """The attempt that wrote the backup of that name, hidden or not; 0 for a name that is not a backup's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None else 0


def model_file(layout: ModelLayout, vector: Vector) -> bytes:
    """The bytes of ``model.safetensors``: the model's own ``state_dict``, loadable without mpca."""
    return dump(layout.model_tensors(vector), _METADATA)


class Backups:
    """The backups of one run in one folder of a store. `lock.RunLock` ensures that there is one writer at a time.

    Args:
        store: the store.
        folder: the folder in the store; it holds this run's backups only.
        keep: number of complete backups to keep, 1 or more.
        guard: raises when this writer has lost its right to write; called before anything is written, and before a backup
            becomes visible.
        terms: numbers of this run's attempts, whose backups may be removed; other backups in the folder stay. None: all.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        keep: int = 3,
        guard: Callable[[], None] = lambda: None,
        terms: Collection[int] | None = None,
    ) -> None:
        self._store, self._folder, self._keep, self._guard = store, folder, max(keep, 1), guard
        self._terms = terms
        self._expected = ""  # hidden folder in which executors write

    def expect(self, term: int, cycle: int) -> None:
        """Executors write agents' files for this backup from now on, and for no other. Any thread may call it."""
        self._expected = hidden_folder(term, cycle)

    def write(self, state: BackupState) -> BackupInfo:
        """Write a backup, and then remove those beyond `keep`. A valid backup of the same term and cycle is kept instead.

        Raises:
            BackupError: storage failed, or a reader would refuse the state. Nothing became visible, and all older backups
                remain.
        """
        name = _name_of(state.term, state.cycle)
        temporary = self._at(_TEMPORARY + name)
        size = 0
        try:
            whole = self._whole(name)
            if whole is not None:
                return whole
            _check_finite(state.layout, state.vector, state.trajectory)
            self._guard()
            if not state.agents and self._expected == _TEMPORARY + name:
                self._expected = ""  # not all of its files came
            self._sweep()
            for one in state.agents.values():
                size += self._there(temporary, one)
            files: dict[str, dict[str, Any]] = {}
            makers: dict[str, Callable[[], list[Piece]]] = {
                MODEL: lambda: pieces(state.layout.model_tensors(state.vector), _METADATA),
                TRAJECTORY: lambda: pieces(state.layout.trajectory_tensors(state.trajectory)),
                UPDATER: lambda: pieces(state.layout.updater_tensors(state.vector)),
            }
            for file in form.files_of(state.layout):
                files[file] = self._put(f"{temporary}/{file}", *makers[file]())
                size += files[file]["bytes"]
            held = form.make({key: getattr(state, key) for key in (*form.KEYS, "agents")}, state.layout, files)
            self._put(f"{temporary}/{MANIFEST}", held)
            self._store.sync(temporary)
            self._guard()
            if self._store.exists(self._at(name)):  # a damaged backup of the same name
                self._discard(name)
            self._rename(temporary, self._at(name))
            self._store.sync(self._folder)
        except (OSError, ValueError) as error:
            self._drop(temporary)
            where = self._store.describe(self._at(name))
            raise BackupError(f"backup not written: path={where}, size={format_size(size)}: {error}") from error
        self._prune()
        return BackupInfo(name, self._store.describe(self._at(name)), state.term, state.cycle, size)

    def found(self) -> list[BackupInfo]:
        """Backups with a valid manifest and correct file lengths, newest first. Only `read` checks every byte.

        Raises:
            OSError: storage does not answer.
        """
        return [info for info in map(self._whole, self.names()) if info is not None]

    def names(self) -> list[str]:
        """Names of all backups, complete or not, newest first: by term, then cycle."""
        return [name for name in reversed(self._store.names(self._folder)) if name.startswith("term-")]

    def highest_term(self) -> int:
        """The highest term of all backups, complete or not; 0 when there is none. A later attempt needs a higher one."""
        return max((_term_of(name) for name in self.names()), default=0)

    def manifest(self, name: str) -> dict[str, Any]:
        """The manifest of a backup; only `read` checks the other files.

        Raises:
            BackupError: the manifest is missing, damaged, or of another format.
            OSError: storage does not answer.
        """

        def read() -> dict[str, Any]:
            path = f"{self._at(name)}/{MANIFEST}"
            size = self._store.size(path)
            if size > _MANIFEST_BYTES:
                raise ValueError(f"{MANIFEST} has {size} bytes, more than any valid one")
            return form.parse(self._store.read(path))

        return self._judged(name, read)

    def newest(self, check: Callable[[BackupState], None] = lambda state: None) -> Found:
        """The newest valid backup. A warning names the fault of each newer one.

        Args:
            check: called with each complete state; raises when the caller cannot resume from it.

        Raises:
            BackupError: no backup is valid; names the fault of each.
            OSError: storage does not answer.
        """
        faults: list[tuple[str, BackupError]] = []
        for name in self.names():
            try:
                state, info = self._valid(name, check)
            except BackupError as error:
                faults.append((name, error))
                continue
            # Storage gives bytes again: its DataNodes may have been away while the NameNode answered.
            for at, (newer, fault) in enumerate(faults):
                if not _unread(fault):
                    continue
                with suppress(BackupError):
                    state, info = self._valid(newer, check)
                    del faults[at:]
                    break
            told = [str(fault) for _, fault in faults]
            if told:
                _log.warning("older backup taken: name=%s, passed over: %s", info.name, "; ".join(told))
            return Found(info, state, told)
        where = self._store.describe(self._folder)
        raise BackupError(f"no valid backup: path={where}: {'; '.join(str(fault) for _, fault in faults) or 'there is none'}")

    def read(self, name: str, check: Callable[[BackupState], None] = lambda state: None) -> BackupState:
        """Read one backup, and check every byte of it.

        Args:
            name: one of `names`.
            check: called with the state; raises when the caller cannot resume from it.

        Raises:
            BackupError: the backup is missing, incomplete or damaged, or `check` refused it; names the file and its fault.
            OSError: storage does not answer.
        """
        state, _ = self._read(name)
        self._ask(check, name, state)
        return state

    # ---- one step each ----

    def _put(self, path: str, *data: Piece) -> dict[str, Any]:
        """Write a file, sync it, read it back and compare."""
        self._store.write(path, *data)
        self._store.sync(path)
        size, sha256 = sum(map(len, data)), hashlib.sha256()
        held = 0
        # as a whole it would take memory, and new pages, for each of its bytes
        for block in blocks(data, _BLOCK_BYTES):
            sha256.update(block)
            read = self._store.read_range(path, held, len(block))
            held += len(read)
            if read != bytes(block):  # views are compared byte by byte, which takes ten times as long
                raise OSError(f"read back differs: path={path}, bytes={held} of {size}")
        if more := self._store.size(path) - size:
            raise OSError(f"read back differs: path={path}, bytes={size + more} of {size}")
        return {"bytes": size, "sha256": sha256.hexdigest()}

    def _rename(self, old: str, new: str) -> None:
        try:
            self._store.rename(old, new)
        except OSError:  # the rename may be done, and only its reply lost
            if self._store.exists(old) or not self._store.exists(new):
                raise

    def _read(self, name: str) -> tuple[BackupState, BackupInfo]:
        manifest = self.manifest(name)

        def read() -> BackupState:
            tensors = {file: self._tensors(name, file, claimed) for file, claimed in manifest["files"].items()}
            layout = ModelLayout.from_json(manifest["layout"], tensors[MODEL])
            agents: dict[str, dict[str, Any]] = manifest.get("agents", {})
            for one in agents.values():
                self._checked(name, one["file"], one)
            state = BackupState(
                layout,
                layout.flat(tensors[MODEL] | tensors.get(UPDATER, {})),
                layout.flat_parameters(tensors[TRAJECTORY]),
                **{key: manifest[key] for key in form.KEYS},
                agents=agents,
            )
            _check_finite(layout, state.vector, state.trajectory)
            return state

        return self._judged(name, read), self._info(name, manifest)

    def _valid(self, name: str, check: Callable[[BackupState], None]) -> tuple[BackupState, BackupInfo]:
        state, info = self._read(name)
        self._ask(check, name, state)
        return state, info

    def _judged(self, name: str, read: Callable[[], _Read]) -> _Read:
        """What `read` makes of a backup's files; what it raises becomes the backup's fault.

        Storage that is away says nothing against a backup: a run would go on from an older one, and lose what the newer one
        has. So what storage raises is a fault of the backup only if it raises again after it has answered.

        Raises:
            BackupError: the fault.
            OSError: storage does not answer.
        """
        failed = False
        while True:
            try:
                return read()
            except Exception as error:
                if failed or not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
                    raise _damaged(name, error) from error
            failed = True
            self._store.names(self._folder)

    @staticmethod
    def _ask(check: Callable[[BackupState], None], name: str, state: BackupState) -> None:
        try:
            check(state)
        except Exception as error:
            raise _damaged(name, error) from error

    def _tensors(self, name: str, file: str, claimed: Mapping[str, Any]) -> dict[str, RawTensor]:
        data = self._checked(name, file, claimed)
        try:
            return parse(data)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None

    def _checked(self, name: str, file: str, claimed: Mapping[str, Any]) -> bytes:
        """The bytes of a file, which are those that the manifest claims."""
        path = f"{self._at(name)}/{file}"
        size = self._store.size(path)
        if size != claimed["bytes"]:
            raise ValueError(f"{file} has {size} bytes instead of {claimed['bytes']}")
        data = self._store.read(path)
        if hashlib.sha256(data).hexdigest() != claimed["sha256"]:
            raise ValueError(f"{file} does not match its sha256")
        return data

    def _there(self, folder: str, one: Mapping[str, Any]) -> int:
        """The size of a file that an executor has written; it compared the checksum with its agent's."""
        path = f"{folder}/{one['file']}"
        size = self._store.size(path)
        if size != one["bytes"]:
            raise OSError(f"an executor has written another file: path={path}, bytes={size} of {one['bytes']}")
        return size

    def _whole(self, name: str) -> BackupInfo | None:
        """A backup's facts; None when a part is missing, or when its writer has just removed it."""
        try:
            manifest = self.manifest(name)

            def whole() -> bool:
                return all(self._store.size(f"{self._at(name)}/{file}") == one["bytes"] for file, one in _files(manifest))

            if not self._judged(name, whole):
                return None
        except BackupError:
            return None
        return self._info(name, manifest)

    def _info(self, name: str, manifest: Mapping[str, Any]) -> BackupInfo:
        size = sum(one["bytes"] for _, one in _files(manifest))
        return BackupInfo(name, self._store.describe(self._at(name)), manifest["term"], manifest["cycle"], size)

    def _prune(self) -> None:
        """Remove backups that are older than the newest `keep` complete ones. A failure of storage here only costs space."""
        try:
            whole = 0
            for name in filter(self._ours, self.names()):
                if whole >= self._keep:
                    self._discard(name)
                elif self._whole(name) is not None:
                    whole += 1
        except OSError as error:
            _log.warning("old backups not removed: path=%s: %s", self._store.describe(self._folder), error)

    def _discard(self, name: str) -> None:
        """Hide a backup, then delete it, so that a reader never sees half a backup."""
        self._rename(self._at(name), self._at(_TRASH + name))
        self._store.delete(self._at(_TRASH + name))

    def _sweep(self) -> None:
        """Remove hidden folders that a killed writer left; not the one in which executors write."""
        for name in self._store.names(self._folder):
            if name.startswith((_TEMPORARY, _TRASH)) and name != self._expected and self._ours(name):
                self._store.delete(self._at(name))

    def _ours(self, name: str) -> bool:
        term = _term_of(name)
        return term > 0 and (self._terms is None or term in self._terms)

    def _drop(self, path: str) -> None:
        try:
            self._store.delete(path)
        except OSError as error:  # the next write removes it
            _log.warning("unfinished backup not removed: path=%s: %s", self._store.describe(path), error)

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name


def _files(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and claim of every file beside the manifest."""
    yield from manifest["files"].items()
    yield from ((one["file"], one) for one in manifest.get("agents", {}).values())


def _check_finite(layout: ModelLayout, vector: Vector, trajectory: Vector) -> None:
    """Raise ValueError that names the first tensor with a NaN or an infinite value."""
    kinds_of_all = ("parameter", "buffer", "updater")
    for what, flat, kinds in (("model", vector, kinds_of_all), ("trajectory", trajectory, kinds_of_all[:1])):
        with np.errstate(invalid="ignore"):  # the sum may contain inf - inf
            total = flat.sum(dtype=np.float64)  # one pass without a copy; finite float32 values cannot overflow float64
        if np.isfinite(total):
            continue
        for name, shape, kind, offset in layout.tensors:
            bad = 0 if kind not in kinds else int((~np.isfinite(flat[offset : offset + math.prod(shape)])).sum())
            if bad:
                raise ValueError(f"not finite: {bad} values of tensor={name!r} in the {what}")


def _unread(error: BackupError) -> bool:
    """Whether storage had the files, and gave no bytes of them."""
    return isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError)


def _damaged(name: str, error: Exception) -> BackupError:
    """The error for a damaged file. Any exception of a reader is the file's fault, even a MemoryError."""
    if isinstance(error, FileNotFoundError):
        reason = f"{str(error.filename or '').rpartition('/')[2] or 'a file'} is missing"
    elif isinstance(error, (OSError, ValueError)):
        reason = str(error)
    else:
        reason = f"{type(error).__name__}: {error}"
    # The reason may quote parts of the file, and goes to a terminal.
    shown = "".join(one if one.isprintable() else "?" for one in reason)
    return BackupError(f"{name}: {shown[:_REASON_CHARS]}")
