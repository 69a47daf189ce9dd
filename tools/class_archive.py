"""Makes the archive of Java classes with which embedded sessions start faster: ``python tools/class_archive.py``.

A short run on one executor says which classes a driver and an executor load; they are then archived (`mpca.spark.jvm.classes`).
An archive that is there is left alone. Whatever goes wrong is one line and no error: sessions start without.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mpca.environment import child_environment, environment
from mpca.spark.jvm.classes import archive, class_path

__all__ = ["main"]

_SECONDS = 300  # for each step; a step takes some twenty on two cores
_TRAIN = ("cluster.agents=1", "cluster.min_agents=1", "objectives.max_cycles=12", "objectives.evaluate_every=1s")


def _classes(folder: Path) -> set[str]:
    """Names of the classes that a run loads, as Java writes them."""
    words = [sys.executable, "-m", "mpca.cli", "train", "conf/digits.toml", "--run-dir", str(folder / "run")]
    for one in _TRAIN:
        words += ["--set", one]
    variables = child_environment(JAVA_TOOL_OPTIONS=f"-XX:DumpLoadedClassList={folder}/%p.classes")
    subprocess.run(words, env=variables, capture_output=True, timeout=_SECONDS, check=True)
    lines = (line for one in folder.glob("*.classes") for line in one.read_text().splitlines())
    return {line for line in lines if not line.startswith("#")}


def _make(path: Path) -> None:
    home = environment("JAVA_HOME")
    made = path.with_name(f".{path.name}.{os.getpid()}")  # of two that make one, each has a file of its own
    with tempfile.TemporaryDirectory(prefix="mpca-classes-") as name, contextlib.ExitStack() as stack:
        stack.callback(made.unlink, missing_ok=True)
        folder = Path(name)
        listed = folder / "classes.txt"
        listed.write_text("\n".join(sorted(_classes(folder))))
        words = [str(Path(home, "bin", "java")) if home else "java", "-Xshare:dump", "-XX:+UseSerialGC"]
        words += [f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}", "-cp", class_path()]
        subprocess.run(words, capture_output=True, timeout=_SECONDS, check=True)
        for old in path.parent.glob(f"{path.name.rpartition('-')[0]}-*.jsa"):
            old.unlink(missing_ok=True)
        made.rename(path)


def main() -> None:
    """Make it, unless it is there."""
    path = archive()
    if path is None or path.is_file():
        return
    print(f"archiving Java classes in {path.name}", flush=True)
    try:
        _make(path)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or b""
        print(f"no archive of Java classes: {error} {said.decode(errors='replace')[-300:]}; JVMs start without it")


if __name__ == "__main__":
    main()
