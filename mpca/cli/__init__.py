"""The command line: options and output. What a command does is a call into `mpca.api` or another package."""

from mpca.cli.main import main

__all__ = ["main"]
