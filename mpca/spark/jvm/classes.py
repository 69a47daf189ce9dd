"""An archive of Java classes for the JVMs of embedded sessions, which then start with half of the CPU time.

Measured: driver and executor from nothing to an open session and its end took 4.3 s of CPU without, 2.5 s with it, Python
included. `make test` and the other tests make one (tools/class_archive.py) in the Python environment; a session takes it
when it is there, and starts as it always did when it is not. Java compares jars and itself with what the archive was made of,
and takes none that does not fit.
"""

from __future__ import annotations

import shutil
import sys
from hashlib import sha256
from pathlib import Path

from mpca.environment import environment

__all__ = ["archive", "archive_options", "class_path"]


def class_path() -> str:
    """Spark's jars, which must stand first on the class path of a JVM that is to take the archive.

    Spark's own begins with a folder of each run, and an archive fits only what begins as its own did.
    """
    import pyspark

    return f"{Path(pyspark.__file__).resolve().parent / 'jars'}/*"


def archive() -> Path | None:
    """Where the archive of this Java and this Spark lies, or will; None: there is no Java, or nobody knows which."""
    from pyspark import __version__

    home = environment("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        return None
    binary = Path(java).resolve()
    try:
        release = (binary.parents[1] / "release").read_text(errors="replace")
    except OSError:
        return None
    of = repr((str(binary), release, __version__, class_path()))
    return Path(sys.prefix, f"spark-classes-{sha256(of.encode()).hexdigest()[:16]}.jsa")


def archive_options() -> str:
    """Options of a JVM that has `class_path`; empty without an archive."""
    path = archive()
    if path is None or not path.is_file():
        return ""
    # it says nothing when the archive does not fit after all
    return f"-XX:SharedArchiveFile={path} -Xlog:cds=off -Xlog:cds+dynamic=off"
