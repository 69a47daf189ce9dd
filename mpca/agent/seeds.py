"""Seeds of Python, numpy and torch in an agent process."""

from __future__ import annotations

import hashlib
import random

__all__ = ["seed_everything"]


def seed_everything(*numbers: int) -> None:
    """Seed Python, numpy and torch from these numbers, such as (run's seed, agent, incarnation). Imports torch."""
    import numpy as np
    import torch

    digest = hashlib.sha256(",".join(map(str, numbers)).encode()).digest()
    seed = int.from_bytes(digest[:8], "big") >> 1
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)
