"""A preloaded parent in which something has started a thread, as an imported module of a user's environment might."""

from __future__ import annotations

import sys
import threading

from mpca.agent import parent

if __name__ == "__main__":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    sys.exit(parent.main())
