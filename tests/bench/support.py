"""When a test of shaped links can run here."""

from __future__ import annotations

import pytest

from mpca.cli.bench.net.network import check
from mpca.errors import EnvironmentRefused


def needs_namespaces() -> None:
    """Skip with the sentence that the bench itself would refuse with."""
    try:
        check()
    except EnvironmentRefused as refused:
        pytest.skip(str(refused))
