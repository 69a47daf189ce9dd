"""All that is an agent's own, as bytes: parameters, optimisers, random numbers, and what the user's script named in `attach`.

With it a later attempt with as many agents goes on where this agent was, and not at the joint model with a new optimiser. The
format is torch's: tensors in plain containers, which `torch.load(..., weights_only=True)` reads without running anybody's code.
What cannot be read so is refused when it is saved, and not when it is needed.

A state is taken in two parts, since the driver's question comes in the middle of an iteration of the script's loop: behind
`optimizer.step()`. What the engine and the optimiser do is complete then: tensors and random numbers are copied at once. What
the script does in the rest of that iteration, `scheduler.step()` and `scaler.update()`, is copied at its next update. The file
is both parts, each as torch writes it, and where the second begins (8 bytes, little-endian).

The bytes lie in a memfd, as the segment does: it has no name, so nothing is left when a process is killed.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from mpca.agent.optimizers import Optimizers
from mpca.errors import ConfigError
from mpca.wire.messages import StateSaved

if TYPE_CHECKING:
    import torch

__all__ = ["OwnState", "check_others", "read_state"]

_FORMAT = 1
_MIDDLE = struct.Struct("<Q")
_STEP_BYTES = 1 << 20


def check_others(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """What `attach` was given to be saved beside the optimisers: schedulers, a GradScaler, the script's own.

    Raises:
        ConfigError: it is no dict by name, or an object of it cannot be saved and loaded.
    """
    others = {} if given is None else given
    if not isinstance(others, Mapping) or not all(isinstance(name, str) for name in others):
        raise ConfigError(
            f"state must be a dict of objects by name: state={type(given).__name__}; "
            "as in mpca.attach(model, optimizer, state={'scheduler': scheduler})"
        )
    for name, one in others.items():
        missing = [method for method in ("state_dict", "load_state_dict") if not callable(getattr(one, method, None))]
        if missing:
            raise ConfigError(f"state[{name!r}] cannot be saved: type={type(one).__name__}, it has no {missing[0]}()")
        try:
            _loaded(_written(one.state_dict()))
        except Exception as error:
            raise ConfigError(
                f"state[{name!r}] cannot be saved: what state_dict() of type={type(one).__name__} returns is not of tensors, "
                f"numbers, texts, lists and dicts alone: {_first_line(error)}"
            ) from None
    return dict(others)


def read_state(data: bytes) -> dict[str, Any]:
    """Read what `OwnState` has written; tensors are in host memory.

    Raises:
        Exception: of torch's, or of pickle's: these are not such bytes.
    """
    (middle,) = _MIDDLE.unpack(data[-_MIDDLE.size :])
    parts = data[:middle], data[middle : -_MIDDLE.size]
    return {name: value for part in parts for name, value in _loaded(part).items()}


def _loaded(data: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _written(state: Any) -> bytes:
    import torch

    out = io.BytesIO()
    torch.save(state, out)
    return out.getvalue()


def _with_tensors(value: Any) -> Any:
    """The value with tensors in place of NumPy's arrays, which `read_state` would refuse."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, dict):
        return {key: _with_tensors(one) for key, one in value.items()}
    return [_with_tensors(one) for one in value] if isinstance(value, list) else value


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or ' ').splitlines()[0][:300]}"


@dataclass
class OwnState:
    """Of one agent process.

    Args:
        device: of the model.
        optimizers: those attached, in their order.
        others: what else is saved, by name.
    """

    device: torch.device
    optimizers: Optimizers
    others: dict[str, Any] = field(default_factory=dict)
    _begun: tuple[int, BinaryIO] | None = None  # number, and memory with the first part
    _kept: dict[int, BinaryIO] = field(default_factory=dict)  # by number; until the executor has them open

    def begin(self, number: int, engine: dict[str, Any]) -> str:
        """Copy the first part into memory. `finish` gives the answer.

        Args:
            number: of the SaveState.
            engine: what the loop adds: state of the trainer and of the machine, in dicts and lists.

        Returns:
            Why it cannot be done; empty: it is.
        """
        import torch

        self.give_up()
        try:
            held = os.fdopen(os.memfd_create("mpca-state"), "w+b")
        except OSError as error:
            return _first_line(error)
        self._begun = number, held
        try:
            kinds = [type(one).__name__ for one in self.optimizers]
            states = [one.state_dict()["state"] for one in self.optimizers]
            first = {
                "format": _FORMAT,
                "engine": _with_tensors(engine),
                "kinds": kinds,
                "states": states,
                "random": self._random(),
            }
            torch.save(first, held)
            held.flush()
            # what it cannot read back is refused now; tensors are only mapped
            torch.load(f"/proc/self/fd/{held.fileno()}", map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:
            self.give_up()
            return _first_line(error)
        return ""

    def finish(self) -> StateSaved | None:
        """Copy the second part of what was begun.

        Returns:
            The answer to SaveState, with an error if it cannot be done; None: nothing was begun.
        """
        if self._begun is None:
            return None
        number, held = self._begun
        try:
            middle = held.tell()
            rest = [{key: value for key, value in one.state_dict().items() if key != "state"} for one in self.optimizers]
            second = _written({"rest": rest, "others": {name: one.state_dict() for name, one in self.others.items()}})
            _loaded(second)
            held.write(second)
            held.write(_MIDDLE.pack(middle))
            held.flush()
            length, digest = held.tell(), hashlib.sha256()
            held.seek(0)
            while piece := held.read(_STEP_BYTES):
                digest.update(piece)
        except Exception as error:
            self.give_up()
            return StateSaved(number, -1, 0, "", _first_line(error))
        self._begun, self._kept[number] = None, held
        return StateSaved(number, held.fileno(), length, digest.hexdigest(), "")

    def give_up(self) -> None:
        """Forget what was begun, and not finished."""
        if self._begun is not None:
            self._begun[1].close()
            self._begun = None

    def taken(self, number: int) -> None:
        """The executor has the memory of this number open."""
        held = self._kept.pop(number, None)
        if held is not None:
            held.close()

    def go_on(self, data: bytes) -> dict[str, Any]:
        """Give optimisers, random numbers and the rest the state that was written.

        Returns:
            What the loop had added; arrays are tensors now.

        Raises:
            ConfigError: the bytes are of something else, or the script has other optimisers or names now.
        """
        try:
            state = read_state(data)
            if state["format"] != _FORMAT:
                raise ValueError(f"format {state['format']}, and this mpca reads {_FORMAT}")
        except Exception as error:
            raise ConfigError(f"not an agent's state: {_first_line(error)}") from None
        ours, theirs = [type(one).__name__ for one in self.optimizers], state["kinds"]
        if ours != theirs:
            raise ConfigError(f"the script has other optimizers than the one that was saved: optimizers={ours}, saved={theirs}")
        if self.others.keys() != state["others"].keys():
            raise ConfigError(
                f"mpca.attach(..., state=...) has other names than those saved: names={sorted(self.others)}, "
                f"saved={sorted(state['others'])}"
            )
        for one, held, rest in zip(self.optimizers, state["states"], state["rest"], strict=True):
            try:
                one.load_state_dict({"state": held, **rest})
            except ValueError as error:
                raise ConfigError(f"the state saved does not fit: optimizer={type(one).__name__}: {error}") from None
        for name, held in state["others"].items():
            self.others[name].load_state_dict(held)
        self._set_random(state["random"])
        engine: dict[str, Any] = state["engine"]
        return engine

    def _random(self) -> dict[str, Any]:
        import torch

        from mpca.agent.cuda import random_state

        kind, keys, *rest = np.random.get_state()
        return {
            "python": random.getstate(),
            "numpy": (kind, torch.from_numpy(np.asarray(keys, np.int64)), *rest),
            "torch": torch.get_rng_state(),
            "device": random_state(self.device),
        }

    def _set_random(self, held: dict[str, Any]) -> None:
        import torch

        from mpca.agent.cuda import set_random_state

        random.setstate(held["python"])
        kind, keys, *rest = held["numpy"]
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
        torch.set_rng_state(held["torch"])
        set_random_state(self.device, held["device"])
