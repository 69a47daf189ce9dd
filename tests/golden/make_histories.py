"""Writes tests/golden/histories/*.json: what the equations give, computed in exact fractions and never by mpca.

Run it by hand (``python tests/golden/make_histories.py``) when a rule changes, and explain the diff. Inputs are dyadic, so
that the float32 arithmetic of the wire differs from the exact values by rounding alone; what a test allows is in the file.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction as F
from pathlib import Path

HERE = Path(__file__).parent / "histories"


def numbers(values: list[F]) -> list[float]:
    return [float(value) for value in values]


def write(name: str, story: str, **content: object) -> None:
    text = json.dumps({"name": name, "story": story, **content}, indent=1)
    (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def averages() -> None:
    """Eq. 9 over agents in one step, and over executors in two."""
    agents = [[F(1), F(-2), F(1, 4)], [F(3), F(6), F(-1, 2)], [F(-5), F(0), F(2)], [F(7), F(1, 8), F(0)]]
    cases = []
    for taus in ([1, 1, 1, 1], [3, 5, 7, 1], [0, 4, 0, 12], [13, 17, 15, 14], [0, 0, 0, 0]):
        total = sum(taus)
        mean = None
        if total:
            mean = numbers([sum(F(t) * x[e] for t, x in zip(taus, agents, strict=True)) / total for e in range(3)])
        cases.append({"taus": taus, "executors": [[0, 1], [2, 3]], "mean": mean})
    write(
        "averages",
        "Four agents, two on each executor; the mean weighted by updates (eq. 9). A sum of 0 moves nothing.",
        agents=[numbers(x) for x in agents],
        cases=cases,
        relative_error=1e-6,
    )


def joint() -> None:
    """Eq. 8, 4 and 5 over 24 exchanges of a shard with three parameters and one buffer, with the schedules of the readings."""
    delta, gamma, ramp = F(4, 5), F(7, 10), 20
    x = [F(0), F(1), F(-1, 2), F(4)]
    v = [F(0)] * 3
    steps = []
    for k in range(24):
        mean = [F((3 * k + 5 * e) % 11 - 5, 4) + x[e] / 2 for e in range(4)]
        # beta_k = 0.9^(k/20) has no exact value; a double is taken as it is, so both sides use one number
        beta = F(0.9 ** (k / ramp)) if k < ramp else F(9, 10)
        before = x
        x = [(1 - beta) * old + beta * new for old, new in zip(x, mean, strict=True)]
        v = [delta * old + (1 - delta) * (x[e] - before[e]) for e, old in enumerate(v)]
        ahead = gamma * min(F(1), F(k, ramp))
        outgoing = [x[e] + ahead * v[e] for e in range(3)] + [x[3]]
        steps.append(
            {
                "mean": numbers(mean),
                "beta": float(beta),
                "gamma": float(ahead),
                "x": numbers(x),
                "v": numbers(v),
                "outgoing": numbers(outgoing),
            }
        )
    write(
        "joint",
        "One shard, three parameters and a buffer, 24 exchanges of method mpca with its default numbers (eq. 8, 4, 5).",
        x0=[0.0, 1.0, -0.5, 4.0],
        parameters=3,
        steps=steps,
        relative_error=1e-5,
    )


def pulls() -> None:
    """Eq. 7 alone in closed form: the distance to a target at rest shrinks by 1 - alpha each time."""
    local, target = [F(8), F(-3), F(0)], [F(0), F(1), F(0)]
    cases = []
    for alpha in (F(0), F(1, 20), F(1, 2), F(1)):
        history = [numbers([t + (1 - alpha) ** n * (x - t) for x, t in zip(local, target, strict=True)]) for n in range(8)]
        cases.append({"alpha": float(alpha), "history": history})
    write(
        "pulls",
        "The pull without gradients (eq. 7): x_n - x* = (1 - alpha)^n (x_0 - x*).",
        local=numbers(local),
        target=numbers(target),
        cases=cases,
        relative_error=1e-5,
    )


def schedules() -> None:
    """alpha by repeated multiplication, beta by logarithms, gamma by thirds of integers."""
    alpha, value = [], F(1, 2)
    for _ in range(30):
        alpha.append(float(max(F(1, 20), value)))
        value *= F(7, 10)
    write(
        "schedules",
        "alpha by updates since version 1, towards 1/20; beta and gamma by exchange: the default numbers of method mpca.",
        alpha=alpha,
        beta=[max(0.9, math.exp(math.log(0.9) * k / 20)) for k in range(30)],
        gamma=[float(F(7, 10) * min(F(k), F(20)) / 20) for k in range(30)],
        relative_error=1e-12,
    )


def training() -> None:
    """Two agents on quadratic losses, four updates between exchanges: eq. 7, 9, 8, 4, 5 together, one phase."""
    rate, alpha, beta, delta, gamma = F(1, 4), F(1, 8), F(3, 4), F(1, 2), F(1, 2)
    minima = [F(2), F(-1)]
    updates = [4, 2]  # of each agent between two exchanges
    x, v = F(1), F(0)
    agents = [x, x]
    target: F | None = None
    cycles = []
    for _ in range(6):
        for i, minimum in enumerate(minima):
            for _ in range(updates[i]):
                if target is not None:
                    agents[i] -= alpha * (agents[i] - target)
                agents[i] -= rate * (agents[i] - minimum)  # the gradient at the displaced point
        snapshots = list(agents)
        mean = (updates[0] * agents[0] + updates[1] * agents[1]) / sum(updates)
        before, x = x, (1 - beta) * x + beta * mean
        v = delta * v + (1 - delta) * (x - before)
        target = x + gamma * v
        cycles.append(
            {"snapshots": numbers(snapshots), "mean": float(mean), "x": float(x), "v": float(v), "target": float(target)}
        )
    write(
        "training",
        "Two agents, losses (x - m)^2 / 2, plain SGD; snapshot, then install; every number of six exchanges.",
        numbers={"rate": 0.25, "alpha": 0.125, "beta": 0.75, "delta": 0.5, "gamma": 0.5},
        minima=[2.0, -1.0],
        updates=updates,
        x0=1.0,
        cycles=cycles,
        relative_error=1e-5,
    )


def corrections() -> None:
    """Deviations of a delay-corrected agent from a joint model at rest, in both orders, by their recurrences."""
    wrong = [F(1), F(1)]  # snapshot first: d(m+1) = d(m) - d(m-1)
    while len(wrong) < 14:
        wrong.append(wrong[-1] - wrong[-2])
    write(
        "corrections",
        "x* at rest at 0, no gradient, the answer to snapshot m arrives before interruption m + 1.",
        install_then_snapshot=[1.0] + [0.0] * 13,
        snapshot_then_install=numbers(wrong),
    )


def tilts() -> None:
    """Eq. 6 alone in closed form, plain SGD on a loss (x - m)^2 / 2: the rest of x lies between the minimum and the target."""
    rate, minimum, target, start = F(1, 20), F(3), F(-1), F(8)
    cases = []
    for alpha in (F(0), F(1, 2), F(3)):
        middle = (minimum + alpha * target) / (1 + alpha)
        left = 1 - rate * (1 + alpha)
        cases.append({"alpha": float(alpha), "history": [float(middle + left**n * (start - middle)) for n in range(12)]})
    write(
        "tilts",
        "Eq. 6, plain SGD: x_n = c + (1 - lr (1 + alpha))^n (x_0 - c), c = (m + alpha x*) / (1 + alpha).",
        numbers={"rate": 0.05, "minimum": 3.0, "target": -1.0, "start": 8.0},
        cases=cases,
        relative_error=1e-5,
    )


def outer() -> None:
    """The outer optimiser over 8 exchanges, its two forms: momentum on three parameters, none on the buffer."""
    cases = []
    for rate, momentum, nesterov in ((F(7, 10), F(9, 10), True), (F(7, 10), F(3, 5), True), (F(1), F(7, 10), False)):
        x = [F(0), F(1), F(-1, 2), F(4)]
        gradients: list[list[F]] = []  # of DiLoCo: the joint model less the mean
        steps = []
        for k in range(8):
            mean = [F((3 * k + 5 * e) % 11 - 5, 4) + x[e] / 2 for e in range(4)]
            gradients.append([x[e] - mean[e] for e in range(3)])
            # the momentum as a sum over all outer gradients, and not by its recurrence
            m = [sum(momentum ** (k - i) * one[e] for i, one in enumerate(gradients)) for e in range(3)]
            push = [gradients[-1][e] + momentum * m[e] if nesterov else m[e] for e in range(3)]
            x = [x[e] - rate * push[e] for e in range(3)] + [mean[3]]
            steps.append({"mean": numbers(mean), "x": numbers(x), "v": numbers([-one for one in m])})
        cases.append({"rate": float(rate), "momentum": float(momentum), "nesterov": nesterov, "steps": steps})
    write(
        "outer",
        "One shard, three parameters and a buffer, 8 exchanges: outer Nesterov (two pairs of numbers) and heavy ball.",
        x0=[0.0, 1.0, -0.5, 4.0],
        parameters=3,
        cases=cases,
        relative_error=1e-5,
    )


#: Three agents on losses (x - m)^2 / 2 with three parameters, plain SGD, x_0 = 0; the minima of agent i are i, i + 1, i + 2.
AGENTS, RATE = range(3), F(1, 20)
Models = list[list[F]]


def trained(models: Models, updates: int) -> Models:
    """x - m shrinks by 1 - rate at each update."""
    left = (1 - RATE) ** updates
    return [[i + j + left * (x - i - j) for j, x in enumerate(models[i])] for i in AGENTS]


def mean_of(models: Models) -> list[F]:
    return [sum(column) / len(models) for column in zip(*models, strict=True)]


def towards(x: list[F], y: list[F], share: F) -> list[F]:
    return [a + share * (b - a) for a, b in zip(x, y, strict=True)]


def overlap_local_sgd(alpha: F, mu: F) -> list[list[float]]:
    """The authors' loop: pull to the anchor of the round before, average, move the anchor by its momentum."""
    models: Models = [[F(0)] * 3 for _ in AGENTS]
    anchor, buffer = [F(0)] * 3, [F(0)] * 3
    history = []
    for number in range(6):
        models = trained(models, 8)
        if number:  # an anchor has arrived
            models = [towards(x, anchor, alpha) for x in models]
        pushed = mean_of(models)
        buffer = [mu * b - new + old for b, new, old in zip(buffer, pushed, anchor, strict=True)]
        anchor = [old - b for old, b in zip(anchor, buffer, strict=True)]
        history.append(numbers(anchor))
    return history


def sgd(x: list[F], momentum: list[F], gradient: list[F], rate: F, mu: F, nesterov: bool) -> tuple[list[F], list[F]]:
    """torch's SGD with momentum: the parameters and the momentum after it."""
    momentum = [mu * m + g for m, g in zip(momentum, gradient, strict=True)]
    push = [g + mu * m for g, m in zip(gradient, momentum, strict=True)] if nesterov else momentum
    return [a - rate * b for a, b in zip(x, push, strict=True)], momentum


def diloco(eta: F, mu: F) -> list[list[float]]:
    """Algorithm 1: the outer gradient is the joint model less the mean, and torch's Nesterov takes it."""
    joint, momentum = [F(0)] * 3, [F(0)] * 3
    history = []
    for _ in range(6):
        mean = mean_of(trained([joint for _ in AGENTS], 8))
        gradient = [x - y for x, y in zip(joint, mean, strict=True)]
        joint, momentum = sgd(joint, momentum, gradient, eta, mu, nesterov=True)
        history.append(numbers(joint))
    return history


def eager_diloco(eta: F, mu: F) -> list[list[float]]:
    """The agents' own optimisers take their part of the outer gradient and the others' of the round before, as the paper says.

    After the first round, where nothing has come from others, an agent goes on from where it is.
    """
    zeros = [F(0)] * 3
    joint, momentum, before = zeros, zeros, zeros  # the last is the outer gradient of the round before
    begun, own, momenta, mine = ([zeros for _ in AGENTS] for _ in range(4))
    history = []
    for number in range(6):
        models = trained(begun, 8)
        now = [[a - b for a, b in zip(*one, strict=True)] for one in zip(begun, models, strict=True)]
        for i in AGENTS:
            eager = [new / 3 + (all_ - old / 3) for new, all_, old in zip(now[i], before, mine[i], strict=True)]
            own[i], momenta[i] = sgd(own[i], momenta[i], eager, eta, mu, nesterov=True)
        begun, mine, before = (list(own) if number else models), now, mean_of(now)
        joint, momentum = sgd(joint, momentum, before, eta, mu, nesterov=True)
        history.append(numbers(joint))
    return history


def sync_easgd(beta: F) -> list[list[float]]:
    """Zhang's synchronous form: agents and center move by one and the same differences, alpha = beta / K."""
    models: Models = [[F(0)] * 3 for _ in AGENTS]
    center, alpha = [F(0)] * 3, beta / len(AGENTS)
    history = []
    for number in range(6):
        models = trained(models, 8)
        gaps = [[x - z for x, z in zip(model, center, strict=True)] for model in models]
        if number:  # a center has arrived
            models = [[x - alpha * gap for x, gap in zip(*one, strict=True)] for one in zip(models, gaps, strict=True)]
        center = [z + alpha * sum(column) for z, column in zip(center, zip(*gaps, strict=True), strict=True)]
        history.append(numbers(center))
    return history


def sync_ps(mu: F, nesterov: bool) -> list[list[float]]:
    """One machine: SGD with momentum on the mean of the three losses."""
    x, momentum = [F(0)] * 3, [F(0)] * 3
    history = []
    for _ in range(6):
        gradient = [x[j] - F(sum(i + j for i in AGENTS), len(AGENTS)) for j in range(3)]
        x, momentum = sgd(x, momentum, gradient, RATE, mu, nesterov)
        history.append(numbers(x))
    return history


def average_in_time(ema: F) -> list[list[float]]:
    """Agent 0 alone, read every 8 updates."""
    readings = [[j - j * (1 - RATE) ** (8 * n) for j in range(3)] for n in range(1, 7)]
    average, history = readings[0], []
    for reading in readings:
        average = towards(average, reading, 1 - ema**8)
        history.append(numbers(average))
    return history


def in_step() -> None:
    """Methods whose agents make the same number of updates between two exchanges: the joint model after each exchange."""
    alpha, mu = F(3, 5), F(7, 10)
    eager, mild = {"overlap": True, "eager": True}, {"outer_lr": 0.4, "outer_momentum": 0.6}
    cases = [
        {"method": {"name": "overlap-local-sgd", "tau": 8}, "joint": overlap_local_sgd(alpha, mu)},
        {"method": {"name": "overlap-local-sgd", "tau": 8, "momentum": 0.0}, "joint": overlap_local_sgd(alpha, F(0))},
        {"method": {"name": "diloco", "period": 8}, "joint": diloco(F(7, 10), F(9, 10))},
        {"method": {"name": "diloco", "period": 8, "outer_lr": 1.0, "outer_momentum": 0.0}, "joint": diloco(F(1), F(0))},
        {"method": {"name": "diloco", "period": 8, **eager}, "joint": eager_diloco(F(7, 10), F(9, 10))},
        {"method": {"name": "diloco", "period": 8, **eager, **mild}, "joint": eager_diloco(F(2, 5), F(3, 5))},
        {"method": {"name": "sync", "tau": 8}, "joint": diloco(F(1), F(0))},
        {"method": {"name": "dl4j-averaging", "averaging_frequency": 8}, "joint": diloco(F(1), F(0))},
        {"method": {"name": "sync-easgd", "tau": 8}, "joint": sync_easgd(F(9, 10))},
        {"method": {"name": "sync-ps"}, "joint": sync_ps(F(9, 10), False), "updates": 1},
        {"method": {"name": "sync-ps", "nesterov": True}, "joint": sync_ps(F(9, 10), True), "updates": 1},
        {"method": {"name": "single", "ema": 0.875, "every": 8}, "joint": average_in_time(F(7, 8)), "agents": 1},
    ]
    write(
        "in_step",
        "Losses (x - m)^2 / 2, plain SGD of rate 1/20, so many agents, and updates between exchanges: six joint models.",
        cases=[{"updates": 8, "agents": 3} | case for case in cases],
        relative_error=1e-5,
    )


def one_trained(agent: int, x: list[F], updates: int) -> list[F]:
    return [agent + j + (1 - RATE) ** updates * (value - agent - j) for j, value in enumerate(x)]


def elastic(share: F) -> list[list[float]]:
    """Zhang's algorithm 1, agents in a ring: each moves from where the center was, and the center from where it was."""
    models, center, history = [[F(0)] * 3 for _ in AGENTS], [F(0)] * 3, []
    for number in range(12):
        agent = number % 3
        x = one_trained(agent, models[agent], 8)
        models[agent], center = towards(x, center, share), towards(center, x, share)
        history.append(numbers(center))
    return history


def pushed(updates: int, scale: F = F(1), mu: F = F(0), collects: int = 0, theta: F | None = None) -> list[list[float]]:
    """A server that takes changes in, agents in a ring; each trains from what it got at its last turn.

    `collects`: n-softsync: so many changes, each divided by the server's moves since the agent had its model.
    `theta`: changes are coded by this threshold, and what is left waits for the next one.
    """
    got, left = [[F(0)] * 3 for _ in AGENTS], [[F(0)] * 3 for _ in AGENTS]
    joint, momentum, gathered, moves, seen, history = [F(0)] * 3, [F(0)] * 3, [F(0)] * 3, 0, [0, 0, 0], []
    for number in range(12):
        agent = number % 3
        change = [a - b for a, b in zip(one_trained(agent, got[agent], updates), got[agent], strict=True)]
        if theta is not None:
            owed = [a + b for a, b in zip(change, left[agent], strict=True)]
            change = [F(0) if abs(one) < theta else theta if one > 0 else -theta for one in owed]
            left[agent] = [a - b for a, b in zip(owed, change, strict=True)]
        if collects:
            gathered = [a + b / max(1, moves - seen[agent]) for a, b in zip(gathered, change, strict=True)]
            if number % collects == collects - 1:
                joint = [a + b / collects for a, b in zip(joint, gathered, strict=True)]
                gathered, moves = [F(0)] * 3, moves + 1
        else:
            momentum = [mu * a + b for a, b in zip(momentum, change, strict=True)]
            joint = [a + scale * b for a, b in zip(joint, momentum, strict=True)]
        got[agent], seen[agent] = joint, moves
        history.append(numbers(joint))
    return history


def in_a_ring() -> None:
    """Methods whose agents ask by themselves, when the link is so slow that they are served in a ring."""
    cases = [
        {"method": {"name": "easgd", "tau": 8}, "joint": elastic(F(3, 10)), "updates": 8},
        {"method": {"name": "easgd", "tau": 8, "beta": 0.75}, "joint": elastic(F(1, 4)), "updates": 8},
        {"method": {"name": "async-ps"}, "joint": pushed(1)},
        {"method": {"name": "async-ps", "n_push": 8, "scale": 0.25}, "joint": pushed(8, F(1, 4)), "updates": 8},
        {"method": {"name": "async-ps", "momentum": 0.5}, "joint": pushed(1, mu=F(1, 2))},
        {"method": {"name": "softsync"}, "joint": pushed(1, collects=3)},
        {"method": {"name": "softsync", "n": 3}, "joint": pushed(1, collects=1)},
        {"method": {"name": "gradient-sharing", "threshold": 0.0625}, "joint": pushed(1, theta=F(1, 16))},
        {
            "method": {"name": "gradient-sharing", "threshold": 0.0625, "mean": True},
            "joint": pushed(1, F(1, 3), theta=F(1, 16)),
        },
    ]
    write(
        "in_a_ring",
        "Losses (x - m)^2 / 2, plain SGD of rate 1/20, three agents served in turn: the joint model after each exchange.",
        cases=[{"updates": 1} | case for case in cases],
        relative_error=1e-5,
    )


if __name__ == "__main__":
    for make in (averages, joint, pulls, schedules, training, corrections, tilts, outer, in_step, in_a_ring):
        make()
