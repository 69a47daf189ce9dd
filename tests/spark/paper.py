"""Equations 4 to 9 of the paper once more, in float64 and whole vectors: what a run should have come to.

From the ledger (who contributed which bytes, with which tau) and from the tapes of the agents (what those bytes were).
Nothing of `mpca.algorithm` is used; the schedules are written out again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mpca.records import CycleRecord

__all__ = ["Recomputed", "read_tape", "recompute", "shard_slices"]


def read_tape(folder: Path, elements: int) -> dict[str, np.ndarray]:
    """What each agent's process wrote: [steps, 2, elements], after the update and after the pull."""
    tapes = {}
    for path in sorted(folder.glob("*.f32")):
        flat = np.fromfile(path, np.float32)
        whole = len(flat) // (2 * elements)
        tapes[path.stem] = flat[: whole * 2 * elements].reshape(whole, 2, elements)
    return tapes


def shard_slices(elements: int, shards: int = 3) -> list[slice]:
    return [slice(j * elements // shards, (j + 1) * elements // shards) for j in range(shards)]


@dataclass
class Recomputed:
    x: np.ndarray  # joint model
    v: np.ndarray  # its trajectory, zeros where buffers are
    versions: list[int]
    projected: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)  # (shard, version) -> x*


def recompute(
    start: np.ndarray, parameters: int, cycles: list[CycleRecord], tapes: dict[str, np.ndarray], shards: int = 3
) -> Recomputed:
    """The joint model after these cycles; beta 1 to 0.9 and gamma 0 to 0.7 over 20 exchanges, delta 0.8."""
    slices = shard_slices(len(start), shards)
    by_crc = [{} for _ in slices]
    for tape in tapes.values():
        for state in tape[:, 0]:
            for shard, piece in enumerate(slices):
                by_crc[shard][zlib.crc32(state[piece].tobytes())] = state[piece].astype(np.float64)
    now = Recomputed(start.astype(np.float64), np.zeros(len(start)), [0] * shards)
    is_parameter = np.arange(len(start)) < parameters
    for cycle in cycles:
        piece, k = slices[cycle.shard], now.versions[cycle.shard]
        given = [(one["tau"], one["crc"]) for one in cycle.contributors.values() if one["tau"] > 0]
        if not given:
            continue
        mean = sum(tau * by_crc[cycle.shard][crc] for tau, crc in given) / sum(tau for tau, _ in given)
        beta, gamma = max(0.9, 0.9 ** (k / 20)), 0.7 * min(1.0, k / 20)
        before = now.x[piece].copy()
        now.x[piece] = (1 - beta) * before + beta * mean
        now.v[piece] = np.where(is_parameter[piece], 0.8 * now.v[piece] + 0.2 * (now.x[piece] - before), 0)
        now.versions[cycle.shard] = k + 1
        now.projected[cycle.shard, k + 1] = now.x[piece] + gamma * now.v[piece]
    return now
