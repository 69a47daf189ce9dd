"""A whole configuration, with the source of each key, and the file that a run writes of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

from mpca.config.sections import (
    SECTIONS,
    BackupConfig,
    ClusterConfig,
    DataConfig,
    ModelConfig,
    ObjectivesConfig,
    OptimizerConfig,
    RunConfig,
    TrackConfig,
)
from mpca.formats import CONFIG
from mpca.private import opener
from mpca.redaction import DEFAULT, redacted

__all__ = ["ORIGINS", "Resolved"]

#: Sources of values, in the [origin] table of a run's config.toml; later ones win.
ORIGINS = ("default", "file", "Spark", "command line")


@dataclass(frozen=True)
class Resolved:
    """A whole configuration, with the source of each key."""

    run: RunConfig
    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    method: Any  # a mpca.methods.Method; this row of the layers does not know methods
    objectives: ObjectivesConfig
    cluster: ClusterConfig
    backup: BackupConfig
    track: TrackConfig
    spark: dict[str, str] = field(repr=False)  # full names of Spark's settings, passed through, secrets among them
    origins: dict[str, str]  # "section.key" -> one of ORIGINS
    redaction: str = DEFAULT  # the spark.redaction.regex in force

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every section for TOML and msgpack: durations and sizes as text with their unit, secrets masked."""
        tables: dict[str, dict[str, Any]] = {name: _table(getattr(self, name)) for name in SECTIONS}
        tables["method"] = self.method.to_dict()
        tables["spark"] = redacted(self.spark, self.redaction)
        return tables

    def places(self) -> dict[str, str]:
        """Where its files lie, by key; empty: that key was not set."""
        data = str(self.to_dict()["data"].get("path", ""))
        return {"run.dir": self.run.dir, "backup.path": self.backup.path, "data.path": data}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write ``config.toml``, for its owner alone: a table [origin] says where each key came from.

        `sources.load` reads the file as a configuration like any other; it passes [origin] over, and refuses a masked secret.
        """
        import tomli_w

        text = tomli_w.dumps({"format": CONFIG, **self.to_dict(), "origin": dict(self.origins)})
        with open(path, "w", encoding="utf-8", opener=opener) as file:
            file.write(text)


def _table(config: Any) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        if "open" in one.metadata:
            table.update(value)
        elif one.metadata.get("quantity") == "duration":
            table[one.name] = f"{value:.9f}".rstrip("0").rstrip(".") + "s"
        elif one.metadata.get("quantity") == "size":
            table[one.name] = _size_text(value)
        else:
            table[one.name] = value
    return table


def _size_text(size_bytes: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"
