"""How a setting is checked and refused, for every owner of settings: sections of the configuration and methods.

A set of settings is a frozen dataclass. Field metadata says how text is read: ``quantity="duration"`` (seconds) or
``"size"`` (bytes), else the type of the default. Not for where a value came from: `config.py` knows that.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any

from mpca.errors import ConfigError
from mpca.units import parse_duration, parse_size

__all__ = ["build", "keywords", "knobs", "masked", "nearest", "parse", "refuse_password", "refused", "unknown"]

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
#: What stands before the host of a URL: a name, and a password that nobody may read.
_PASSWORD = re.compile(r"(://[^/@\s:]*):[^/@\s]+@")
_QUANTITIES = {"duration": parse_duration, "size": parse_size}


def refused(key: str, value: object, rule: str) -> ConfigError:
    """The error for one key: ``method.alpha = 1.5: must lie in [0, 1]``."""
    error = ConfigError(f"{key} = {masked(repr(value))}: {rule}")
    error.key = key
    return error


def masked(text: str) -> str:
    """The text without passwords of URLs in it.

    Example:
        >>> masked("hdfs://ann:secret@nn1/runs")
        'hdfs://ann:***@nn1/runs'
    """
    return _PASSWORD.sub(r"\1:***@", text)


def refuse_password(key: str, value: object) -> None:
    """Raises ConfigError, without the password, for a URL that has one: it would travel into logs and run folders."""
    if isinstance(value, str) and _PASSWORD.search(value):
        raise refused(key, value, "must not have a password in it; use the cluster's own login (kinit, --keytab)")


def nearest(name: str, known: Iterable[str]) -> str:
    """Words that point from a wrong name to the nearest known one, or to all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"


def unknown(key: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that nobody reads; `known` are names of the same section."""
    error = ConfigError(f"unknown key {key}: {nearest(key.rpartition('.')[2], known)}")
    error.key = key
    return error


def knobs(cls: type) -> dict[str, Field[Any]]:
    """The fields of a settings class that a user may set, by name."""
    return {one.name: one for one in fields(cls) if one.init}


def parse(key: str, knob: Field[Any], value: object) -> Any:
    """A value as the knob's type: from text (``--set``, Spark) or as TOML and msgpack give it.

    Raises:
        ConfigError: the value is not of that type; durations and sizes need a unit, unless they are 0.
    """
    quantity = knob.metadata.get("quantity")
    if quantity is not None:
        return _quantity(key, quantity, value)
    default = knob.default
    assert default is not MISSING, f"{key} has no default to tell its type"
    kind = type(default)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value.strip() if isinstance(value, str) else value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return _from_text(kind, value.strip())
        except ValueError:
            pass
    raise refused(key, value, f"must be {_named(kind)}")


def build(cls: type, section: str, values: Mapping[str, object]) -> Any:
    """An instance of a settings class from plain values; its own checks run in its ``__post_init__``.

    Raises:
        ConfigError: an unknown key (with the nearest known one), a wrong type, or a value that the class refuses.
    """
    known = knobs(cls)
    for name in values:
        if name not in known:
            raise unknown(f"{section}.{name}", known)
    return cls(**{name: parse(f"{section}.{name}", known[name], value) for name, value in values.items()})


def keywords(
    function: Callable[..., Any], section: str, values: Mapping[str, object], beside: Iterable[str] = ()
) -> dict[str, Any]:
    """Values for the keyword-only arguments of `function`, each parsed as its default's type: the open keys of a section.

    `beside` are the section's other keys, one of which a mistyped key may have meant.

    Example:
        >>> keywords(lambda *, hidden=32: None, "model", {"hidden": "64"})
        {'hidden': 64}

    Raises:
        ConfigError: a key that `function` does not take, or a value of another type.
    """
    known = {
        one.name: field(default=one.default)
        for one in inspect.signature(function).parameters.values()
        if one.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for name in values:
        if name not in known:
            raise unknown(f"{section}.{name}", [*known, *beside])
    return {name: parse(f"{section}.{name}", known[name], value) for name, value in values.items()}


def _quantity(key: str, quantity: str, value: object) -> float | int:
    if value in (0, "0") and not isinstance(value, bool):
        return 0
    if isinstance(value, str):
        try:
            return _QUANTITIES[quantity](value)
        except ValueError as error:
            raise refused(key, value, str(error)) from None
    example = "90s" if quantity == "duration" else "64MiB"
    raise refused(key, value, f"must be a {quantity} with its unit, as text, such as {example!r}")


def _from_text(kind: type, text: str) -> Any:
    if kind is bool:
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise ValueError(text)
    return kind(text)


def _named(kind: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(kind, kind.__name__)
