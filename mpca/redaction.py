"""Masks Spark's secret settings, by Spark's own rule.

Spark hides a setting whose key or value matches ``spark.redaction.regex``. By the same rule a setting is masked in run folders
and prints, and goes to another process in a file instead of its arguments, which every user can read. Not for passwords in
URLs: `checks.refuse_password` refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["DEFAULT", "MASK", "MASKS", "PATTERN", "properties", "redacted", "redaction", "secrets_of"]

#: Spark's setting for the rule, and the default of Spark 3.5.
PATTERN = "spark.redaction.regex"
DEFAULT = "(?i)secret|password|token|access[.]?key"
#: Our text for a secret; and that of Spark's pages, from which a user may have copied a setting.
MASK = "***"
MASKS = (MASK, "*********(redacted)")
#: Not in Spark's rule: the path of a keytab, since a keytab is enough to act as its user; and other keys that trackers would
#: get among the settings, such as ``spark.yarn.appMasterEnv.WANDB_API_KEY`` and ``spark.hadoop.fs.azure.account.key.NAME``.
_OUR_RULE = re.compile(r"(?i)keytab|(api|account|private)[._-]?key")


def redaction(text: str) -> re.Pattern[str]:
    """The rule of a ``spark.redaction.regex``.

    Raises:
        ValueError: Python cannot read what Java's regular expressions can.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(
            f"is not a regular expression that Python reads: {error}; the secrets that it hides would be shown"
        ) from None


def secrets_of(conf: Mapping[str, str], rule: str = "") -> set[str]:
    """Keys of the secret settings.

    Args:
        conf: settings by their full names.
        rule: the ``spark.redaction.regex`` if `conf` has none; empty: Spark's default.

    Example:
        >>> sorted(secrets_of({"spark.ssl.keyPassword": "a", "spark.executorEnv.X": "password=b", "spark.cores.max": "2"}))
        ['spark.executorEnv.X', 'spark.ssl.keyPassword']
    """
    known = redaction(conf.get(PATTERN) or rule or DEFAULT)
    return {
        key
        for key, value in conf.items()
        if key != PATTERN and (known.search(key) or known.search(value) or _OUR_RULE.search(key))
    }


def redacted(conf: Mapping[str, str], rule: str = "") -> dict[str, str]:
    """The settings, with `MASK` for secret values; arguments as of `secrets_of`."""
    hidden = secrets_of(conf, rule)
    return {key: MASK if key in hidden else value for key, value in conf.items()}


def properties(conf: Mapping[str, str]) -> str:
    """Settings as a properties file of Java, which spark-submit reads."""
    return "".join(f"{_escaped(key, '=: ')}={_escaped(value, ' ')}\n" for key, value in conf.items())


def _escaped(text: str, marks: str) -> str:
    """The text with a backslash before marks and before characters that would end or begin a line."""
    for sign, name in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f")):
        text = text.replace(sign, name)
    text = re.sub(f"[{marks}]", r"\\\g<0>", text)
    return re.sub(r"^[#!]", r"\\\g<0>", text)
