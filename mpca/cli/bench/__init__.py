"""`mpca bench CASE`: the figures of speed, each from one call, as one JSON object with `--json`.

A case is imported only when it is asked for: most of them need Spark or torch, and `mpca --help` should need neither.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module

import click

__all__ = ["bench"]

#: Name -> (module that has its click command as `command`, what it says in the list).
_CASES = {
    "backup": ("mpca.cli.bench.backup", "Backups to HDFS through the JVM: seconds, and the cycle rate meanwhile."),
    "data": ("mpca.cli.bench.data", "JPEGs to batches: the stream over decoding alone, and over torchvision's ImageFolder."),
    "exchange": ("mpca.cli.bench.exchange", "The exchange on real executors behind shaped links, beside plain TCP."),
    "pause": ("mpca.cli.bench.pause", "What exchanges cost an agent that trains: pauses, and steps per second."),
    "reads": ("mpca.cli.bench.reads", "Reading HDFS by the executor's JVM over reading it by WebHDFS."),
    "sim": ("mpca.cli.bench_sim", "Simulated fault schedules per minute."),
    "step": ("mpca.cli.bench.step", "A training step with `attach` over the plain step."),
    "submit": ("mpca.cli.bench.submit", "From spark-submit to the first step, over the start of executors alone."),
    "tcp": ("mpca.cli.bench.tcp_case", "Plain TCP on shaped links: what any exchange could reach there."),
}


class _Cases(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_CASES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _CASES:
            return None
        command: click.Command = import_module(_CASES[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_CASES.items())])


@click.group(cls=_Cases)
def bench() -> None:
    """Measure a part of the engine; the keys and the goals stand in README.md of this folder."""
    for one in (signal.SIGTERM, signal.SIGHUP):  # so that executors, nodes and files are removed then too
        if signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, lambda number, _: sys.exit(128 + number))
