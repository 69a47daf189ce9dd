"""Where the JVM part lies, and what Spark's settings name of it. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

__all__ = ["JAR", "OWNER_FILTER", "PLUGIN"]

#: The JVM part, shipped inside the package.
JAR = Path(__file__).resolve().parents[2] / "jars" / "mpca-spark_2.12.jar"
#: What ``spark.plugins`` has to name.
PLUGIN = "org.mpca.bridge.MpcaPlugin"
#: For ``spark.ui.filters``: only the user who runs the process sees Spark's web pages.
OWNER_FILTER = "org.mpca.bridge.OwnerFilter"
