"""The public surface: `mpca.__all__` is what can be had, cheaply, and names that are packages too can be called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mpca

ROOT = Path(__file__).resolve().parent.parent


def test_every_public_name_can_be_had() -> None:
    for name in mpca.__all__:
        assert getattr(mpca, name) is not None, name
    assert set(mpca.__all__) <= set(dir(mpca))


def test_the_version_is_that_of_the_project() -> None:
    assert f'version = "{mpca.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_importing_mpca_imports_neither_torch_nor_spark() -> None:
    program = "import sys, mpca\nbad = {'torch', 'pyspark', 'numpy'} & set(sys.modules)\nassert not bad, bad"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_agent_is_a_function_and_a_package() -> None:
    import mpca.agent.context

    assert mpca.agent() == 0
    assert mpca.agents() == 1
    assert mpca.agent.context.current() is None
    assert not mpca.stopping()
