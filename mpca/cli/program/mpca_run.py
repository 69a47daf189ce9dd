"""The driver of a submitted run: what `mpca submit` names as spark-submit's program. The interpreter has mpca installed."""

import sys

from mpca.cli.main import main

if __name__ == "__main__":
    main(["driver", *sys.argv[1:]])
