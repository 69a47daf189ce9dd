"""What `mpca compare` is asked: a TOML file with [compare], a [[method]] for each row of the table, and parts.

[compare] holds for all methods. A [[method]] has a label, the method's name and its numbers as in [method] of a run; a list in
its `tune` is tuned. A part, [quick] or [digits], replaces keys of [compare] by a flag of its name. It may name the `methods`
that are left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from mpca.checks import knobs, nearest, parse, refused, unknown
from mpca.config.sources import read_tables
from mpca.errors import ConfigError
from mpca.methods import METHODS, Method, from_dict
from mpca.models import OPTIMIZERS
from mpca.sim.papers import MODELS, of_paper
from mpca.sim.transports import COORDINATED, Setting
from mpca.units import parse_rate

__all__ = ["ALONE", "MOST_SEEDS", "PARTS", "Conf", "Entry", "Knobs", "Shared", "exchange_of", "load", "setting_of"]

#: Values of what is tuned, by name.
Knobs = Mapping[str, Any]

#: b/C of runs that exchange nothing.
ALONE = "0"
#: Sections that replace keys of [compare], each by a flag of its name.
PARTS = ("quick", "digits")
MOST_SEEDS = 1000  # that are reported, and that choose: each has a range of its own
_LEAST_RATES = 3  # so that an optimum can lie inside
_MOST_SETTINGS = 64
_NUMBER: Any = field(default=1.0)  # a knob that is any number
_LONG = 1000.0  # updates of an exchange, where none is known
_TAIL = " E"  # "2.5 E": 2.5 times the updates that one exchange of the whole model takes


@dataclass(frozen=True)
class Shared:
    """[compare]: what holds for all methods."""

    task: str = "mixture"
    """What is learnt: "mixture" or "warped-digits"."""
    agents: tuple[int, ...] = (8,)
    """Each K to compare at."""
    ratios: tuple[str, ...] = ("ResNet-110", "ResNet-152", "VGG-A")
    """Each b/C to compare at: how many updates it takes to send the model once; or a model of the paper, for its b/C and C."""
    step: float = field(default=0.1, metadata={"quantity": "duration"})
    """C, where b/C is a number: with `bandwidth` it says how large the model is."""
    bandwidth: str = "1gbit"
    """Of each link, where b/C is a number."""
    transport: str = "paper"
    """Of coordinated methods: "relay", "tree" or "paper"."""
    optimizer: str = "adam"
    """"adam", "adamw", "nesterov" or "sgd"."""
    batch: int = 16
    """Samples in a batch of one agent."""
    rates: tuple[float, ...] = (0.001, 0.016)
    """Smallest and largest learning rate of the first grid."""
    trials: int = 15
    """Of each method in the first grid: rates times what is tuned."""
    rounds: int = 4
    """At most so often a grid is extended where an optimum lies at its edge."""
    updates: int = 1200
    """How long K agents train: the time of so many updates of one."""
    single_updates: int = 4000
    """The same of one agent alone."""
    seeds: int = 5
    """Number of runs that are reported."""
    tuning_seeds: int = 2
    """Number of other runs, by which a method's numbers are chosen."""
    target_shares: tuple[float, ...] = (0.25, 0.75)
    """The targets are the errors that `single` has reached after these shares of its time."""
    spread: float = 0.1
    """The slowest agent's update takes this share longer than the fastest one's."""
    points: int = 96
    """Evaluations in the time of `updates`. A run of another length is evaluated as often."""
    tested: int = 2000
    """Samples of an evaluation."""
    seed: int = 0
    """Of everything."""

    def __post_init__(self) -> None:
        from mpca.sim.science.lesson import TASKS

        for key, allowed in (("task", TASKS), ("transport", COORDINATED), ("optimizer", OPTIMIZERS)):
            if getattr(self, key) not in allowed:
                raise refused(f"compare.{key}", getattr(self, key), f"must be one of {', '.join(allowed)}")
        for key in ("batch", "trials", "updates", "single_updates", "seeds", "tuning_seeds", "tested", "step"):
            if not getattr(self, key) > 0:
                raise refused(f"compare.{key}", getattr(self, key), "must be above 0")
        for key in ("rounds", "spread", "seed"):
            if getattr(self, key) < 0:
                raise refused(f"compare.{key}", getattr(self, key), "must be 0 or more")
        for key in ("seeds", "tuning_seeds"):
            if getattr(self, key) > MOST_SEEDS:
                raise refused(f"compare.{key}", getattr(self, key), f"must be at most {MOST_SEEDS}")
        if self.points < 2:
            raise refused("compare.points", self.points, "must be 2 or more")
        if min(self.agents) < 2:
            raise refused("compare.agents", list(self.agents), "each must be 2 or more; `single` is one agent")
        if not all(0 < share <= 1 for share in self.target_shares):
            raise refused("compare.target_shares", list(self.target_shares), "each must lie above 0, and be at most 1")
        for key in ("agents", "ratios"):
            values = getattr(self, key)
            if len(set(values)) < len(values):
                raise refused(f"compare.{key}", list(values), "has a value twice")
        _check_rates("compare.rates", self.rates)
        try:
            rate = parse_rate(self.bandwidth)
        except ValueError as error:
            raise refused("compare.bandwidth", self.bandwidth, str(error)) from None
        if not rate > 0:
            raise refused("compare.bandwidth", self.bandwidth, "must be above 0")
        for ratio in self.ratios:
            _check_ratio(ratio)


def _check_rates(key: str, rates: tuple[float, ...]) -> None:
    """Refuse what is no range of learning rates."""
    if len(rates) != 2 or not 0 < rates[0] < rates[1]:
        raise refused(key, list(rates), "must be the smallest and the largest rate of the first grid, such as [0.001, 0.016]")


def _check_ratio(ratio: str) -> None:
    try:
        fits = ratio in MODELS or 0 < float(ratio) < 1e6
    except ValueError:
        fits = False
    if not fits:
        raise refused("compare.ratios", ratio, f"must be a number above 0, or a model of the paper; {nearest(ratio, MODELS)}")


def setting_of(ratio: str, agents: int, step_s: float, bandwidth: str) -> Setting:
    """Cluster and model of a b/C. With `ALONE` nothing is sent."""
    if ratio in MODELS:
        return of_paper(MODELS[ratio], agents)
    rate = parse_rate(bandwidth) / 8
    return Setting(agents, float(ratio) * step_s * rate, step_s, rate)


def exchange_of(shared: Shared, agents: int, ratio: str) -> float:
    """E: how many updates one exchange of the whole model takes, for agents that wait."""
    at = setting_of(ratio, agents, shared.step, shared.bandwidth)
    return COORDINATED[shared.transport].exchange_s(at, at.model_bytes) / at.step_s


@dataclass(frozen=True)
class Entry:
    """[[method]]: one row of the table."""

    label: str
    name: str
    """A name of `methods.METHODS`."""
    numbers: Knobs = field(default_factory=dict)
    """Of the method, that are not tuned."""
    tune: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """What is tuned: each value that the first grid has."""
    control: bool = False
    """A control is shown beside the methods, not among them."""
    k_batch: bool = False
    """One agent with a batch K times as large: K agents whose communication is free."""
    contested: int = 0
    """So many of the agents have half of their machine: their updates take twice as long (MPCA SGD, figure 10c)."""
    optimizer: str = ""
    """Empty: that of [compare]."""
    rates: tuple[float, ...] = ()
    """Empty: those of [compare]."""

    @property
    def reference(self) -> bool:
        """Whether targets and speed-ups are those of this row."""
        return self.name == "single" and not (self.numbers or self.tune or self.control or self.k_batch or self.contested)

    def method(self, knobs: Knobs) -> Method:
        """The method with these values of what is tuned.

        Raises:
            ConfigError: the method refuses a value.
        """
        return from_dict({"name": self.name, **self.numbers, **knobs})

    def alone(self, agents: int) -> bool:
        """Whether it runs as one agent, whatever K is."""
        return self.method(self.grid(_LONG)[0]).agents(agents) == 1

    def grid(self, exchange: float) -> list[dict[str, Any]]:
        """What the first grid has of what is tuned; `exchange`: updates that one exchange of the whole model takes."""
        lists = [[_resolved(one, exchange) for one in values] for values in self.tune.values()]
        return [dict(zip(self.tune, one, strict=True)) for one in product(*lists)]


def _resolved(value: Any, exchange: float) -> Any:
    if isinstance(value, str) and value.endswith(_TAIL):
        return max(1, round(float(value.removesuffix(_TAIL)) * exchange))
    return value


@dataclass(frozen=True)
class Conf:
    """A whole file."""

    shared: Shared
    entries: tuple[Entry, ...]

    @property
    def reference(self) -> Entry:
        """`single`."""
        return next(one for one in self.entries if one.reference)


def load(path: str | os.PathLike[str], part: str = "") -> Conf:
    """Read a file.

    Args:
        path: TOML.
        part: apply this one of `PARTS`.

    Raises:
        ConfigError: what is wrong, where, and what is near it.
    """
    try:
        return _conf(read_tables(path), part)
    except ConfigError as error:
        if str(path) in str(error):
            raise
        raise ConfigError(f"{error} ({path})") from None


def _conf(tables: Mapping[str, Any], part: str) -> Conf:
    sections = ("compare", "method", *PARTS)
    for name in tables:
        if name not in sections:
            raise ConfigError(f"unknown section [{name}]: {nearest(name, sections)}")
    if part and part not in tables:
        raise ConfigError(f"--{part} needs a section [{part}] with the keys that it replaces: there is none")
    shared = _table("compare", tables.get("compare", {}))
    found = tables.get("method", [])
    if not isinstance(found, list) or not found:
        raise ConfigError("no methods to compare: write a [[method]] with a label and a name for each")
    entries = [_entry(_table("method", one)) for one in found]
    labels = [one.label for one in entries]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"two methods have the label {label!r}")
    confs = {"": Conf(_shared("compare", shared), tuple(entries))}
    for name in (one for one in PARTS if one in tables):  # a mistake in a part is found without its flag too
        replaced = _table(name, tables[name])
        left = _list(f"{name}.methods", replaced.pop("methods", labels), "")
        for label in left:
            if label not in labels:
                raise refused(f"{name}.methods", label, f"no such label; {nearest(label, labels)}")
        confs[name] = Conf(_shared(name, {**shared, **replaced}), tuple(one for one in entries if one.label in left))
    conf = confs[part]
    if sum(one.reference for one in conf.entries) != 1:
        raise ConfigError('targets come from one [[method]] with name = "single" and nothing tuned: there must be one such')
    for entry in conf.entries:
        _check_grid(conf.shared, entry)
    return conf


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} = {value!r}: is a section; write [{name}] and its keys below it")
    return dict(value)


def _shared(section: str, values: Mapping[str, Any]) -> Shared:
    known, read = knobs(Shared), dict(values)
    for name, value in values.items():
        if name not in known:
            raise unknown(f"{section}.{name}", [*known, "methods"] if section in PARTS else known)
        default = known[name].default
        if isinstance(default, tuple):
            read[name] = _list(f"{section}.{name}", value, default[0])
        else:
            read[name] = parse(f"{section}.{name}", known[name], value)
    return Shared(**read)


def _list(key: str, value: Any, like: Any) -> tuple[Any, ...]:
    """A list whose elements are of the type of `like`."""
    if not isinstance(value, list) or not value:
        raise refused(key, value, "must be a list that is not empty")
    texts = isinstance(like, str)
    return tuple(parse(key, field(default=like), str(one) if texts else one) for one in value)


def _entry(values: dict[str, Any]) -> Entry:
    name = values.pop("name", None)
    if not isinstance(name, str) or name not in METHODS:
        raise refused("method.name", name, f"no such method; {nearest(str(name), METHODS)}")
    label = values.pop("label", name)
    if not isinstance(label, str) or not label:
        raise refused("method.label", label, "must be text")
    section = f"method {label!r}"
    tune = _table(f"{section}.tune", values.pop("tune", {}))
    rates = _list(f"{section}.rates", values.pop("rates"), 0.1) if "rates" in values else ()
    if rates:
        _check_rates(f"{section}.rates", rates)
    own = {key: knob for key, knob in knobs(Entry).items() if key in ("control", "k_batch", "contested", "optimizer")}
    read = {key: parse(f"{section}.{key}", knob, values.pop(key)) for key, knob in own.items() if key in values}
    of_method = knobs(METHODS[name])
    for key in (*values, *tune):
        if key not in of_method:
            raise unknown(f"{section}.{key}", [*of_method, *own, "label", "name", "tune", "rates"])
    for key, value in tune.items():
        if not isinstance(value, list) or not value:
            raise refused(f"{section}.tune.{key}", value, "must be a list of values to try")
    tuned = {key: _tuned(f"{section}.tune.{key}", of_method[key], value) for key, value in tune.items()}
    return _checked(Entry(label, name, values, tuned, rates=rates, **read))


def _tuned(key: str, knob: Any, values: list[Any]) -> tuple[Any, ...]:
    """Values to try, sorted where they are numbers."""
    read = []
    for value in values:
        if isinstance(value, str) and value.endswith(_TAIL):
            parse(key, _NUMBER, value.removesuffix(_TAIL))
            read.append(value)
        else:
            read.append(parse(key, knob, value))
    return tuple(read)


def _checked(entry: Entry) -> Entry:
    section = f"method {entry.label!r}"
    if entry.optimizer and entry.optimizer not in OPTIMIZERS:
        raise refused(f"{section}.optimizer", entry.optimizer, f"must be one of {', '.join(OPTIMIZERS)}")
    if entry.contested < 0:
        raise refused(f"{section}.contested", entry.contested, "must be 0 or more")
    if prod(len(one) for one in entry.tune.values()) > _MOST_SETTINGS:
        raise refused(f"{section}.tune", dict(entry.tune), f"has more than {_MOST_SETTINGS} combinations")
    if entry.k_batch and not entry.alone(2):
        raise refused(f"{section}.k_batch", True, 'is one agent with a larger batch: it needs name = "single"')
    return entry


def _check_grid(shared: Shared, entry: Entry) -> None:
    """Refuse what a method refuses at one of the bandwidths, and a first grid that is no fair one."""
    for agents, ratio in product(shared.agents, shared.ratios):
        grid = entry.grid(exchange_of(shared, agents, ratio))
        for one in grid:
            entry.method(one)
        if any(one in grid[:number] for number, one in enumerate(grid)):
            raise refused(
                f"method {entry.label!r}.tune",
                dict(entry.tune),
                f"has equal settings at K = {agents}, b/C = {ratio} ({grid}): the row would have fewer trials than others",
            )
    settings = len(entry.grid(_LONG))
    if shared.trials % settings or shared.trials // settings < _LEAST_RATES:
        raise refused(
            "compare.trials",
            shared.trials,
            f"must be a multiple of {settings}, and at least {_LEAST_RATES * settings}: {entry.label!r} has {settings} "
            f"settings in its tune, and every method gets the same number of trials",
        )
