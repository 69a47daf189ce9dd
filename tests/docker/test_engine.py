"""What docker/up refuses, in one sentence with the remedy."""

from __future__ import annotations

import os

import pytest
from dockerized.engine import Engine, install

from mpca.errors import EnvironmentRefused

pytestmark = pytest.mark.docker


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> object:
    """A user without rights, on a machine without an engine."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_without_an_engine_and_without_rights(nobody: object) -> None:
    with pytest.raises(
        EnvironmentRefused, match="no docker engine answers, and starting one takes root: start docker, or run this"
    ):
        Engine.ready(print)


def test_a_program_that_cannot_be_installed_is_named_with_its_package(nobody: object) -> None:
    with pytest.raises(EnvironmentRefused, match=r"no mpca-none on .* takes root: install it \(the-package\) and try again"):
        install(print, "mpca-none", "the-package")
