"""What the methods cost: one formula a method and transport, in one table (`ROWS`), which is printed with results.

A formula takes a `Setting` and a `Choice` and gives a `Cost`. Nothing here is simulated, and nothing says how well a method
learns. The letters are those of `transports.py`; C is `Setting.step_s`, and E(m) a blocking exchange of m bytes in cycles. No
row has a codec: what is exchanged is float32, but for gradient-sharing, which is nothing without its encoding.

Staleness is the age of what an agent knows of the others when it first uses it, in its own updates. K - 1 times as many updates
of the others are missing, which is how the literature counts async-ps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from textwrap import wrap

from mpca.algorithm import shards_for
from mpca.sim.transports import COORDINATED, Coordinated, Peers, Ring, Server, Setting, Slices, Traffic

__all__ = ["ROWS", "Choice", "Cost", "Formula", "Row", "Said", "cost", "formulas"]

#: Updates per time of an exchange, in which agents compute 83.3 % of the time: "5 S" (SparkNet, 3.1.2), the paper's 1:5 rule.
_SHARE = 5
#: The paper takes EASGD's tau "approximately 30 % higher than the theoretically optimal value" (6.3).
_SPARE = 1.3
#: Encoded bytes over those of the model: 0.21 MB of 58.4 MB (Strom 2015, threshold 2; DL4J keeps it between 1e-4 and 1e-2).
_DENSITY = 0.21 / 58.4


@dataclass(frozen=True)
class Choice:
    """What a method lets a user choose."""

    tau: int | None = None
    """Updates between two exchanges; None: as few as the link carries, by the rule of the method's row."""
    shards: int = 3
    """S, of methods that cut the model; 0: "auto", by `algorithm.shards_for`."""
    phases: int = 3
    """P <= min(S, 3)."""
    density: float = _DENSITY
    """Encoded bytes of gradient-sharing over those of the model."""


@dataclass(frozen=True)
class Cost:
    """What one round costs. A round is the time between two refreshes of the same part of an agent's model."""

    tau: float
    """Updates that an agent makes in a round."""
    period_s: float
    """Seconds of a round."""
    waits_s: float
    """Of these, how long the agent stands still."""
    exchange_s: float
    """Seconds of one exchange (of one shard, where there are several), from the order or the question to the arrival."""
    staleness: float
    """Age of what arrives, in own updates."""
    traffic: Traffic
    """Bytes of a round."""
    shards: int = 1

    @property
    def utilisation(self) -> float:
        """Share of the time in which an agent computes, in [0, 1]."""
        return 1 - self.waits_s / self.period_s


Formula = Callable[[Setting, Choice], Cost]
OnCycles = Callable[[Setting, Choice, Coordinated], Cost]


def _rule(choice: Choice, least: float) -> int:
    """tau as chosen, or the smallest whole number that is not below `least`."""
    return choice.tau if choice.tau is not None else max(1, ceil(least))


def _single(at: Setting, choice: Choice) -> Cost:
    """One agent alone.

    ::

        period = C

    Source: this needs none. What the driver reads for evaluations is not counted in any row.
    """
    return Cost(1, at.step_s, 0, 0, 0, Traffic())


def _sync(at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """All stop, average, replace. Also blocking DiLoCo, which makes something else of the mean, and DL4J's averaging of models.

    ::

        period = max(tau C, fixed) + E(M) + copies, of which all but tau C are waited for
        tau    = 5 E(M) / C, rounded, unless it is chosen
        staleness 0; agents drift for tau updates

    Source: SparkNet, equation (2); MPCA SGD, 3.1.2 and Table 1, whose "suggested tau" this is.
    """
    exchange = on.exchange_s(at, at.model_bytes)
    tau = choice.tau if choice.tau is not None else max(1, round(_SHARE * exchange / at.step_s))
    computing = tau * at.step_s
    period = max(computing, on.ask_s(at)) + exchange + on.copies_s(at)  # the job that asks runs while agents compute
    return Cost(tau, period, period - computing, exchange, 0, on.traffic(at, at.model_bytes))


def _dl4j_momentum(at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """DL4J's averaging with the state of SGD with momentum: a number for each of the model's parameters.

    ::

        period = max(tau C, fixed) + E(2 M) + copies of 2 M
        tau    = 5 E(2 M) / C, rounded, unless it is chosen
        staleness 0; agents drift for tau updates

    Source: DL4J, `saveUpdater` of its parameter averaging and `averageUpdaters` of its ParallelWrapper; otherwise as sync.
    """
    return _sync(replace(at, model_bytes=2 * at.model_bytes), choice, on)


def _dl4j_adam(at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """DL4J's averaging with the state of Adam: two numbers for each of the model's parameters.

    ::

        period = max(tau C, fixed) + E(3 M) + copies of 3 M
        tau    = 5 E(3 M) / C, rounded, unless it is chosen
        staleness 0; agents drift for tau updates

    Source: as with momentum.
    """
    return _sync(replace(at, model_bytes=3 * at.model_bytes), choice, on)


def _sync_ps(at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """Gradients to one optimiser after every update: K-batch SGD, a cycle an update.

    ::

        period = max(C, fixed) + E(M) + copies
        staleness 0

    Source: FireCaffe; SparkNet, 3.1.1, with batches that are not divided by K.
    """
    return _sync(at, Choice(tau=1), on)


def _sync_ps_slices(at: Setting, choice: Choice) -> Cost:
    """`sync-ps` with the optimiser in slices, one on each agent.

    ::

        period = C + 2 (l + (K-1) message + f (K-1)/K M/r) + copies
        staleness 0

    Source: BigDL; MXNet's synchronous mode.
    """
    exchange = 2 * Slices.stream_s(at, at.model_bytes)
    waits = exchange + at.copies_s
    return Cost(1, at.step_s + waits, waits, exchange, 0, Slices.traffic(at, at.model_bytes))


def _async_ps(at: Setting, choice: Choice) -> Cost:
    """Each agent pushes its change to the driver and pulls the parameters, every tau updates. Also softsync.

    ::

        period = max(tau C + 2 stream + copies, K service)
        tau    = 1 here; `n_push` of a run
        staleness tau: of (K - 1) tau updates of the others, on average

    Source: DistBelief; softsync (Zhang, Gupta, Lian, Liu 2016) sends the same, and only applies it later. Gradient sharing
    does too, where its coded updates are not packed: in 32 bits an element.
    """
    exchange = 2 * Server.stream_s(at, at.model_bytes)
    period = max(at.step_s + exchange + at.copies_s, at.agents * Server.service_s(at, at.model_bytes))
    return Cost(1, period, period - at.step_s, exchange, 1, Server.traffic(at, at.model_bytes))


def _async_ps_slices(at: Setting, choice: Choice) -> Cost:
    """`async-ps` with the server in slices, one on each agent.

    ::

        period = C + 2 (l + (K-1) message + f (K-1)/K M/r) + copies
        staleness 1

    Source: MPCA SGD, 6.3 and 7.1, for MXNet: "at least 104 ms using gigabit Ethernet" beside 90 ms of computing.
    """
    blocking = _sync_ps_slices(at, choice)
    return Cost(1, blocking.period_s, blocking.waits_s, blocking.exchange_s, 1, blocking.traffic)


def _easgd(at: Setting, choice: Choice) -> Cost:
    """Each agent sends the driver its model every tau updates, and waits for the driver's.

    ::

        period = max(tau C + 2 stream + copies, K service)
        tau    = 1.3 K service / C, rounded up, unless it is chosen
        staleness tau / 2: the driver's model holds what each of the others sent in the last round

    Source: MPCA SGD, 3.2.2 and 6.3; there an agent waits for the download alone.
    """
    return _elastic(at, choice, 2)


def _easgd_paper(at: Setting, choice: Choice) -> Cost:
    """Each agent asks the driver every tau updates, waits for the download, and sends its difference while it goes on.

    ::

        period = max(tau C + stream + copies, K service)
        tau and staleness are those of `easgd`

    Source: MPCA SGD, 3.2.2 and 6.3.
    """
    return _elastic(at, choice, 1)


def _elastic(at: Setting, choice: Choice, streams: int) -> Cost:
    exchange = streams * Server.stream_s(at, at.model_bytes)
    queue = at.agents * Server.service_s(at, at.model_bytes)
    tau = _rule(choice, _SPARE * queue / at.step_s)
    period = max(tau * at.step_s + exchange + at.copies_s, queue)
    staleness = tau / 2 if at.agents > 1 else 0
    return Cost(tau, period, period - tau * at.step_s, exchange, staleness, Server.traffic(at, at.model_bytes))


def _gradient_sharing(at: Setting, choice: Choice) -> Cost:
    """Each agent sends an encoded update after every step; the driver passes it on to all others.

    ::

        e      = density M
        period = max(C, K (K-1) e/d, f K e/d, f (K-1) e/r, K^2 message)
        staleness 1

    Source: DL4J, gradient sharing in its plain mode (up to 32 nodes); density: Strom 2015. Time to encode is not counted.
    """
    size, k = choice.density * at.model_bytes, at.agents
    ports = (k * at.others * size / at.driver_port, at.crowd * k * size / at.driver_port, at.crowd * at.others * size / at.port)
    moving = max(*ports, k * k * at.message_s)
    period = max(at.step_s, moving)
    traffic = Traffic(size, at.others * size, k * at.others * size, k * size)
    exchange = 2 * Server.stream_s(at, size)
    return Cost(1, period, period - at.step_s, exchange, 1, traffic)


def _gradient_sharing_peers(at: Setting, choice: Choice) -> Cost:
    """The same, each agent to each other one.

    ::

        period = max(C, f (K-1) e/r, (K-1) message)
        staleness 1

    Source: Strom 2015.
    """
    size = choice.density * at.model_bytes
    period = max(at.step_s, at.crowd * at.others * size / at.port, at.others * at.message_s)
    traffic = Traffic(at.others * size, at.others * size)
    return Cost(1, period, period - at.step_s, Peers.stream_s(at, size), 1, traffic)


def _gossip(at: Setting, choice: Choice) -> Cost:
    """Each agent sends its model to a random other one, every tau updates on average, and goes on.

    ::

        period = max(tau C + copies, stream)
        tau    = 1.3 stream / C, rounded up, unless it is chosen (GoSGD's p is 1 / tau)
        staleness stream / C + tau ceil(log2 K): as many rounds until a model's news is everywhere

    Source: GoSGD (Blot, Picard, Cord, Thome 2016). That news doubles with each round is our reading, and a lower limit.
    """
    exchange = Peers.stream_s(at, at.model_bytes)
    tau = _rule(choice, _SPARE * exchange / at.step_s)
    period = max(tau * at.step_s + at.copies_s, exchange)
    staleness = exchange / at.step_s + tau * at.others.bit_length()
    return Cost(tau, period, period - tau * at.step_s, exchange, staleness, Traffic(at.model_bytes, at.model_bytes))


def _overlap_local_sgd(at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """The mean of the last round is made while this one computes. Also synchronous EASGD and eager DiLoCo.

    ::

        period = max(tau C, E(M)) + copies
        tau    = E(M) / C, rounded up, unless it is chosen
        staleness tau: what is applied is the state of a round ago

    Source: Overlap Local-SGD (Wang, Liang, Joshi 2020); eager updates for DiLoCo: arXiv 2502.12996. Synchronous EASGD needs the
    center of the round before alone (Zhang, Choromanska, LeCun 2015, eq. 2), so that nobody waits here.
    """
    exchange, copies = on.exchange_s(at, at.model_bytes), on.copies_s(at)
    tau = _rule(choice, exchange / at.step_s)
    period = max(tau * at.step_s, exchange) + copies
    return Cost(tau, period, period - tau * at.step_s, exchange, tau, on.traffic(at, at.model_bytes))


def _streaming_diloco(at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """One shard after the other, each every tau updates, on the cycles of `mpca`.

    ::

        period = max(tau C, S cycle) + copies
        tau    = S cycle / C, rounded up, unless it is chosen
        staleness P cycle / C

    Source: Streaming DiLoCo (arXiv 2501.18512), with as many fragments in flight as this engine's cycle has phases.
    """
    shards, cycle = _cycle(at, choice, on)
    tau = _rule(choice, shards * cycle / at.step_s)
    period = max(tau * at.step_s, shards * cycle) + on.copies_s(at)
    staleness = _phases(choice, shards) * cycle / at.step_s
    return Cost(tau, period, period - tau * at.step_s, cycle, staleness, on.traffic(at, at.model_bytes), shards)


def _mpca(at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """Agents never stop; each shard comes as often as the cycles allow.

    ::

        cycle  = a cycle of M/S bytes in P phases
        period = S cycle; copies are waited for
        tau    = (period - copies) / C: n
        staleness P cycle / C: P n / S

    Source: MPCA SGD, 4.2 and figures 6 to 9.
    """
    shards, cycle = _cycle(at, choice, on)
    period = max(shards * cycle, on.copies_s(at) + at.step_s)
    waits = on.copies_s(at)
    staleness = _phases(choice, shards) * cycle / at.step_s
    return Cost((period - waits) / at.step_s, period, waits, cycle, staleness, on.traffic(at, at.model_bytes), shards)


def _ddp(at: Setting, choice: Choice) -> Cost:
    """PyTorch's DistributedDataParallel: gradients are all-reduced while the backward pass goes on.

    ::

        period = C/3 + max(2 C/3, all-reduce)
        staleness 0

    Source: two thirds of a step are the backward pass. All of it is taken to overlap, so this is a lower limit.
    """
    exchange = Ring.all_reduce_s(at, at.model_bytes)
    period = at.step_s / 3 + max(2 * at.step_s / 3, exchange)
    return Cost(1, period, period - at.step_s, exchange, 0, Ring.traffic(at, at.model_bytes))


def _local_sgd(at: Setting, choice: Choice) -> Cost:
    """Models are averaged by an all-reduce every tau updates: `torch.distributed`'s post-local SGD.

    ::

        period = tau C + all-reduce
        tau    = 5 all-reduce / C, rounded, unless it is chosen
        staleness 0

    Source: Lin, Stich, Patel, Jaggi 2020; tau by the rule of `sync`.
    """
    exchange = Ring.all_reduce_s(at, at.model_bytes)
    tau = choice.tau if choice.tau is not None else max(1, round(_SHARE * exchange / at.step_s))
    return Cost(tau, tau * at.step_s + exchange, exchange, exchange, 0, Ring.traffic(at, at.model_bytes))


def _cycle(at: Setting, choice: Choice, on: Coordinated) -> tuple[int, float]:
    """S, and the seconds of a cycle."""
    shards = choice.shards or shards_for(lambda share: on.cycle_s(at, share * at.model_bytes, 3))
    return shards, on.cycle_s(at, at.model_bytes / shards, _phases(choice, shards))


def _phases(choice: Choice, shards: int) -> int:
    return min(choice.phases, shards)


@dataclass(frozen=True)
class Row:
    """One method on one kind of transport."""

    method: str
    formula: Formula | OnCycles
    transport: str | None = None
    """Its only transport; None: any of `COORDINATED`."""
    peer: bool = False
    """Not this engine's: what users have beside it, or a form of a method that it does not have."""
    shards: int | None = None
    """S of this row, if the choice does not say it."""


#: Every method of the papers and its peers. A method with two forms has two rows.
ROWS: tuple[Row, ...] = (
    Row("single", _single, "none"),
    Row("sync", _sync),
    Row("sync-easgd", _overlap_local_sgd),
    Row("dl4j-averaging", _sync),
    Row("dl4j-averaging-2M", _dl4j_momentum),  # with the optimisers' state: method.updater = "average"
    Row("dl4j-averaging-3M", _dl4j_adam),
    Row("sync-ps", _sync_ps),
    Row("sync-ps", _sync_ps_slices, Slices.name),
    Row("async-ps", _async_ps, Server.name),
    Row("async-ps", _async_ps_slices, Slices.name),
    Row("softsync", _async_ps, Server.name),
    Row("easgd", _easgd, Server.name),
    Row("easgd", _easgd_paper, Server.name, peer=True),
    Row("gradient-sharing", _async_ps, Server.name),
    Row("gradient-sharing", _gradient_sharing, Server.name, peer=True),
    Row("gradient-sharing", _gradient_sharing_peers, Peers.name),
    Row("gossip", _gossip, Peers.name),
    Row("overlap-local-sgd", _overlap_local_sgd),
    Row("diloco", _sync),
    Row("diloco-eager", _overlap_local_sgd),
    Row("diloco-streaming", _streaming_diloco),
    Row("mpca", _mpca),
    Row("mpca", _mpca, shards=0),
    Row("ddp", _ddp, Ring.name, peer=True),
    Row("local-sgd", _local_sgd, Ring.name, peer=True),
)


#: Transports without cycles.
_DIRECT = (Server, Slices, Peers, Ring)


def cost(row: Row, at: Setting, choice: Choice, on: Coordinated) -> Cost:
    """The cost of a row; `on` is the transport of coordinated methods."""
    formula: Callable[..., Cost] = row.formula
    return formula(at, choice) if row.transport is not None else formula(at, choice, on)


@dataclass(frozen=True)
class Said:
    """One formula as text, with the rows that have it."""

    rows: tuple[str, ...]
    transport: str
    formula: str
    source: str

    def lines(self) -> list[str]:
        """For a terminal or a file of text."""
        transport = f" ({self.transport})" if self.transport else ""
        source = wrap(f"Source: {self.source}", 116, break_on_hyphens=False)
        return [", ".join(self.rows) + transport, *(f"    {line}" for line in (*self.formula.splitlines(), *source))]


def formulas(on: Coordinated | None = None) -> list[Said]:
    """The table as text: every formula of `ROWS`, and of every transport.

    Args:
        on: the transport of coordinated methods; None: all of them.
    """
    coordinated = [on] if on else list(COORDINATED.values())
    words = ", ".join(one.title for one in coordinated)
    titles = {one.name: one.title for one in _DIRECT}
    rows: dict[tuple[object, str], list[str]] = {}
    for row in ROWS:
        if row.shards is None:
            transport = words if row.transport is None else titles.get(row.transport, "")
            rows.setdefault((row.formula, transport), []).append(row.method + " *" * row.peer)
    said = [Said(tuple(names), transport, *_said(formula)) for (formula, transport), names in rows.items()]
    said += [Said((f"transport {each.title}",), "", *_said(type(each))) for each in coordinated]
    said.append(Said(("a cycle",), "", *_said(Coordinated.cycle_s)))
    return said + [Said((f"transport {one.title}",), "", *_said(one)) for one in _DIRECT]


def _said(formula: object) -> tuple[str, str]:
    """The formula and the source that a docstring has."""
    text = inspect.getdoc(formula) or ""
    body, _, source = text.partition("::\n\n")[2].partition("\n\nSource: ")
    return inspect.cleandoc(body), " ".join(source.split())
