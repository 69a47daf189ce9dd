"""The default: `mpca` with two parts that are not in its paper, which reached errors soonest (docs/compare.md).

With y_i the snapshot of agent i that a joint state answers, R their weighted mean (eq. 9), and one exchange of a shard:

    d <- R - x~,  v <- mu v + d,  x~ <- x~ + eta (d + mu v)      in place of eq. 8, 4 and 5
    x_i <- x_i + x~ - y_i                                        in place of the pull of eq. 7

Sources: the first is DiLoCo's outer step (arXiv 2311.08105), `algorithm.outer`; the second LOSCAR-SGD's merge (arXiv
2605.20866), `algorithm.penalty.correct`. The cycles, phases and shards are MPCA SGD's. What is exchanged, and its bytes, are as
in `mpca`: a shard up and one down in a cycle. A lost agent costs its updates since its last snapshot; the others go on.

Where it departs from both sources: each shard has momentum and exchanges of its own, and the mean weighs agents by updates.
eta = 0.7 is DiLoCo's; mu is 0.6 and not 0.9, with which a round's error hardly shrinks (`diloco.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from mpca.checks import refused
from mpca.methods.mpca import AUTO, MPCA

__all__ = ["NesterovMPCA"]

#: Keys of `mpca` that do nothing while this one is set.
_UNUSED = {
    "correction": ("alpha", "alpha_start", "alpha_decay", "alpha_unit"),
    "outer_lr": ("beta", "beta_ramp", "gamma", "gamma_ramp", "delta"),
}


@dataclass(frozen=True)
class NesterovMPCA(MPCA):
    """Multi-phase coordinated asynchronous SGD with a delay-corrected install and outer Nesterov.

    Example:
        >>> method = NesterovMPCA()
        >>> method.outer, method.agent_side.how.name, method.auto_shards
        (Outer(rate=0.7, momentum=0.6, nesterov=True), 'CORRECT', True)
    """

    name: ClassVar[str] = "mpca-nesterov"

    shards: int | str = field(default=AUTO, metadata={"word": AUTO, "kind": int})
    """As in mpca."""
    correction: bool = True
    """As in mpca."""
    outer_lr: float = 0.7
    """As in mpca."""
    outer_momentum: float = 0.6
    """As in mpca."""

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {one.name: one.default for one in fields(self)}
        for form, keys in _UNUSED.items():
            for key in keys if getattr(self, form) else ():
                if getattr(self, key) != defaults[key]:
                    raise refused(
                        f"method.{key}",
                        getattr(self, key),
                        f"is not used, as method.{form} = {getattr(self, form)} stands in its place: "
                        'set method.name = "mpca", which has the pull and the trajectory of the paper',
                    )
