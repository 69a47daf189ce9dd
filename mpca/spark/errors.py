"""Exceptions of the driver's JVM on their way into Python. The one place where they cross.

Not for what fails on an executor: that arrives as an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException

from mpca.errors import JvmError

__all__ = ["jvm_errors"]


@contextmanager
def jvm_errors(doing: str) -> Iterator[None]:
    """Turn what the JVM throws in this block into a JvmError that says what was being done.

    Raises:
        JvmError: class and first line of the Java exception; its root cause too, if another one.
    """
    try:
        yield
    except Py4JJavaError as error:
        thrown = error.java_exception
        text = _first_line(thrown.toString())
        root = thrown
        while root.getCause() is not None:
            root = root.getCause()
        if _first_line(root.toString()) != text:
            text = f"{text}; caused by {_first_line(root.toString())}"
        raise JvmError(f"{doing}: {text}") from error
    except CapturedException as error:  # pyspark has translated a few classes before us
        raise JvmError(f"{doing}: {_first_line(error.desc or '')}") from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise JvmError(f"{doing}: the driver's JVM is gone: {error}") from error


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
