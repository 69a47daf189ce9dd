"""A preloaded parent that ends after a tenth of a second without questions and agents."""

from __future__ import annotations

import sys

from mpca.agent import parent

if __name__ == "__main__":
    sys.exit(parent.main(idle_s=0.1))
