"""The driver of a submitted run: `mpca submit` gives this program to spark-submit. The interpreter has mpca installed."""

import sys

from mpca.cli.main import main

if __name__ == "__main__":
    main(["driver", *sys.argv[1:]])
