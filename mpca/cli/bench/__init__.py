"""`mpca bench CASE`: measures speed, one case a call; with `--json` it prints one JSON object.

A case is imported only when it is called: most cases need Spark or torch, and `mpca --help` should need neither.
"""

from __future__ import annotations

from importlib import import_module

import click

__all__ = ["bench"]

#: Name of a case, which is also its module in `cases`, and its line in the list.
_CASES = {
    "backup": "Backups to HDFS through the JVM: seconds, and the cycle rate meanwhile.",
    "codec": "What a codec costs in updates to an error, and which is to be the default.",
    "compare": "Updates a second and core of the simulator's trainers that learn from data.",
    "data": "JPEGs to batches: the stream over decoding alone, and over torchvision's ImageFolder.",
    "encryption": "What encrypting the exchange, and what HDFS sends, costs: ratios from one call.",
    "exchange": "The exchange on real executors behind shaped links, beside plain TCP.",
    "pause": "What exchanges cost an agent that trains: pauses, and steps per second.",
    "peers": "mpca beside TorchDistributor with DDP, behind the same shaped links: time to a target.",
    "reads": "Reading HDFS by the executor's JVM over reading it by WebHDFS.",
    "scale": "What many executors cost the driver a cycle, against executors that answer without computing.",
    "sim": "Simulated fault schedules per minute.",
    "start": "An agent's start and replacement, forked from a preloaded parent and started without one.",
    "step": "A training step with `attach` over the plain step.",
    "submit": "From spark-submit to the first step, over the start of executors alone.",
    "tcp": "Plain TCP on shaped links: what any exchange could reach there.",
}


class _Cases(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_CASES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _CASES:
            return None
        command: click.Command = import_module(f"mpca.cli.bench.cases.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_CASES.items()))


@click.group(cls=_Cases)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure a part of the engine; the keys and the goals stand in `show.py`."""
    from mpca.api.signals import Signals

    ctx.with_resource(Signals())  # SIGTERM and SIGHUP raise: executors, nodes and files are removed then too
