"""Checks settings and refuses wrong ones, for sections of the configuration and for methods.

A set of settings is a frozen dataclass. Field metadata says how text is read: ``quantity="duration"`` (seconds) or
``"size"`` (bytes), ``word`` for a number or that word; otherwise as the type of the default. Not for the source of a value:
`config.sources`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any

from mpca.errors import ConfigError
from mpca.redaction import MASK, secrets_of
from mpca.units import parse_duration, parse_size

__all__ = ["build", "keywords", "knobs", "masked", "nearest", "parse", "refuse_password", "refused", "shown_of", "unknown"]

#: Limit of whole numbers. No setting needs larger ones, and they cannot be sent to an agent.
_WHOLE = 1 << 63
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
#: Of a URL: the password before the host, what stands there alone for the web (a token), and what its query gives to a key that
#: says it is secret. None is ever shown.
_SECRET = re.compile(
    r"(?i)(://[^/@\s:]*:)[^/\s]+(?=@)|(https?://)[^/@\s:?]+(?=@)|([?&][^=&\s]*(?:secret|password|token|key)[^=&\s]*=)[^&\s'\"]+"
)
_QUANTITIES = {"duration": parse_duration, "size": parse_size}


def refused(key: str, value: object, rule: str) -> ConfigError:
    """The error for one key: ``method.alpha = 1.5: must lie in [0, 1]``. A secret's value is left out."""
    shown = MASK if secrets_of({key: ""}) else masked(shown_of(value))
    error = ConfigError(f"{key} = {shown}: {rule}")
    error.key = key
    return error


def shown_of(value: object) -> str:
    """Text of any value, for an error about it."""
    try:
        return repr(value)
    except ValueError:  # a whole number with thousands of digits, which TOML allows in hexadecimal
        return "too many digits"


def masked(text: str) -> str:
    """The text, with secrets of URLs masked.

    Example:
        >>> masked("hdfs://ann:secret@nn1/runs, https://tracker/?api_token=abc&page=2")
        'hdfs://ann:***@nn1/runs, https://tracker/?api_token=***&page=2'
    """
    return _SECRET.sub(rf"\1\2\3{MASK}", text)


def refuse_password(key: str, value: object) -> None:
    """Raise ConfigError for a URL with a password, since logs and run folders would show it. The error leaves it out."""
    if isinstance(value, str) and _SECRET.search(value):
        ours, others = "the cluster's own login (kinit, --keytab)", "the variables of the tracker's client"
        raise refused(key, value, f"must not have a password in it; use {others if key.startswith('track.') else ours}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Text for an error about a wrong name: the nearest known name, or all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"


def unknown(key: str, known: Iterable[str]) -> ConfigError:
    """The error for an unknown key; `known` are the names of its section."""
    error = ConfigError(f"unknown key {key}: {nearest(key.rpartition('.')[2], known)}")
    error.key = key
    return error


def knobs(cls: type) -> dict[str, Field[Any]]:
    """The fields of a settings class that a user may set, by name."""
    return {one.name: one for one in fields(cls) if one.init}


def parse(key: str, knob: Field[Any], value: object) -> Any:
    """Convert a value to the knob's type: from text (``--set``, Spark), or from a value of TOML or msgpack.

    Raises:
        ConfigError: the value is not of that type, or no finite number; durations and sizes need a unit, unless they are 0.
    """
    quantity = knob.metadata.get("quantity")
    if quantity is not None:
        return _quantity(key, quantity, value)
    word, default = knob.metadata.get("word"), knob.default
    assert default is not MISSING, f"{key} has no default to tell its type"
    kind = knob.metadata.get("kind", type(default))
    if word is not None and kind is not int:
        return _number_or(word, key, value)
    if word is not None and value == word:
        return word
    try:
        read = _read(kind, value)
    except (ValueError, OverflowError):
        raise refused(key, value, f"must be {_named(kind)}") from None
    if isinstance(read, float) and not math.isfinite(read):
        raise refused(key, read, "must be a finite number")
    if kind is int and not -_WHOLE <= read < _WHOLE:
        raise refused(key, value, "must lie between -2^63 and 2^63 - 1")
    return read


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
    """Values for the keyword-only arguments of `function`, from a section's own keys. Each gets its default's type.

    `beside` has the section's other keys, for the error about a mistyped key.

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


def _number_or(word: str, key: str, value: object) -> float | str:
    if isinstance(value, str) and value.strip() == word:
        return word
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise refused(key, value, f'must be a finite number, or "{word}"')


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


def _read(kind: type, value: object) -> Any:
    """Raises ValueError or OverflowError when the value cannot be of that type."""
    if isinstance(value, str):
        return _from_text(kind, value.strip())
    if isinstance(value, bool) is not (kind is bool):
        raise ValueError(value)
    if isinstance(value, kind):
        return value
    if kind is float and isinstance(value, int):
        return float(value)
    raise ValueError(value)


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
