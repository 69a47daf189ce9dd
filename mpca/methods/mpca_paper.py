"""MPCA SGD as its paper has it (sections 6.3 and 7.1), to compare with: `mpca` with the paper's numbers.

It differs from method mpca's defaults in two things. alpha is 0.05, whatever the number of updates between two exchanges. And
the strong pull of the beginning falls with each exchange of a shard: section 6.3 names no unit ("subsequently decay this
value"), and section 7.1, which applies it, counts the ramp of beta in "parameter exchange cycles". docs/deviations.md has all
other readings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpca.methods.mpca import AUTO, EXCHANGE, MPCA

__all__ = ["PaperMPCA"]


@dataclass(frozen=True)
class PaperMPCA(MPCA):
    """Multi-phase coordinated asynchronous SGD with the numbers of ResNet-110's and ResNet-152's experiments.

    Example:
        >>> PaperMPCA().alpha_for(tau=90.0, agents=8), PaperMPCA().agent_side.decay_by_version
        (0.05, True)
    """

    name: ClassVar[str] = "mpca-paper"

    alpha: float | str = field(default=0.05, metadata={"word": AUTO})
    """As in mpca; the paper's number for the two ResNets. VGG-A had 0.005 (section 7.2.2)."""
    alpha_unit: str = EXCHANGE
    """As in mpca; here the first alpha falls with each exchange of the shard."""
