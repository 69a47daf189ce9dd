"""`mpca`: the group of commands, and the one place where an error becomes an exit code.

Exit codes (they are an interface, see the README): 0 an objective was reached or a limit met, 1 the run failed, 2 refused
before anything was started, 4 too many bad records, 129 SIGHUP, 130 SIGINT, 143 SIGTERM. The last line on stderr is the root
cause. Output that cannot be printed ends no command; a command whose output was lost exits with 1.
"""

from __future__ import annotations

import errno
import logging
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from mpca import __version__
from mpca.cli.backups import backups
from mpca.cli.bench import bench
from mpca.cli.compare import compare
from mpca.cli.dev.command import dev
from mpca.cli.doctor import doctor
from mpca.cli.driver import driver
from mpca.cli.ingest import generate, ingest
from mpca.cli.pack import pack
from mpca.cli.report import report
from mpca.cli.simulate import simulate
from mpca.cli.submit import submit
from mpca.cli.train import train
from mpca.cli.tune import tune
from mpca.cli.watch import watch
from mpca.errors import ConfigError, EnvironmentRefused, MpcaError
from mpca.streams import sturdy_streams

__all__ = ["cli", "main"]

_SIGINT = 130
_FAILED = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="mpca")
@click.option("-v", "--verbose", count=True, help="Log more: -v what the driver decides, -vv everything.")
def cli(verbose: int) -> None:
    """Train PyTorch models on a Spark cluster: MPCA SGD, over ordinary Ethernet."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("mpca").setLevel(level)


cli.add_command(train)
cli.add_command(submit)
cli.add_command(driver)
cli.add_command(pack)
cli.add_command(doctor)
cli.add_command(ingest)
cli.add_command(generate)
cli.add_command(report)
cli.add_command(watch)
cli.add_command(simulate)
cli.add_command(compare)
cli.add_command(tune)
cli.add_command(bench)
cli.add_command(backups)
cli.add_command(dev)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    with sturdy_streams() as files:
        code = _run(args)
        sys.stdout.flush()
        lost = next((file.lost for file in files), None)
        if code == 0 and lost is not None:  # the user asked for this output
            if lost.errno != errno.EPIPE:  # a reader that closed the pipe knows it
                _say(f"stdout: {lost.strerror}", _FAILED)
            code = _FAILED
    sys.exit(code)


def _run(args: Sequence[str] | None) -> int:
    try:
        code = cli.main(args=None if args is None else list(args), prog_name="mpca", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        caught = error.__cause__ or error  # click makes an Abort of it
        code = _say(str(caught) or "interrupted", getattr(caught, "exit_code", _SIGINT))
    except (ConfigError, EnvironmentRefused) as error:
        code = _say(f"refused: {error}", error.exit_code)
    except MpcaError as error:
        code = _say(str(error), error.exit_code)
    except Exception as error:  # a bug of ours: print the traceback, then the error in the last line
        traceback.print_exc()
        code = _say(f"{type(error).__name__}: {error}", _FAILED)
    return code if isinstance(code, int) else 0


def _say(text: str, code: int) -> int:
    """Print a text of several lines (an agent's traceback) whole, then the root cause in one line.

    Returns:
        `code`.
    """
    lines = text.strip().splitlines() or [""]
    if len(lines) > 1:
        print(text.strip(), file=sys.stderr)
    print(f"mpca: {lines[0]}", file=sys.stderr)
    return code
