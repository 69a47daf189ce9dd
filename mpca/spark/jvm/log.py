"""Finds the line in which a JVM says why it did not start, in all that it printed. Text in, a line out.

The log of a failed start has warnings, lines that are always there, and a stack trace below the line that counts. The person
who waits for the run sees none of it, and the file is removed with the session.
"""

from __future__ import annotations

import re

__all__ = ["first_error"]

#: As our sessions write it, and as Spark's own configuration does.
_RECORD = re.compile(r"(?:\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d[.,\d]* (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_UNCAUGHT = re.compile(r'Exception in thread "[^"]*" ')
_THROWN = re.compile(r"(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable)\b")
_CAUSE = "Caused by: "
_INSIDE = re.compile(r"\s+(?:at |\.\.\. \d+ more|Suppressed: )|" + _CAUSE)
#: The line below this one says what the error is.
_VAGUE = "Error occurred during initialization of VM"
#: Lines that a healthy JVM prints too.
_ALWAYS = re.compile(r"Picked up |NOTE: |WARNING: |\S+ (?:VM|Server VM) warning: |Spark (?:\w+ )?Command: |=+$|\s*$")
#: Spark's own last word on a start that failed. Threads that it had started may have failed before it, because it was stopping.
_START = re.compile(_RECORD.pattern + r"SparkContext: Error initializing SparkContext\.")
#: Only says that something before it has stopped Spark.
_STOPPED = re.compile(r"\S+: Cannot call methods on a stopped SparkContext")


def first_error(log: str) -> str:
    """What Spark says that it could not start for; else the first error record, or the first uncaught exception, with its root
    cause; else the first line before any record that says something; else nothing. An exception that a warning reports is no
    error.

    Example:
        >>> first_error("Picked up JAVA_TOOL_OPTIONS: -Da=b\\nUnrecognized VM option 'Foo'\\nError: no JVM\\n")
        "Unrecognized VM option 'Foo'"
    """
    lines = log.splitlines()
    for number, line in enumerate(lines[1:], 1):
        if _START.match(lines[number - 1]) and _THROWN.match(line) and not _STOPPED.match(line):
            return _with_cause(line, lines[number + 1 :])
    told, plain = "", ""
    recorded = False  # from the first record on, lines between two records belong to the record above them
    for number, line in enumerate(lines):
        record, uncaught = _RECORD.match(line), _UNCAUGHT.match(line)
        thrown = line[uncaught.end() :] if uncaught is not None else line
        if _THROWN.match(thrown) and (uncaught is not None or told or not recorded):
            return _with_cause(thrown, lines[number + 1 :])
        if told:
            return told  # no exception is below the record
        if record is not None:
            recorded = True
            told = line[record.end() :] if record[1] in ("ERROR", "FATAL") else ""
        elif plain == _VAGUE:
            plain = f"{plain}: {line.strip()}"
        elif not plain and not _ALWAYS.match(line) and not _INSIDE.match(line) and not recorded:
            plain = line.strip()
    return told or plain


def _with_cause(thrown: str, following: list[str]) -> str:
    cause = ""
    for line in following:
        if line.startswith(_CAUSE):
            cause = line.removeprefix(_CAUSE)
        elif _RECORD.match(line) or _THROWN.match(line) or _UNCAUGHT.match(line):
            break
    return f"{thrown}; caused by {cause}" if cause and cause != thrown else thrown
