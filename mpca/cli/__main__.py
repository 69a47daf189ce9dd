"""``python -m mpca.cli``: the same as the `mpca` command, where that is not on the path."""

from mpca.cli.main import main

main()
