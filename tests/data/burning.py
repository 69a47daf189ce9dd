"""A child that takes more processor time than it may: ``python -m tests.data.burning FD``."""

from __future__ import annotations

from mpca.data.limits import limit_cpu

if __name__ == "__main__":
    limit_cpu(0.1)
    while True:
        pass
