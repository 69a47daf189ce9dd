"""Estimators and models on disk, as Spark's pipelines have them: a folder with `metadata`, and files of ours beside it.

The metadata are written last, and name format, version, and the checksum of each file. Code with an import path is saved as
that path. Other code is saved by cloudpickle, if the Param `savePickle` says so, and loaded within `trust_pickles` alone:
loading a pickle runs what its writer wanted.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from mpca import __version__, pickling
from mpca.errors import ConfigError, JvmError
from mpca.formats import STAGE, check_format
from mpca.ml.params import CODE
from mpca.spark.copies import bring_in, exists, send_out
from mpca.spark.jvm.errors import jvm_errors

__all__ = ["Reader", "Writer", "trust_pickles"]

CODE_FILE = "code.pkl"
_trusted: ContextVar[bool] = ContextVar("mpca_trusted_pickles", default=False)


@contextmanager
def trust_pickles() -> Iterator[None]:
    """Stands around loading what was saved with `savePickle`; also around the load of a pipeline that contains it."""
    token = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(token)


class Writer(MLWriter):
    """Saves a stage. The stage's `files()` are its own files, by name, and its `facts()` go into the metadata."""

    def __init__(self, stage: Any) -> None:
        super().__init__()
        self._stage = stage

    def save(self, path: str) -> None:
        """As of all stages; what cannot be saved is refused before `overwrite` has removed what is at the path."""
        self._params_and_code()
        super().save(path)

    def saveImpl(self, path: str) -> None:
        """Save the stage; called by `save`.

        Raises:
            ConfigError: the path exists, or there is a value that cannot be saved.
            OSError: the storage failed.
        """
        stage = self._stage
        params, code = self._params_and_code()
        if exists(self.sc, path):
            raise ConfigError(f"{path} exists already: save elsewhere, or by write().overwrite().save(path)")
        files: dict[str, bytes] = {**stage.files(), **({CODE_FILE: pickling.dumps(code)} if code else {})}
        with TemporaryDirectory(prefix="mpca-") as folder:
            for name, data in files.items():
                local = Path(folder) / name
                local.write_bytes(data)
                send_out(self.sc, local, f"{path}/{name}")
        facts = {
            "format": STAGE,
            "version": __version__,
            "python": platform.python_version(),
            "files": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()},
            **stage.facts(),
        }
        DefaultParamsWriter.saveMetadata(stage, path, self.sc, {"mpca": facts}, params)

    def _params_and_code(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What becomes JSON, and what a pickle. ConfigError: one of them cannot."""
        params = {param.name: value for param, value in self._stage._paramMap.items()}
        code = {name: params.pop(name) for name in CODE if not isinstance(params.get(name, ""), str)}
        _check(self._stage, params, code)
        return params, code


def _check(stage: Any, params: Mapping[str, Any], code: Mapping[str, Any]) -> None:
    for name, value in code.items():
        if not stage.getSavePickle():
            raise ConfigError(
                f"{name} = {value!r:.80} has no import path, by which load would find it: define it in a module, and not in a "
                "notebook or inside of a function; or set savePickle=True, and load it within mpca.ml.trust_pickles()"
            )
    for name, value in params.items():
        try:
            json.dumps(value)
            _check_keys(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name} = {value!r:.80} cannot be saved: {error}; give numbers, texts, lists and dicts of them"
            ) from None


def _check_keys(value: Any) -> None:
    """Raise TypeError for a dict whose keys JSON would turn into texts."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} would be loaded as a text")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _check_keys(one)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Reader(MLReader[Any]):
    """Loads a stage of one class. The stage's `restore(files, facts)` takes its own files."""

    def __init__(self, cls: Any) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        """Load a stage.

        Raises:
            ConfigError: there is none at the path, or one that is damaged, of another version, or with a pickle.
            OSError: the storage failed.
        """
        metadata = self._metadata(path)
        facts: dict[str, Any] = metadata["mpca"]
        where = f"{path}, saved by mpca {facts.get('version', 'of an unknown version')},"
        check_format(where, facts.get("format"), STAGE)
        try:
            stage = self._cls()
            stage._resetUid(metadata["uid"])
            defaults = {name: value for name, value in metadata["defaultParamMap"].items() if stage.hasParam(name)}
            named, wanted = metadata["paramMap"], facts["files"]
            if CODE_FILE in wanted and not _trusted.get():
                raise ConfigError(
                    f"{path}/{CODE_FILE} is pickled code, which runs when it is loaded: if you trust who wrote it, load it in "
                    "`with mpca.ml.trust_pickles():`"
                )
            files = {name: self._file(f"{path}/{name}", of) for name, of in wanted.items()}
            try:
                stage._setDefault(**defaults)
                stage.setParams(**named, **_code(files.pop(CODE_FILE, b""), facts))
                stage.restore(files, facts)
            except ConfigError as error:
                raise ConfigError(f"{where} is not of this version, {__version__}: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(f"{path}/metadata", f"{type(error).__name__}: {error}") from None
        return stage

    def _metadata(self, path: str) -> dict[str, Any]:
        file = f"{path}/metadata"
        wanted = f"{self._cls.__module__}.{self._cls.__name__}"
        if not exists(self.sc, file):
            raise ConfigError(f"no saved {self._cls.__name__}: {file} does not exist; give the path that save was given")
        try:
            with jvm_errors("reading"):
                metadata: dict[str, Any] = DefaultParamsReader.loadMetadata(path, self.sc)
            found = metadata["class"]
            if found == wanted:
                metadata["mpca"].get("format")
        except (JvmError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(file, str(error).splitlines()[0] if str(error) else type(error).__name__) from None
        if found != wanted:
            raise ConfigError(f"{path} holds a {found}, and not a {wanted}: load it by its own class")
        return metadata

    def _file(self, path: str, of: Mapping[str, Any]) -> bytes:
        with TemporaryDirectory(prefix="mpca-") as folder:
            local = Path(folder) / "file"
            try:
                bring_in(self.sc, path, local)
            except FileNotFoundError:
                raise _damaged(path, "it does not exist") from None
            data = local.read_bytes()
        if (len(data), _sha256(data)) != (of["bytes"], of["sha256"]):
            raise _damaged(
                path, f"bytes={len(data)}, sha256={_sha256(data)[:12]}; saved were {of['bytes']}, {of['sha256'][:12]}"
            )
        return data


def _damaged(file: str, fact: str) -> ConfigError:
    return ConfigError(f"damaged: {file}: {fact}; save the stage again, or copy the folder anew")


def _code(data: bytes, facts: Mapping[str, Any]) -> dict[str, Any]:
    if not data:
        return {}
    try:
        found: dict[str, Any] = pickle.loads(data)  # noqa: S301 - within trust_pickles alone
    except Exception as error:  # unpickling raises whatever the objects raise
        raise ConfigError(
            f"{CODE_FILE} cannot be loaded: {type(error).__name__}: {error}; it was written by Python {facts.get('python')}, "
            f"this is {platform.python_version()}"
        ) from None
    return found
