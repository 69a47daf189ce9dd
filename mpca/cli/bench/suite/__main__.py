"""``python -m mpca.cli.bench.suite``, which is `make bench`."""

import sys

from mpca.cli.bench.suite.run import main

sys.exit(main())
