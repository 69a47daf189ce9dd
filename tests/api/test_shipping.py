"""What is shipped arrives; what cannot be shipped is refused with its name."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import cloudpickle
import pytest

from mpca.api.shipping import ship
from mpca.errors import ConfigError

LOCK_OF_THE_MODULE = threading.Lock()


def test_a_function_arrives_with_its_closure_and_arguments() -> None:
    factor = 3

    def train(a: int, b: int = 1) -> int:
        return factor * a + b

    function, args, kwargs = cloudpickle.loads(ship(train, (2,), {"b": 5}))
    assert function(*args, **kwargs) == 11


def test_a_script_runs_as_main_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nif __name__ == '__main__':\n    sys.seen_by_test = (sys.argv[1:], __file__)\n")
    function, args, kwargs = cloudpickle.loads(ship(script, ("--rate", 0.1), {}))
    script.unlink()  # it travels as text: the agent's machine does not have it
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setattr(sys, "seen_by_test", None, raising=False)
    function(*args, **kwargs)
    assert sys.seen_by_test == (["--rate", "0.1"], str(script))


def test_a_captured_variable_that_cannot_travel_is_named() -> None:
    guard = threading.Lock()

    def train() -> None:
        with guard:
            pass

    with pytest.raises(ConfigError, match=r"its captured variable 'guard' .*cannot be pickled.*make it inside"):
        ship(train, (), {})


def test_an_argument_that_cannot_travel_is_named() -> None:
    with pytest.raises(ConfigError, match=r"argument 'guard' .*cannot be pickled"):
        ship(lambda guard: None, (), {"guard": threading.Lock()})


def test_a_global_that_cannot_travel_is_named() -> None:
    code = "def train():\n    return LOCK"
    space = {"LOCK": LOCK_OF_THE_MODULE, "__name__": "__main__"}
    exec(code, space)
    with pytest.raises(ConfigError, match=r"the global variable 'LOCK' .*cannot be pickled"):
        ship(space["train"], (), {})


@pytest.mark.parametrize(
    ("train", "args", "match"),
    [
        (lambda rate: None, (), "missing a required argument: 'rate'"),
        (lambda: None, (1,), "too many positional arguments"),
        (7, (), "not a train function: 7"),
        ("nowhere.py", (), "no such script: nowhere.py"),
    ],
)
def test_what_is_no_train_function_is_refused(train: object, args: tuple, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ship(train, args, {})  # type: ignore[arg-type]
