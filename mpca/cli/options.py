"""Options that several commands share: sizes, and `--json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mpca.units import parse_size

__all__ = ["SIZE", "Parsed", "json_option"]


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
