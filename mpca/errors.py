"""Every error that mpca raises on purpose, in one tree.

::

    MpcaError
    ├── ConfigError(ValueError)            a refused setting: what, where, the remedy       exit code 2
    ├── EnvironmentRefused(RuntimeError)   the machine or cluster cannot run this           exit code 2
    ├── ProtocolError
    │   ├── LocalProtocolError             our own side made an illegal move: our bug
    │   └── RemoteProtocolError            the peer's bytes or move are illegal
    ├── AgentFailed(RuntimeError)          the user's code raised inside an agent           exit code 1
    ├── RunFailed(RuntimeError)            the run cannot go on; one root cause             exit code 1
    ├── BackupError(OSError)               a backup is missing, torn or foreign             exit code 2 on resume
    ├── BadRecords(ValueError)             more bad records than data.max_bad_fraction      exit code 4
    ├── BadImage(ValueError)               the bytes of one image are not used; its record is skipped and counted
    └── JvmError(RuntimeError)             an exception of the driver's JVM, translated in spark/jvm/errors.py

A message has the fact first, then values, then the remedy. Classes have no behaviour; README lists their `exit_code`.
"""

from __future__ import annotations

__all__ = [
    "AgentFailed",
    "BackupError",
    "BadImage",
    "BadRecords",
    "ConfigError",
    "EnvironmentRefused",
    "JvmError",
    "LocalProtocolError",
    "MpcaError",
    "ProtocolError",
    "RemoteProtocolError",
    "RunFailed",
]


class MpcaError(Exception):
    """Root of the tree."""

    exit_code = 1


class ConfigError(MpcaError, ValueError):
    """A setting was refused. The message names the key, the value seen, what is allowed and the remedy."""

    exit_code = 2
    key: str | None = None  # "method.alpha", if one key is wrong; `config.sources` adds its source


class EnvironmentRefused(MpcaError, RuntimeError):
    """The machine, the Spark session or the executors cannot run this configuration."""

    exit_code = 2


class ProtocolError(MpcaError):
    """A message or a move that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """Our own side tried an illegal move; nothing was changed."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes or made a move that the protocol does not allow."""


class AgentFailed(MpcaError, RuntimeError):
    """The user's code raised inside an agent; the message ends with its traceback."""


class RunFailed(MpcaError, RuntimeError):
    """The run cannot go on. The message is the root cause in one line."""


class BackupError(MpcaError, OSError):
    """A backup is missing, incomplete, damaged, or of another model."""

    exit_code = 2


class BadRecords(MpcaError, ValueError):
    """More records were unreadable than `data.max_bad_fraction` allows."""

    exit_code = 4


class BadImage(MpcaError, ValueError):
    """The bytes of one image are not used. The text is the reason; the reader of the record adds where it comes from."""


class JvmError(MpcaError, RuntimeError):
    """An exception of the driver's JVM, with its class name and first line."""
