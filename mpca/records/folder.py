"""The folder of a run: its place, the names of its files, and who may write into it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mpca.errors import ConfigError
from mpca.private import make_folder

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Another run never writes into it; a later attempt, or a resume of the same run, does."""

    path: Path

    @classmethod
    def named(cls, name: str, wall: float, base: str = "runs") -> RunFolder:
        """The folder ``runs/<name>-<time>``, which is not made yet.

        Args:
            name: the run's name.
            wall: seconds since 1970; the folder's name has the time in UTC, to the second.
            base: the folder above.
        """
        return cls(Path(base) / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(wall))}")

    def create(self, resume: bool = False) -> bool:
        """Make the folder, for its owner alone.

        Args:
            resume: whether the folder may exist already.

        Returns:
            Whether it was made; False: it existed.

        Raises:
            ConfigError: the folder exists and this is not a resume, or it cannot be made.
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
        return ConfigError(f"run folder {what}: --run-dir={self.path}; name another, or continue that run by --resume auto")

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
    def tensorboard(self) -> Path:
        """A folder of event files."""
        return self.path / "tensorboard"

    @property
    def backups(self) -> Path:
        return self.path / "backups"
