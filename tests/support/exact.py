"""Eq. 4 to 9 of the MPCA SGD paper once more, in fractions: for agents whose gradients are constant.

Written from the equations, and from what the engine promises of its arithmetic (sums in float32 with float64 weights, in the
order of agents; all else in float32), without mpca and numpy: every operation is exact and then rounded to the width it has
there, so that the CRC of a contribution comes out the same to the bit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction as F
from itertools import pairwise
from typing import Any
from zlib import crc32

__all__ = ["Driver", "Member", "crc", "in_step"]

RATE = F(1, 4)


def single(value: F) -> F:
    return _rounded(value, 24, -126)


def double(value: F) -> F:
    return _rounded(value, 53, -1022)


def _rounded(value: F, bits: int, least: int) -> F:
    """The nearest number of so many bits, ties to even; `least` is the exponent of the smallest normal one."""
    if value == 0:
        return value
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < F(2) ** exponent:
        exponent -= 1
    unit = F(2) ** (max(exponent, least) - bits + 1)
    return round(value / unit) * unit


def crc(values: Iterable[F]) -> int:
    return crc32(b"".join(struct.pack("<f", float(value)) for value in values))


def descent(elements: int, agent: int) -> list[F]:
    """What an update takes off the parameters: rate times a constant gradient."""
    return [RATE * ((agent * 5 + j * 3) % 9 - 4) for j in range(elements)]


def stepped(x: Sequence[F], descents: Sequence[F]) -> list[F]:
    return [single(a - b) for a, b in zip(x, descents, strict=True)]


def mean_of(parts: Sequence[tuple[int, Sequence[F]]]) -> list[F]:
    """Eq. 9 over (tau, snapshot) of agents that have an executor each."""
    total = sum(tau for tau, _ in parts)
    acc = [F(0)] * len(parts[0][1])
    for tau, snapshot in parts:
        weight = double(F(tau, total))
        acc = [single(double(a + double(weight * x))) for a, x in zip(acc, snapshot, strict=True)]
    return acc


def in_step(story: dict[str, Any], thrown_away_count: bool = False) -> list[dict[str, dict[str, int]]]:
    """What every cycle's contributors hand over with method sync, in a story that says who they are.

    Whoever is told to begin ("joining") does its tau updates too. Nobody asks for them, and the mean of that cycle replaces
    them: they are no weight of its next contribution. With `thrown_away_count` they are, which is wrong.
    """
    elements = story["parameters"]
    joint = [F(0)] * elements
    local: dict[str, list[F]] = {}
    taus: dict[str, int] = {}
    cycles = []
    for line in story["ledger"]:
        said = {}
        for agent in (*line["contributors"], *(a for a, why in line["left_out"].items() if why == "joining")):
            x, descents = local.get(agent, joint), descent(elements, int(agent))
            for _ in range(story["method"]["tau"]):
                x = stepped(x, descents)
            local[agent], taus[agent] = x, taus.get(agent, 0) + story["method"]["tau"]
        for agent, one in line["contributors"].items():
            said[agent] = {"incarnation": one["incarnation"], "tau": taus[agent], "crc": crc(local[agent])}
        cycles.append(said)
        joint = mean_of([(taus[agent], local[agent]) for agent in sorted(said, key=int)])
        for agent in local:  # the living take the mean as their own; the dead are followed by one that begins at it
            local[agent] = joint
            if agent in said or not thrown_away_count:
                taus[agent] = 0
    return cycles


class Driver:
    """The joint model of method mpca with its default numbers."""

    beta, gamma, ramp, delta = 0.9, F(7, 10), 20, F(4, 5)

    def __init__(self, bounds: list[int]) -> None:
        self.bounds = bounds
        self.v = [[F(0)] * (b - a) for a, b in pairwise(bounds)]
        #: Of each shard by version: the joint state, and with what it is sent: its projection and alpha.
        self.states = [[list(v)] for v in self.v]
        self.sent: list[list[tuple[list[F], F]]] = [[(list(v), F(0))] for v in self.v]

    def exchange(self, shard: int, parts: Sequence[tuple[int, Sequence[F]]]) -> dict[str, float]:
        """Eq. 9, 8, 4 and 5 with the ramps of beta and gamma; the numbers in force."""
        k = len(self.states[shard]) - 1
        beta = F(self.beta ** (min(k, self.ramp) / self.ramp))  # has no exact value; a double is taken as it is
        gamma = self.gamma * min(k, self.ramp) / self.ramp
        alpha = F(len(parts), 2 * sum(tau for tau, _ in parts))  # half of the distance between two refreshes
        before = self.states[shard][-1]
        x = _both(single(beta), mean_of(parts), single(1 - beta), before)
        v = _both(single(1 - self.delta), stepped(x, before), single(self.delta), self.v[shard])
        self.states[shard].append(x)
        self.v[shard] = v
        self.sent[shard].append((_both(F(1), x, single(gamma), v), alpha))
        return {"alpha": float(alpha), "beta": float(beta), "gamma": float(gamma)}


def _both(a: F, x: Sequence[F], b: F, y: Sequence[F]) -> list[F]:
    """a x + b y."""
    return [single(single(a * p) + single(b * q)) for p, q in zip(x, y, strict=True)]


class Member:
    """One incarnation of an agent of method mpca: eq. 7, the beginning of alpha, and its tau."""

    def __init__(self, driver: Driver, agent: int) -> None:
        self.driver = driver
        self.x = [F(0)] * driver.bounds[-1]
        self.descents = descent(len(self.x), agent)
        self.updates = 0
        self.tau_from = [0] * len(driver.states)
        self.targets: dict[int, tuple[list[F], F]] = {}
        self.first: dict[int, int] = {}  # updates when it installed version 1 of a shard

    def train(self, updates: int) -> None:
        for _ in range(updates):
            for shard, (target, alpha) in self.targets.items():
                burst = F(1, 2) * F(7, 10) ** (self.updates - self.first[shard]) if shard in self.first else F(0)
                share = single(max(alpha, burst))
                for j, there in enumerate(target, self.driver.bounds[shard]):
                    self.x[j] = single(self.x[j] - single(single(self.x[j] - there) * share))
            self.x = stepped(self.x, self.descents)
            self.updates += 1

    def snapshot(self, shard: int) -> tuple[int, list[F]]:
        """tau and bytes of a contribution."""
        tau = self.updates - self.tau_from[shard]
        self.tau_from[shard] = self.updates
        return tau, self.x[self.driver.bounds[shard] : self.driver.bounds[shard + 1]]

    def install(self, shard: int, version: int, mode: str) -> list[F]:
        """Take a joint state as target of the pull, or ("replace") as its own, unprojected; what it took."""
        if version == 1:
            self.first[shard] = self.updates
        if mode == "install":
            self.targets[shard] = self.driver.sent[shard][version]
            return self.targets[shard][0]
        if version != 1:
            self.first.pop(shard, None)
        self.targets.pop(shard, None)
        self.tau_from[shard] = self.updates
        taken = self.driver.states[shard][version]
        self.x[self.driver.bounds[shard] : self.driver.bounds[shard + 1]] = taken
        return taken
