"""Options that several commands share: sizes, `--json`, and files that a command writes at its end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import click

from mpca.checks import refused
from mpca.units import parse_size

__all__ = ["SIZE", "Parsed", "check_out", "json_option"]


class Parsed(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no argument there
    """A word that a function parses; the user sees the text of the function's ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


#: Bytes.
SIZE = Parsed("size", parse_size)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout, and nothing else.")


def check_out(option: str, path: Path) -> None:
    """See that a file can be written, before its content is computed. Nothing stays behind.

    Raises:
        ConfigError: it cannot.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            raise refused(option, str(path), "is no regular file; choose another one")
        NamedTemporaryFile(prefix=f".{path.name}", dir=path.parent).close()
    except OSError as error:
        raise refused(option, str(path), f"cannot be written: {error.strerror}; choose another one") from None
