"""An agent whose GPU is the stand-in: ``python -m tests.gpu.standin_agent``."""

from __future__ import annotations

import sys

from mpca.agent.main import main
from tests.gpu.standin import StandIn

if __name__ == "__main__":
    with StandIn():
        code = main()
    sys.exit(code)
