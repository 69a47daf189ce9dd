"""Numbers of the files that outlive a version of mpca. A number rises when an older mpca would misread what is written now.

A key that an older version can pass over is no new format.
"""

from __future__ import annotations

from mpca.errors import ConfigError

__all__ = ["BACKUP", "COMPARISON", "CONFIG", "DATA_SET", "RECORDS", "STAGE", "check_format"]

#: ``manifest.json`` of a backup. Those of 1 are of 0.1, which was never published.
BACKUP = 2
#: ``results.jsonl`` of a comparison; its first line says it.
COMPARISON = 1
#: ``config.toml`` of a run; a configuration without a number is of this format.
CONFIG = 1
#: ``manifest.json`` of a data set. 1 had images alone, and is read too.
DATA_SET = 2
#: ``records.jsonl``; the first line of each attempt says it.
RECORDS = 1
#: `MpcaEstimator` and `MpcaModel`, as they are saved; their metadata say it.
STAGE = 1


def check_format(what: str, found: object, newest: int, oldest: int | None = None) -> None:
    """Refuse a format that this version does not read.

    Args:
        what: the file.
        found: its number; None where it has none.
        newest: number that this version writes.
        oldest: first number that it reads; `newest` if not given.

    Raises:
        ConfigError: another number, or none.
    """
    oldest = newest if oldest is None else oldest
    if type(found) is int and oldest <= found <= newest:
        return
    has = "no format" if found is None else f"format {found!r}"
    reads = f"{newest}" if oldest == newest else f"{oldest} to {newest}"
    remedy = "a newer mpca" if type(found) is int and found > newest else "the mpca that wrote it"
    raise ConfigError(f"{what} has {has}, this mpca reads {reads}: use {remedy}")
