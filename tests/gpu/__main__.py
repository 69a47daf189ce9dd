"""``python -m tests.gpu``, behind `make test-gpu`: these tests on a real GPU, or one sentence that says what is missing.

Needs no network, Java, Spark or set-up: a GPU, and a Python that has torch, numpy, msgpack, cloudpickle and pytest. The
project's own settings of pytest are left aside, since they name plug-ins that need not be there.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["main", "missing"]

HERE = Path(__file__).resolve().parent
PACKAGES = ("torch", "numpy", "msgpack", "cloudpickle", "pytest")
PYTHONS = ((3, 10), (3, 13))


def missing() -> str:
    """What keeps these tests from running here, in one sentence; nothing, when they can."""
    python = sys.version_info[:2]
    if not PYTHONS[0] <= python <= PYTHONS[1]:
        return f"needs Python 3.10 to 3.13 (this is {python[0]}.{python[1]}): name another by PYTHON=/path/to/python"
    lacking = [name for name in PACKAGES if find_spec(name) is None]
    if lacking:
        return f"{sys.executable} has no {', '.join(lacking)}: install them, or name another Python by PYTHON=/path/to/python"
    import torch

    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        return f"needs one GPU, and torch {torch.__version__} ({built}) finds none on this machine: look at nvidia-smi"
    return ""


def main() -> int:
    """The exit code: pytest's, or 2."""
    why = missing()
    if why:
        print(f"test-gpu: {why}", file=sys.stderr)
        return 2
    import pytest
    import torch

    print(f"GPU: {torch.cuda.get_device_name(0)}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    return pytest.main(
        [
            *("-c", "/dev/null", f"--rootdir={HERE.parent.parent}", f"--confcutdir={HERE}", "--import-mode=importlib"),
            *("-p", "no:cacheprovider", "-o", "markers=slow: takes longer than a person waits for", "-v", "--durations=0"),
            str(HERE),
            *sys.argv[1:],
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
