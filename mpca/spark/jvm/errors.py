"""Turns exceptions of the driver's JVM into Python's. This is the one place where they cross.

A failure on an executor is not handled here: it arrives as an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException

from mpca.errors import JvmError
from mpca.storage.hadoop_errors import as_os_error

__all__ = ["jvm_errors", "storage_errors", "thrown_errors"]


@contextmanager
def thrown_errors(doing: str) -> Iterator[None]:
    """Turn what the JVM throws in this block into a JvmError that says what was being done. Other errors pass: in this block a
    refused connection may be one to any server.

    A Py4JJavaError fetches its text from the JVM when it is printed, so it must not outlive its session.

    Args:
        doing: what is being done, for the error.

    Raises:
        JvmError: class and first line of the Java exception, and its root cause if that is another exception.
    """
    try:
        yield
    except Py4JJavaError as error:
        raise JvmError(f"{doing}: {_told(error)}") from error


@contextmanager
def jvm_errors(doing: str) -> Iterator[None]:
    """As `thrown_errors`, for a block that talks to the driver's JVM alone: here a JVM that is gone is a JvmError too."""
    try:
        with thrown_errors(doing):
            yield
    except CapturedException as error:  # pyspark has translated a few classes before us
        raise JvmError(f"{doing}: {_first_line(_captured(error))}") from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise JvmError(f"{doing}: the driver's JVM is gone: {error}") from error


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn what the JVM's file system throws in this block into the fitting OSError.

    Args:
        where: the file's name in the error.

    Raises:
        OSError: FileNotFoundError, FileExistsError, PermissionError, ... A JVM that is gone is an OSError too, since nothing
            else is known of the file.
    """
    try:
        yield
    except Py4JJavaError as error:
        thrown = error.java_exception
        raise as_os_error(thrown.getClass().getName(), thrown.getMessage() or "", where) from None
    except CapturedException as error:
        raise as_os_error("", _captured(error), where) from None
    except (Py4JNetworkError, ConnectionError) as error:
        raise as_os_error("", f"the driver's JVM is gone: {error}", where) from None


def _captured(error: CapturedException) -> str:
    """Its message, which Spark 4 keeps to itself; its text may have a trace of the JVM's behind it."""
    return str(getattr(error, "desc", None) or getattr(error, "_desc", None) or "")


def _told(error: Py4JJavaError) -> str:
    try:
        thrown = error.java_exception
        text = _first_line(thrown.toString())
        root = thrown
        while root.getCause() is not None:
            root = root.getCause()
        if _first_line(root.toString()) != text:
            text = f"{text}; caused by {_first_line(root.toString())}"
    except (Py4JNetworkError, ConnectionError):  # the JVM has died since
        text = "the driver's JVM is gone, and with it what it threw"
    return text


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
