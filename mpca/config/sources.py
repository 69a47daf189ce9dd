"""Reads a configuration from its sources. The error about a value says which of them gave it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpca.checks import build, knobs, nearest, parse, refuse_password
from mpca.config.resolved import Resolved
from mpca.config.sections import SECTIONS
from mpca.config.spark import SPARK_PREFIX, as_texts, check_settings, dotted, redaction_rule
from mpca.errors import ConfigError
from mpca.formats import CONFIG, check_format

__all__ = ["DEFAULT_METHOD", "load", "read_tables"]

DEFAULT_METHOD = "mpca-nesterov"
_ALL = (*SECTIONS, "method", "spark")
_NESTED = 16  # tables within tables of a file; Spark's longest names have seven parts


def load(
    path: str | os.PathLike[str] | None,
    sets: Iterable[str] = (),
    spark_conf: Mapping[str, str] | None = None,
    *,
    method: Callable[[Mapping[str, Any]], Any],
) -> Resolved:
    """Resolve a configuration: defaults, then the file, then ``spark.mpca.*``, then ``--set``.

    When a source names another method than earlier sources, their numbers for the former method are dropped, so that
    ``--set method.name=sync`` works with a file that tunes mpca.

    Args:
        path: a TOML file, or None for defaults alone.
        sets: ``section.key=bare text``, parsed by the key's type.
        spark_conf: settings of the Spark session; those without the prefix are only checked for what a run forbids.
        method: makes a method of a [method] section: ``mpca.methods.from_dict``.

    Raises:
        ConfigError: with the key, the value, where it was set and what is allowed; for TOML with line and column.
    """
    session = spark_conf or {}
    given = _gather(path, session, sets)
    with given.sources_in_errors():
        sections = {name: _section(cls, name, given.values.get(name, {})) for name, cls in SECTIONS.items()}
        chosen = method(given.values["method"])
        spark = as_texts(given.values.get("spark", {}))
        check_settings(spark, session, sections["cluster"])
        rule = redaction_rule(spark, session)
    resolved = Resolved(**sections, method=chosen, spark=spark, origins={}, redaction=rule)
    for name, table in resolved.to_dict().items():
        for key in table:
            full = f"{name}.{key}" if name != "spark" else key
            resolved.origins[full] = given.origins.get(full, "default")
    return resolved


@dataclass
class _Given:
    """The values of the sources read so far. A later source replaces an earlier one's value of the same key."""

    values: dict[str, dict[str, Any]] = field(default_factory=lambda: {"method": {"name": DEFAULT_METHOD}})
    origins: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def put(self, full: str, value: Any, origin: str, source: str) -> None:
        section, dot, key = full.partition(".")
        if section not in _ALL:
            raise ConfigError(f"unknown section of {full} ({source}): {nearest(section, _ALL)}")
        if not dot or not key:
            raise ConfigError(f"{source}: {section} is a section; name one of its keys as {section}.key")
        if section == "spark":  # [spark] executor.cores and [spark] "spark.executor.cores" are one setting
            key = full = key if key.startswith("spark.") else full
        if full == "method.name" and value != self.values["method"]["name"]:
            self.values["method"] = {}
        refuse_password(full, value)
        self.values.setdefault(section, {})[key] = value
        self.origins[full] = origin
        self.sources[full] = source

    @contextmanager
    def sources_in_errors(self) -> Iterator[None]:
        """An error about a key gets the source that set the key."""
        try:
            yield
        except ConfigError as error:
            source = self.sources.get(error.key or "")
            if source is None:
                raise
            told = ConfigError(f"{error} (set by {source})")
            told.key = error.key
            raise told from None


def _gather(path: str | os.PathLike[str] | None, session: Mapping[str, str], sets: Iterable[str]) -> _Given:
    given = _Given()
    if path is not None:
        _read_file(given, path)
    for key in sorted((key for key in session if key.startswith(SPARK_PREFIX)), key=_method_name_first):
        given.put(key.removeprefix(SPARK_PREFIX), session[key], "Spark", f"Spark setting {key}")
    for one in sorted(sets, key=_method_name_first):
        key, equals, text = one.partition("=")
        if not equals:
            raise ConfigError(f"--set {one}: must be section.key=value, such as --set objectives.max_time=75s")
        given.put(key.strip(), text, "command line", f"--set {key.strip()}")
    return given


def _method_name_first(key: str) -> bool:
    """Key for sorting a source's keys: the method's name comes first, the others keep their order."""
    return not key.removeprefix(SPARK_PREFIX).startswith("method.name")


def read_tables(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ConfigError: the file cannot be read, or is not TOML; with line and column.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        text = Path(path).read_text(encoding="utf-8")
        tables: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"configuration cannot be read: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration is not UTF-8 text: {path}: byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:  # its text ends "(at line 3, column 7)"
        raise ConfigError(f"configuration is not TOML: {path}: {error}") from None
    except ValueError as error:  # a whole number with thousands of digits
        raise ConfigError(f"configuration cannot be read: {path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"configuration is nested too deeply: {path}") from None
    if _too_deep(tables):  # the reader does not limit the nesting of dotted keys
        raise ConfigError(f"configuration is nested too deeply: {path}")
    return tables


def _read_file(given: _Given, path: str | os.PathLike[str]) -> None:
    tables = read_tables(path)
    check_format(str(path), tables.pop("format", CONFIG), CONFIG)
    for section, table in tables.items():
        if section == "origin":  # from a run's own config.toml; now all its values come from this file
            continue
        if section not in _ALL:
            raise ConfigError(f"unknown section [{section}] ({path}): {nearest(section, _ALL)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{section} = {table!r} ({path}): is a section; write [{section}] and its keys below it")
        pairs = dict(dotted(table)) if section == "spark" else table
        named = {f"{section}.{key}": value for key, value in pairs.items()}
        for full in sorted(named, key=_method_name_first):
            given.put(full, named[full], "file", f"{path}: {full}")


def _too_deep(tables: Mapping[str, Any]) -> bool:
    level: list[Any] = [tables]
    for _ in range(_NESTED):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for values in inner for one in values if isinstance(one, (dict, list))]
    return bool(level)


def _section(cls: type, name: str, values: Mapping[str, Any]) -> Any:
    known = {key: knob for key, knob in knobs(cls).items() if "open" not in knob.metadata}
    if len(known) == len(knobs(cls)):
        return build(cls, name, values)
    own = {key: parse(f"{name}.{key}", known[key], value) for key, value in values.items() if key in known}
    return cls(**own, options={key: value for key, value in values.items() if key not in known})
