"""The folder of a run: where it lies, what its files are called, and who may write into it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mpca.errors import ConfigError
from mpca.private import make_folder

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """One folder a run. A second run never writes into it, except as a later attempt or a resume of the same run."""

    path: Path

    @classmethod
    def named(cls, name: str, wall: float, base: str = "runs") -> RunFolder:
        """``runs/<name>-<time>``, the time in UTC to the second; not made yet."""
        return cls(Path(base) / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(wall))}")

    def create(self, resume: bool = False) -> bool:
        """Make it, for its owner alone; False when it was there.

        Raises:
            ConfigError: it exists and this is not a resume, or there is no right to make it.
        """
        try:
            made = make_folder(self.path)
        except FileExistsError:
            raise self._refused("is not a folder") from None
        except OSError as error:
            raise ConfigError(f"run folder cannot be made: --run-dir={self.path}: {error.strerror}") from error
        if not made and not resume:
            raise self._refused("exists")
        return made

    def _refused(self, what: str) -> ConfigError:
        return ConfigError(f"run folder {what}: --run-dir={self.path}; name another, or go on with that run by --resume auto")

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def records(self) -> Path:
        return self.path / "records.jsonl"

    @property
    def bad(self) -> Path:
        return self.path / "bad.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def backups(self) -> Path:
        return self.path / "backups"
