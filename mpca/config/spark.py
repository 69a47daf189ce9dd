"""Spark's settings in the configuration: their names and texts, what a run forbids, and which of them are secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mpca.checks import refused
from mpca.config.sections import HEAP_RULE, LEAST_HEAP, ClusterConfig
from mpca.redaction import DEFAULT, MASKS, PATTERN, redaction
from mpca.units import parse_size

__all__ = ["JUDGED", "SPARK_PREFIX", "as_texts", "check_settings", "dotted", "redaction_rule"]

#: Spark's settings with this prefix are keys of our sections.
SPARK_PREFIX = "spark.mpca."
_OFF_REQUIRED = {
    "spark.speculation": "a second copy of a task would ask the same agent twice",
    "spark.dynamicAllocation.enabled": "executors that hold agents would be taken away",
}
#: What a session of the caller's own may have set, and `check_given` judges together with all the rest of it.
JUDGED = (*_OFF_REQUIRED, "spark.executor.cores")


def dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Spark's dotted names, from the nested tables that TOML makes of them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as texts in Spark's form."""
    settings = {}
    for key, value in values.items():
        if isinstance(value, (list, tuple)):
            value = ",".join(str(one) for one in value)
        settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def check_settings(own: Mapping[str, str], session: Mapping[str, str], cluster: ClusterConfig) -> None:
    both = {**session, **own}
    for key, why in _OFF_REQUIRED.items():
        if both.get(key, "false").strip().lower() == "true":
            by = "" if key in own else " (set by the Spark session)"
            raise refused(key, both[key], f"must be false: {why}{by}")
    for key in own:
        if key.startswith(SPARK_PREFIX):
            raise refused(key, own[key], "write it in its own section instead of [spark]")
    for key in ("spark.executor.memory", "spark.driver.memory"):
        if key in own:
            _check_heap(key, own[key])
    cores, needed = both.get("spark.executor.cores"), 2 * cluster.agents_per_executor
    if cores is not None and cores.strip().isdigit() and int(cores) < needed:
        raise refused(
            "spark.executor.cores",
            int(cores),
            f"must be {needed} or more: an agent needs two cores of its executor, one that holds it and one for the "
            f"exchange, and cluster.agents_per_executor is {cluster.agents_per_executor}",
        )


def _check_heap(key: str, text: str) -> None:
    """Check a heap's size. A number without a unit is in MiB, as for Spark."""
    try:
        size = parse_size(f"{text}m" if text.strip().isdigit() else text)
    except ValueError as error:
        raise refused(key, text, str(error)) from None
    if size < LEAST_HEAP:
        raise refused(key, text, HEAP_RULE)


def redaction_rule(own: Mapping[str, str], session: Mapping[str, str]) -> str:
    """The rule for secrets. A value that is a mask is refused."""
    for key, value in own.items():
        if value.strip() in MASKS:
            raise refused(
                key, value, f"is masked and no value: give the secret again, as by --set {key}=..., or leave the key out"
            )
    rule = own.get(PATTERN) or session.get(PATTERN) or DEFAULT
    try:
        redaction(rule)
    except ValueError as error:
        raise refused(PATTERN, rule, str(error)) from None
    return rule
