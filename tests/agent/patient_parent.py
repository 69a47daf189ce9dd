"""A preloaded parent that waits an hour for questions: files of tests share one, and some of them take long."""

from __future__ import annotations

import sys

from mpca.agent import parent

if __name__ == "__main__":
    sys.exit(parent.main(idle_s=3600.0))
