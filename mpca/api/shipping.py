"""How a train function gets to the agents: packed by cloudpickle, once, inside each agent's Start message.

A function that cannot be shipped is refused here, before an executor is asked for; the error names the value that stands in
the way.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpca import pickling
from mpca.errors import ConfigError

__all__ = ["run_script", "ship"]

TrainFunction = Callable[..., Any]


def ship(train: TrainFunction | str | Path, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Pack ``(function, args, kwargs)`` for the agents; `train` is a function, or the path of a script.

    Raises:
        ConfigError: no such script, not a function, arguments that the function does not take, or a value that cannot be
        packed.
    """
    function, args, kwargs = _called(train, tuple(args), dict(kwargs))
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise ConfigError(f"train function {_name(function)}: {error}; pass its arguments to run(train, ...)") from None
    except ValueError:
        pass  # a built-in without a signature: the agents will tell
    try:
        payload: bytes = pickling.dumps((function, args, kwargs))
    except Exception as error:  # pickle raises whatever the objects raise
        culprit = _culprit(function, args, kwargs)
        where = f"{culprit} cannot be pickled" if culprit else "it cannot be pickled"
        raise ConfigError(
            f"train function {_name(function)} cannot be shipped to the agents: {where} ({type(error).__name__}: {error}); "
            "make it inside the function"
        ) from error
    return payload


def run_script(name: str, source: str, arguments: Sequence[str]) -> None:
    """Run a script in an agent as `python name arguments...` would, from the text that the driver read."""
    sys.argv = [name, *arguments]
    exec(compile(source, name, "exec"), {"__name__": "__main__", "__file__": name, "__builtins__": __builtins__})  # noqa: S102 - the user's


_Called = tuple[TrainFunction, tuple[Any, ...], dict[str, Any]]


def _called(train: TrainFunction | str | Path, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Called:
    if callable(train):
        return train, args, kwargs
    if not isinstance(train, (str, Path)):
        raise ConfigError(f"not a train function: {train!r}; give a function, or the path of a script")
    path = Path(train)
    if not path.is_file():
        raise ConfigError(f"no such script: {path}")
    if kwargs:
        raise ConfigError(
            f"a script has no keyword arguments: {', '.join(kwargs)}; pass them as texts, run(script, '--key', 'value')"
        )
    return run_script, (str(path), path.read_text(encoding="utf-8"), [str(one) for one in args]), {}


def _name(function: TrainFunction) -> str:
    return repr(getattr(function, "__qualname__", type(function).__name__))


def _culprit(function: TrainFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Name the first value of the function that cannot be pickled alone; empty: each can."""
    for what, value in _luggage(function, args, kwargs):
        try:
            pickling.dumps(value)
        except Exception:
            return f"{what} ({type(value).__module__}.{type(value).__qualname__})"
    return ""


def _luggage(function: TrainFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for position, value in enumerate(args):
        yield f"argument {position}", value
    for name, value in kwargs.items():
        yield f"argument {name!r}", value
    plain = inspect.unwrap(function)
    if inspect.ismethod(plain):
        yield "the object whose method it is", plain.__self__
        plain = plain.__func__
    if not inspect.isfunction(plain):
        return
    captured = inspect.getclosurevars(plain)
    for name, value in captured.nonlocals.items():
        yield f"its captured variable {name!r}", value
    for name, value in captured.globals.items():
        yield f"the global variable {name!r}", value
    for position, value in enumerate(plain.__defaults__ or ()):
        yield f"the default of its argument {position}", value
    for name, value in (plain.__kwdefaults__ or {}).items():
        yield f"the default of its argument {name!r}", value
