"""The command line. Options and words are here; what a command does is one call into `mpca.api` or `mpca.report`."""

from mpca.cli.main import main

__all__ = ["main"]
