"""`mpca simulate --plan`: what each method would do on a cluster, by formulas, before anybody rents or asks for one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from itertools import chain

import click

from mpca.checks import refused
from mpca.cli.options import SIZE, Parsed, json_option
from mpca.cli.sheets import show
from mpca.units import parse_duration, parse_rate

__all__ = ["simulate"]

_MOST_AGENTS = 1 << 20


def _counts(text: str) -> tuple[int, ...]:
    """K as a number, several with commas, or a range that doubles: "8", "2,4,8", "2..1024"."""
    first, dots, last = text.partition("..")
    try:
        found = tuple(int(one) for one in ((first, last) if dots else text.split(",")))
    except ValueError:
        raise ValueError(f"not a number of agents: {text!r}; write 8, or 2,4,8, or 2..1024 for doublings") from None
    if not all(1 <= one <= _MOST_AGENTS for one in found) or (dots and found[0] > found[1]):
        raise ValueError(f"not a number of agents: {text!r}; each must lie in 1..{_MOST_AGENTS}, and a range must rise")
    if dots:
        doublings = (found[0] << power for power in range(found[1].bit_length()))
        found = tuple(one for one in doublings if one <= found[1])
    return tuple(dict.fromkeys(found))


DURATION = Parsed("duration", parse_duration)
RATE = Parsed("rate", parse_rate)
COUNTS = Parsed("agents", _counts)


@click.command()
@click.option("--plan", "planned", is_flag=True, help="Compute by formulas; there is no other way yet.")
@click.option("--step", "step_s", type=DURATION, required=True, help="C: one update on one machine, as you measured it.")
@click.option("--size", "size_bytes", type=SIZE, required=True, help="M: bytes of the model's parameters (4 each).")
@click.option("--agents", "counts", type=COUNTS, default="8", show_default=True, help="K: 8, or 2,4,8, or 2..1024 (doublings).")
@click.option("--bandwidth", type=RATE, default="1gbit", show_default=True, help="Of each machine's link, each direction.")
@click.option("--driver-bandwidth", type=RATE, help="Of the driver's link, if it is another one.")
@click.option("--latency", "latency_s", type=DURATION, default="0.2ms", show_default=True, help="Of a message, one way.")
@click.option(
    "--incast", default=1.0, show_default=True, help="How many times longer a link takes when several machines send into it."
)
@click.option("--transport", type=click.Choice(["relay", "tree", "paper"]), default="relay", show_default=True)
@click.option(
    "--tau", type=click.IntRange(1), help="Updates between exchanges, where a method has them; by its rule if not given."
)
@click.option("--shards", type=click.IntRange(1), default=3, show_default=True, help="S of mpca and of streaming diloco.")
@click.option("--phases", type=click.IntRange(1, 3), default=3, show_default=True, help="P, at most S.")
@click.option("--engine-rate", type=RATE, help="What this engine carries, if you measured more than 2.5 Gbit/s.")
@click.option("--formulas", is_flag=True, help="Print the formula and the source of every row too.")
@json_option
def simulate(
    planned: bool,
    step_s: float,
    size_bytes: int,
    counts: tuple[int, ...],
    bandwidth: float,
    driver_bandwidth: float | None,
    latency_s: float,
    incast: float,
    transport: str,
    tau: int | None,
    shards: int,
    phases: int,
    engine_rate: float | None,
    formulas: bool,
    as_json: bool,
) -> None:
    """Say what each method would do on a cluster: period, tau, staleness, utilisation, bytes, and whether it is worth it.

    docs/planning.md explains the table.
    """
    from mpca.sim import cost_table
    from mpca.sim.plan import growth_sheet, method_sheet, plan, to_json, verdict
    from mpca.sim.transports import COORDINATED, Setting

    if not planned:
        raise click.UsageError("nothing to simulate: add --plan")
    values: dict[str, float | None] = {
        "--step": step_s, "--size": size_bytes, "--bandwidth": bandwidth, "--driver-bandwidth": driver_bandwidth,
        "--engine-rate": engine_rate,
    }  # fmt: skip
    for name, value in values.items():
        if value is not None and not value > 0:
            raise refused(name, value, "must be above 0")
    if not 1 <= incast < math.inf:
        raise refused("--incast", incast, "must be 1 or more: 1 is a switch with large buffers")
    on = COORDINATED[transport]
    at = Setting(
        counts[-1], size_bytes, step_s, bandwidth / 8, driver_bandwidth and driver_bandwidth / 8, latency_s, incast=incast,
        **({} if engine_rate is None else {"engine_rate": engine_rate / 8}),
    )  # fmt: skip
    choice = cost_table.Choice(tau, shards, min(phases, shards))
    rows = plan(at, counts, choice, on)
    said = verdict(at, choice, on)
    table = cost_table.formulas(on)
    if as_json:
        result = {
            "setting": asdict(at),
            "choice": asdict(choice),
            "rows": [to_json(one) for one in rows],
            "verdict": said,
            "formulas": [asdict(one) for one in table],
        }
        click.echo(json.dumps(result))
        return
    show(method_sheet(at, rows) if len(counts) == 1 else growth_sheet(rows))
    for line in chain.from_iterable(one.lines() for one in table if formulas):
        click.echo(line)
    click.echo(said)
