"""The equations of MPCA SGD as pure functions on numpy arrays: no Spark, no torch, no threads, no clock.

They are the reference for the agents' fused torch versions, for the JVM's sums and for the simulator. Vectors are
float32 as on the wire; float64 works too, and keeps float64. Equation numbers are those of the MPCA SGD paper.
"""

from __future__ import annotations

from mpca.algorithm.averaging import local_mean, weighted_sum
from mpca.algorithm.joint import JointShard, blend, extrapolate, init, trajectory, update
from mpca.algorithm.outer import Eager, Outer, arrived, begin_eager, handed_over, outer_step
from mpca.algorithm.penalty import correct, pull, tilt
from mpca.algorithm.schedules import alpha_at, alpha_for, beta_at, gamma_at
from mpca.algorithm.sharding import ShardPlan, shards_for
from mpca.algorithm.threshold import encode

__all__ = [
    "Eager",
    "JointShard",
    "Outer",
    "ShardPlan",
    "alpha_at",
    "alpha_for",
    "arrived",
    "begin_eager",
    "beta_at",
    "blend",
    "correct",
    "encode",
    "extrapolate",
    "gamma_at",
    "handed_over",
    "init",
    "local_mean",
    "outer_step",
    "pull",
    "shards_for",
    "tilt",
    "trajectory",
    "update",
    "weighted_sum",
]
