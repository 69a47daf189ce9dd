"""`mpca watch RUN_DIR`: a page of a run that goes on."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from types import FrameType

import click

from mpca.checks import refused

__all__ = ["watch"]

_LOCAL_S, _HDFS_S = 1.0, 5.0  # how often to look for new records


@click.command()
@click.argument("run_dir")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the page, on this machine alone; 0: a free one.")
def watch(run_dir: str, port: int) -> None:
    """Show a run in the browser while it goes on, without reloads.

    RUN_DIR is a path, hdfs://... or webhdfs://...; it may be a run that is still to begin. The printed address is for your
    browser on this machine: who knows it sees the run, and nobody else. The command ends with the run, or by Ctrl-C.
    """
    from mpca.api.stores import open_store
    from mpca.report.follow import Follower
    from mpca.report.watch import Board, follow_run, served
    from mpca.storage import Location
    from mpca.timeouts import COMMAND_PATIENCE_S

    location = Location.parse(run_dir)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
        signal.signal(signal.SIGHUP, _interrupt)
    with ExitStack() as stack:
        store = open_store(location, stack, patience_s=COMMAND_PATIENCE_S)
        where, board = store.describe("").rstrip("/"), Board(location.name)
        try:
            address = stack.enter_context(served(board, port))
        except OSError as error:
            raise refused("--port", port, f"{error.strerror}; leave it out for a free one") from None
        try:
            click.echo(address)
            click.echo(f"follows {where}; Ctrl-C ends this command, and not the run")
            click.echo(follow_run(Follower(store), board, where, _LOCAL_S if location.is_local else _HDFS_S))
            click.echo(f"report {where}/report.html")
        except KeyboardInterrupt:
            board.show(board.shown.parts, "`mpca watch` has ended", over=True)
            click.echo("ended; the run does not notice")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
