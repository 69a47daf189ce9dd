"""The lines of Spark that mpca runs on, the JVM part made for each, and what Spark's settings name of it. Imports nothing slow.

What differs between the lines is here for Python, and in jvm/src/spark3 and jvm/src/spark4 for Java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mpca.errors import EnvironmentRefused

__all__ = ["LINES", "OWNER_FILTER", "PLUGIN", "SparkLine", "line_of", "own_line"]

#: What ``spark.plugins`` has to name.
PLUGIN = "org.mpca.bridge.MpcaPlugin"
#: For ``spark.ui.filters``: only the user who runs the process sees Spark's web pages.
OWNER_FILTER = "org.mpca.bridge.OwnerFilter"
_SCALA = re.compile(r"_(\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class SparkLine:
    """One line of Spark."""

    spark: str  # what it is tested with
    scala: str  # it tells the lines apart: their class files do not fit each other
    javas: tuple[str, ...]  # that Spark is made for

    @property
    def jar(self) -> Path:
        """The JVM part, shipped inside the package."""
        return Path(__file__).resolve().parents[2] / "jars" / f"mpca-spark_{self.scala}.jar"

    @property
    def java(self) -> str:
        """``Java 8, 11 or 17``."""
        return f"Java {', '.join(self.javas[:-1])} or {self.javas[-1]}"


LINES = (SparkLine("3.5", "2.12", ("8", "11", "17")), SparkLine("4.1", "2.13", ("17", "21")))


def line_of(core_jar: str) -> SparkLine:
    """The line of a Spark.

    Args:
        core_jar: name of its core jar, ``spark-core_2.12-3.5.4.jar``.

    Raises:
        EnvironmentRefused: there is no JVM part for its Scala.
    """
    scala = _SCALA.search(core_jar)
    for line in LINES:
        if scala is not None and scala[1] == line.scala:
            return line
    ours = " and ".join(f"Scala {one.scala} (Spark {one.spark})" for one in LINES)
    seen = scala[1] if scala else "unknown"
    raise EnvironmentRefused(
        f"no JVM part fits this Spark: {core_jar} is for Scala {seen}, and mpca has one for {ours}: set SPARK_HOME to another"
    )


def own_line() -> SparkLine:
    """The line of the pyspark that this process imports. Those of PyPI have one Scala each.

    Raises:
        EnvironmentRefused: there is no JVM part for it.
    """
    from pyspark import __version__

    for line in LINES:
        if __version__.partition(".")[0] == line.spark.partition(".")[0]:
            return line
    ours = " or ".join(f'"pyspark=={one.spark}.*"' for one in LINES)
    raise EnvironmentRefused(f"no JVM part fits pyspark {__version__}: run pip install {ours}")
