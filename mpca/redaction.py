"""Which of Spark's settings are secret, by Spark's own rule, and what is shown instead of them.

Spark hides a setting whose key or value matches ``spark.redaction.regex``. The same rule decides here what is written into a
run folder, printed, or passed to another process in a file instead of its arguments, which every user can read. Not for
passwords in URLs: `checks.refuse_password` does not let those in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["DEFAULT", "MASK", "MASKS", "PATTERN", "properties", "redacted", "redaction", "secrets_of"]

#: The setting of Spark that holds the rule, and what Spark 3.5 takes without it.
PATTERN = "spark.redaction.regex"
DEFAULT = "(?i)secret|password|token|access[.]?key"
#: What we write for a secret; and what Spark's pages write, from which a setting may have been copied.
MASK = "***"
MASKS = (MASK, "*********(redacted)")
#: Not in Spark's rule: where a keytab lies, which is all that one needs to be somebody else.
_KEYTAB = re.compile(r"(?i)keytab")


def redaction(text: str) -> re.Pattern[str]:
    """The rule of a ``spark.redaction.regex``.

    Raises:
        ValueError: Python cannot read what Java's regular expressions can.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"cannot be read: {error}; what it should hide would be shown") from None


def secrets_of(conf: Mapping[str, str], rule: str = "") -> set[str]:
    """Keys of what is secret among these settings.

    Args:
        conf: settings by their full names.
        rule: a ``spark.redaction.regex`` to go by where `conf` has none of its own; empty: Spark's default.

    Example:
        >>> sorted(secrets_of({"spark.ssl.keyPassword": "a", "spark.executorEnv.X": "password=b", "spark.cores.max": "2"}))
        ['spark.executorEnv.X', 'spark.ssl.keyPassword']
    """
    known = redaction(conf.get(PATTERN) or rule or DEFAULT)
    return {
        key
        for key, value in conf.items()
        if key != PATTERN and (known.search(key) or known.search(value) or _KEYTAB.search(key))
    }


def redacted(conf: Mapping[str, str], rule: str = "") -> dict[str, str]:
    """The settings with `MASK` for what is secret; arguments as those of `secrets_of`."""
    hidden = secrets_of(conf, rule)
    return {key: MASK if key in hidden else value for key, value in conf.items()}


def properties(conf: Mapping[str, str]) -> str:
    """Settings as a properties file of Java, which spark-submit reads."""
    return "".join(f"{_escaped(key, '=: ')}={_escaped(value, ' ')}\n" for key, value in conf.items())


def _escaped(text: str, marks: str) -> str:
    """Every mark and every sign that a line would end or begin with, behind a backslash."""
    for sign, name in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f")):
        text = text.replace(sign, name)
    text = re.sub(f"[{marks}]", r"\\\g<0>", text)
    return re.sub(r"^[#!]", r"\\\g<0>", text)
