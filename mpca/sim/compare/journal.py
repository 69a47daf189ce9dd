"""`results.jsonl`: one line a unit that is done, so that a comparison that was killed goes on where it was.

The first line says which mpca wrote the file: results of other code are not mixed. A line is written at once and whole; one
that a kill cut off is dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import mpca
from mpca.checks import refused
from mpca.errors import ConfigError
from mpca.formats import COMPARISON, check_format
from mpca.private import make_folder, opener
from mpca.sim.compare.fairness import Curve
from mpca.sim.compare.unit import Unit

__all__ = ["Journal", "written_by"]

_NAME = "results.jsonl"
#: Packages that results depend on, beside configuration and drawing.
_CODE = ("agent", "algorithm", "data", "driver", "methods", "models", "sim", "wire")
#: Of this package, what curves depend on; `settings.py` says what cluster a b/C is.
_MAKES_CURVES = ("settings.py", "unit.py")


class Journal:
    """The results in a folder, held by one process. Close it.

    Args:
        folder: is made if it is missing.

    Raises:
        ConfigError: the folder cannot be written, another process holds it, or its results are of other code or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _NAME
        self.done: dict[str, list[Curve]] = {}
        #: What was dropped; empty: nothing.
        self.dropped = ""
        try:
            make_folder(folder)
            self._file = open(self.path, "a+b", opener=opener)  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise refused("--run-dir", str(folder), f"cannot be written: {error.strerror}; choose another one") from None
        try:
            self._hold()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the folder."""
        self._file.close()

    def add(self, unit: Unit, curves: list[Curve]) -> None:
        """Keep what a unit has brought; when this returns, a kill does not lose it.

        Raises:
            OSError: no space.
        """
        self._write({"key": unit.key, "unit": asdict(unit), "curves": [asdict(one) for one in curves]})
        self.done[unit.key] = curves

    def _hold(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another mpca compare writes {self.path}: wait for it, or choose another --run-dir") from None

    def _read(self) -> None:
        self._file.seek(0)
        whole, end = self._file.read(), 0
        for number, line in enumerate(whole.splitlines(keepends=True), 1):
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("cut off")
                value = json.loads(line)
                if number > 1:
                    self.done[value["key"]] = [Curve(**one) for one in value["curves"]]
            except (ValueError, KeyError, TypeError) as error:
                if end + len(line) < len(whole):
                    raise ConfigError(f"{self.path}: line {number} is damaged ({error}): remove it, or the file") from None
                self.dropped = f"the last line of {self.path} was cut off; its unit is simulated again"
                self._file.truncate(end)
                break
            if number == 1:
                self._check(value)
            end += len(line)
        if end == 0:
            self._write(written_by())

    def _check(self, head: Any) -> None:
        if not isinstance(head, dict):
            raise ConfigError(f"{self.path} is no file of mpca compare: choose another --run-dir")
        check_format(str(self.path), head.get("format"), COMPARISON)
        now = written_by()
        other = [f"{key} {head.get(key)}, now {value}" for key, value in now.items() if head.get(key) != value]
        if other:
            raise ConfigError(
                f"{self.path} has results of other code ({'; '.join(other)}): choose another --run-dir, or remove the file"
            )

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def written_by(root: Path = Path(mpca.__file__).parent) -> dict[str, Any]:
    """The first line of a file: versions, and a digest of the code that results depend on, which lies in `root`."""
    here = root / "sim" / "compare"
    digest = hashlib.sha256()
    for package in _CODE:
        for path in sorted((root / package).rglob("*.py")):
            if path.parent == here and path.name not in _MAKES_CURVES:
                continue  # what is made of curves can change; they stay
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    versions = {name: metadata.version(name) for name in ("numpy", "torch")}
    return {"format": COMPARISON, "code": digest.hexdigest()[:16], **versions}
