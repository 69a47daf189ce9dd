"""``python -m mpca.cli``: the same as the `mpca` command, when that is not on PATH."""

from mpca.cli.main import main

main()
