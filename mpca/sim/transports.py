"""What the transports cost: seconds on the wire and bytes, one formula a transport. What methods make of it: `cost_table.py`.

Every port (a host's, one direction) carries `Setting.rate` bytes a second, and the core between the ports is wide enough. In
the formulas m are the bytes that move, M is the whole model, K the number of agents, r the rate of an agent's port, d that of
the driver's, l the latency, D = ceil(log2(K + 1)) the depth of a binary tree of K agents below a driver, and f is
`Setting.incast` where several hosts send into one port at once (K > 1), else 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

__all__ = ["COORDINATED", "Coordinated", "Paper", "Peers", "Relay", "Ring", "Server", "Setting", "Slices", "Traffic", "Tree"]


@dataclass(frozen=True)
class Setting:
    """A cluster, a model, and what parts of the engine cost. The defaults are measured, as said at each."""

    agents: int
    """K: each on a host of its own."""
    model_bytes: float
    """M: all that is exchanged, as float32."""
    step_s: float
    """C: one update of one agent, with nothing else going on."""
    rate: float
    """Bytes a second of a host's port, each direction; `math.inf`: the wire costs nothing."""
    driver_rate: float | None = None
    """The same of the driver's port; None: as the others."""
    latency_s: float = 0.0002
    """Of a message, one way; of two hosts at one Ethernet switch."""
    message_s: float = 72e-6
    """Of the driver's one thread that handles messages, for each. Measured: reports of blocks in a relay, Spark 3.5."""
    job_s: float = 0.075
    """Of a cycle, whatever it moves. Measured: cycles of 30 KiB, 0.070 to 0.083 at K = 4, and 0.15 at K = 8 on two cores."""
    incast: float = 1.0
    """How many times longer a port takes when several hosts send into it at once, 1 or more. 1: switches with large buffers."""
    engine_rate: float = 2.5e9 / 8
    """Bytes a second above which the engine and not the wire is the limit. Measured: 1.0 to 2.5 Gbit/s for a core of an
    executor, 2.2 to 2.9 for the driver's Python."""
    prepare_rate: float = 1e9 / 1.3
    """Bytes a second of the driver's merge and projection. Measured: 1.3 s a GB."""
    copy_rate: float = 6e9
    """Bytes a second between a GPU and its host: PCIe 3 with 16 lanes, half used. A plan lets an agent stand still meanwhile,
    as one on a CPU does; on a GPU it trains on."""

    @property
    def port(self) -> float:
        """r: what an agent's port carries of the engine's bytes."""
        return min(self.rate, self.engine_rate)

    @property
    def driver_port(self) -> float:
        """d: the same of the driver's."""
        return min(self.rate if self.driver_rate is None else self.driver_rate, self.engine_rate)

    @property
    def narrow(self) -> float:
        """The narrower of both, which limits one stream between driver and agent."""
        return min(self.port, self.driver_port)

    @property
    def crowd(self) -> float:
        """f: `incast`, where there is more than one sender."""
        return self.incast if self.agents > 1 else 1

    @property
    def others(self) -> int:
        """K - 1."""
        return self.agents - 1

    @property
    def depth(self) -> int:
        """D."""
        return self.agents.bit_length()

    @property
    def copies_s(self) -> float:
        """An agent stands still for one snapshot of its model and one arrival: 2 M / copy_rate."""
        return 2 * self.model_bytes / self.copy_rate


@dataclass(frozen=True)
class Traffic:
    """Bytes that move: of one agent on average, and of the driver's port. Control messages are not counted."""

    agent_out: float = 0
    agent_in: float = 0
    driver_out: float = 0
    driver_in: float = 0

    def times(self, factor: float) -> Traffic:
        """The traffic of `factor` such moves."""
        return Traffic(self.agent_out * factor, self.agent_in * factor, self.driver_out * factor, self.driver_in * factor)


class Coordinated(ABC):
    """A reduction and a broadcast that the driver orders, in cycles (`driver/cycle.py`)."""

    name: str
    title: str

    @abstractmethod
    def reduce_s(self, at: Setting, size: float) -> float:
        """From the first byte of a reduction to its last."""

    @abstractmethod
    def broadcast_s(self, at: Setting, size: float) -> float:
        """From the first byte of a broadcast to its last."""

    @abstractmethod
    def together_s(self, at: Setting, size: float) -> float:
        """Reduction of one shard while another one of the same size is broadcast."""

    @abstractmethod
    def traffic(self, at: Setting, size: float) -> Traffic:
        """Bytes of one reduction and one broadcast."""

    def fixed_s(self, at: Setting) -> float:
        """Of one job, whatever it moves."""
        return at.job_s

    def prepare_s(self, at: Setting, size: float) -> float:
        """The driver makes the joint state: m / prepare_rate."""
        return size / at.prepare_rate

    def copies_s(self, at: Setting) -> float:
        """How long an agent stands still for the copies of one refresh of the model."""
        return at.copies_s

    def freeze_s(self, at: Setting) -> float:
        """Until the last of K agents that train has ended its present update, of C seconds: K / (K + 1) C on average."""
        return at.agents * at.step_s / (at.agents + 1)

    def ask_s(self, at: Setting) -> float:
        """With one phase, a job of its own asks agents for a shard, before the exchange."""
        return self.fixed_s(at)

    def exchange_s(self, at: Setting, size: float) -> float:
        """E: one exchange of agents that wait for it. It is two jobs: 2 fixed + reduce + prepare + broadcast."""
        return 2 * self.fixed_s(at) + self.reduce_s(at, size) + self.prepare_s(at, size) + self.broadcast_s(at, size)

    def cycle_s(self, at: Setting, size: float, phases: int) -> float:
        """One cycle of shards of `size` bytes, in which the stages of that many phases run at once.

        ::

            E         2 fixed + reduce + prepare + broadcast, for agents that wait
            1 phase   fixed + freeze + E
            2 phases  fixed + max(together, reduce + freeze) + prepare
            3 phases  fixed + max(together, reduce + freeze, prepare)
            freeze    K/(K+1) C: the last agent ends its present update; the next shard is frozen when this one is reduced

        Source: MPCA SGD, 4.2 and figures 6 to 8; the jobs are those of `driver/cycle.py`, where every stage of a cycle ends
        before the next one begins.
        """
        if phases == 1:
            return self.ask_s(at) + self.freeze_s(at) + self.exchange_s(at, size)
        prepare = self.prepare_s(at, size)
        moving = max(self.together_s(at, size), self.reduce_s(at, size) + self.freeze_s(at))
        return self.fixed_s(at) + (moving + prepare if phases == 2 else max(moving, prepare))


@dataclass(frozen=True)
class Relay(Coordinated):
    """This engine's: each executor sums one range of chunks and sends it on; executors relay the driver's pieces to each other.

    ::

        reduce     2 l + u max(m/r, f m/d)                          an agent sends m; the driver receives m
        broadcast  2 l + max(u f m/r, u m/d, 5 K message)            the driver sends m; an agent receives m, relays (K-1)/K m
        together   4 l + max(v f (2K-1)/K m/r, v f m/d, 5 K message)
        exchange   2.0 M/r on the wire, times u; whole model in phases: (2K-1)/K M/r, times v

    Source: the layout of `cluster.reducer = "ranges"` and `cluster.broadcast = "relay"`; both stream, so a stage takes one
    model time. u and v are what `mpca bench exchange` measured over that, at 30 and 100 Mbit/s: kappa 2.6 (K = 4) to 3.0 (K =
    8), P/b 1.94 to 2.27. The driver hears five words of an executor a cycle: its task runs and has ended, it asks who has the
    job's closure and has it, and it has the broadcast.
    """

    blocking: float = 1.4
    """u."""
    overlapped: float = 1.125
    """v."""
    name = "relay"
    title = "ranges+relay"

    def reduce_s(self, at: Setting, size: float) -> float:
        return 2 * at.latency_s + self.blocking * max(size / at.port, at.crowd * size / at.driver_port)

    def broadcast_s(self, at: Setting, size: float) -> float:
        wire = max(at.crowd * size / at.port, size / at.driver_port)
        return 2 * at.latency_s + max(self.blocking * wire, self._messages_s(at))

    def together_s(self, at: Setting, size: float) -> float:
        both = size * (at.agents + at.others) / at.agents
        wire = at.crowd * max(both / at.port, size / at.driver_port)
        return 4 * at.latency_s + max(self.overlapped * wire, self._messages_s(at))

    def traffic(self, at: Setting, size: float) -> Traffic:
        both = size * (at.agents + at.others) / at.agents
        return Traffic(both, both, size, size)

    @staticmethod
    def _messages_s(at: Setting) -> float:
        return 5 * at.agents * at.message_s


@dataclass(frozen=True)
class Tree(Coordinated):
    """Spark's own: a binary reduction tree that stores and forwards, and the torrent broadcast.

    ::

        reduce     D l + u D m / min(r, d)       the driver receives D m
        broadcast  D l + u H_K m/d               H_K = 1 + 1/2 + ... + 1/K: so often does a piece leave the driver
        together   D l + u max(D m / min(r, d), H_K m/d)

    Source: MPCA SGD, 3.1 and figure 9 (depth, roles); H_K: executors take pieces in random order, each from a random holder. u
    is measured over that: kappa 10.3 of a prototype at K = 8. With phases it was not measured, and is taken to be the same.
    """

    slack: float = 1.55
    """u."""
    name = "tree"
    title = "tree+torrent"

    def reduce_s(self, at: Setting, size: float) -> float:
        return at.depth * (at.latency_s + self.slack * size / at.narrow)

    def broadcast_s(self, at: Setting, size: float) -> float:
        return at.depth * at.latency_s + self.slack * max(_harmonic(at.agents) * size / at.driver_port, size / at.port)

    def together_s(self, at: Setting, size: float) -> float:
        return max(self.reduce_s(at, size), self.broadcast_s(at, size))

    def traffic(self, at: Setting, size: float) -> Traffic:
        seeded = _harmonic(at.agents)
        relayed = (at.agents - seeded) / at.agents * size
        summed = (at.agents - at.depth) / at.agents * size
        return Traffic(size + relayed, size + summed, seeded * size, at.depth * size)


@dataclass(frozen=True)
class Paper(Coordinated):
    """The exchange as the paper measured it, 1 Gbit/s and K = 8, copies and serialisation included.

    ::

        exchange   0.54 s + 12.3 M/r at K = 8
        reduce     2.46 D m/r        broadcast  2.46 m/r        together  max of both
        fixed      0.27 s: a blocking exchange is two jobs, and a cycle of two or three phases one
        freeze, prepare and copies  0: in what was measured

    Source: MPCA SGD, Table 1: the least squares line through its four models is 0.54 s + 12.3 b. The split of 12.3 into D = 4
    hops up and one down, and with it every other K, is our reading: the paper measured the sum, at K = 8 alone.
    """

    hop: float = 12.3 / 5
    """Model times that a hop takes."""
    exchange_fixed_s: float = 0.54
    name = "paper"
    title = "the paper's"

    def reduce_s(self, at: Setting, size: float) -> float:
        return self.hop * at.depth * size / at.rate

    def broadcast_s(self, at: Setting, size: float) -> float:
        return self.hop * size / at.rate

    def together_s(self, at: Setting, size: float) -> float:
        return max(self.reduce_s(at, size), self.broadcast_s(at, size))

    def fixed_s(self, at: Setting) -> float:
        return self.exchange_fixed_s / 2

    def ask_s(self, at: Setting) -> float:
        return 0.0

    def freeze_s(self, at: Setting) -> float:
        return 0.0

    def prepare_s(self, at: Setting, size: float) -> float:
        return 0.0

    def copies_s(self, at: Setting) -> float:
        return 0.0

    def traffic(self, at: Setting, size: float) -> Traffic:
        return Tree().traffic(at, size)


class Server:
    """One-to-one through the driver's port: a server that serves agents one after the other, in the order of their messages.

    ::

        stream   2 l + 2 message + M / min(r, d)    one model, one way, to one agent
        service  2 message + M / min(r, d)          what one exchange occupies: a download runs beside the upload before it
        K agents can be served once in K x service

    Source: EASGD, MPCA SGD 3.2.2: "the time to download and update, times the number of workers". That download and upload of
    neighbours overlap is our reading; with it the paper's "minimal permissible tau" of 7 comes out (its 7.1).
    """

    name = "server"
    title = "driver's port"

    @staticmethod
    def service_s(at: Setting, size: float) -> float:
        return 2 * at.message_s + size / at.narrow

    @staticmethod
    def stream_s(at: Setting, size: float) -> float:
        return 2 * at.latency_s + Server.service_s(at, size)

    @staticmethod
    def traffic(at: Setting, size: float) -> Traffic:
        return Traffic(size, size, at.agents * size, at.agents * size)


class Slices:
    """A server on every agent, each for one K-th of the model: no port is the bottleneck, and every host talks to every other.

    ::

        push or pull   l + (K-1) message + f (K-1)/K M/r

    Source: MPCA SGD, 6.3 and 7.1 (MXNet): 7/8 of the gradients are pushed and 7/8 of the parameters fetched, one after the
    other. BigDL's parameter manager has the same layout.
    """

    name = "slices"
    title = "a slice an agent"

    @staticmethod
    def stream_s(at: Setting, size: float) -> float:
        return at.latency_s + at.others * at.message_s + at.crowd * size * at.others / at.agents / at.port

    @staticmethod
    def traffic(at: Setting, size: float) -> Traffic:
        share = 2 * size * at.others / at.agents
        return Traffic(share, share)


class Peers:
    """From one agent straight to another.

    ::

        stream   l + message + f m/r

    Source: GoSGD; Strom's gradient sharing sends one such message to each of the others.
    """

    name = "peers"
    title = "agent to agent"

    @staticmethod
    def stream_s(at: Setting, size: float) -> float:
        return at.latency_s + at.message_s + at.crowd * size / at.port


class Ring:
    """A ring all-reduce, as gloo and NCCL make it: not this engine's, for comparison.

    ::

        all-reduce   2 (K-1) l + 2 (K-1)/K M/rate

    Source: Patarasuk and Yuan, 2009. Without what gloo itself costs: a lower limit.
    """

    name = "ring"
    title = "ring all-reduce"

    @staticmethod
    def all_reduce_s(at: Setting, size: float) -> float:
        return 2 * at.others * at.latency_s + 2 * size * at.others / at.agents / at.rate

    @staticmethod
    def traffic(at: Setting, size: float) -> Traffic:
        share = 2 * size * at.others / at.agents
        return Traffic(share, share)


def _harmonic(count: int) -> float:
    """H_count = 1 + 1/2 + ... + 1/count."""
    return sum(1 / one for one in range(1, count + 1))


#: The transports of coordinated methods, by name.
COORDINATED: dict[str, Coordinated] = {one.name: one for one in (Relay(), Tree(), Paper())}
