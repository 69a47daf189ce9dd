"""torch's compiler stays away until it is asked for, and is whole then. In processes of their own: imports cannot be undone."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow  # each imports torch, and most of them its compiler

_BEFORE = """
import inspect, sys, torch
from mpca.agent.lazy_dynamo import put_off_dynamo
put_off_dynamo()
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

def update(x):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()

x = torch.ones(4, 3)
update(x)
optimizer.load_state_dict(optimizer.state_dict())
inspect.getmodule(update)  # asks every module for its file
print("sympy" in sys.modules)
"""


def run(then: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", _BEFORE + textwrap.dedent(then)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_optimiser_does_not_import_it() -> None:
    assert run("") == ["False"]


def test_torch_compile_imports_it_and_gives_the_same_numbers() -> None:
    lines = run(
        """
        compiled = torch.compile(model, backend="aot_eager")
        print(torch.equal(compiled(x), model(x)))
        module = sys.modules["torch._dynamo"]
        print("sympy" in sys.modules, type(module).__name__, torch._dynamo is module)
        """
    )
    assert lines == ["False", "True", "True module True"]


def test_a_compiled_update_leaves_the_optimisers_own_functions_alone() -> None:
    """What was handed out before is disabled by the real module: the frame of `zero_grad` is not compiled."""
    lines = run(
        """
        import torch._dynamo
        traced = []
        def backend(graph, inputs):
            traced.append(graph)
            return graph.forward
        before = model.weight.detach().clone()
        torch.compile(update, backend=backend)(x)
        print(bool(traced), torch.equal(before, model.weight))
        inner = inspect.unwrap(torch.optim.Optimizer.zero_grad)
        print(getattr(inner, "__dynamo_disable") is not inner)
        """
    )
    assert lines == ["False", "True False", "True"]


def test_a_part_of_it_can_be_imported_by_name() -> None:
    lines = run(
        """
        import torch._dynamo.config
        from torch._dynamo import disable
        print(torch._dynamo.config.verbose, disable(update)(x))
        """
    )
    assert lines == ["False", "False None"]


def test_a_users_own_disable_is_the_real_one() -> None:
    lines = run(
        """
        wrapped = torch.compiler.disable(update)
        print(wrapped is not update, "sympy" in sys.modules)
        """
    )
    assert lines == ["False", "True True"]
