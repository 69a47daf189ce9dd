"""A child that takes a while to start, as one that imports torch: ``python -m tests.data.starting FD``."""

from __future__ import annotations

import time

from mpca.data.child import parent

if __name__ == "__main__":
    time.sleep(0.3)
    connection, _ = parent()
    connection.send("ready")
