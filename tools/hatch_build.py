"""Hatchling's hook: the JVM part is in every wheel and sdist, built by Maven when it is not there yet.

A checkout that was built has the jars, and an sdist carries them, so a wheel made of either needs no JDK. A fresh clone (``pip
wheel git+file://...``) does. An editable installation is left alone: `make setup` builds the jars after it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Each with the words that Maven is told.
_JARS = {"mpca/jars/mpca-spark_2.12.jar": [], "mpca/jars/mpca-spark_2.13.jar": ["-Pspark4"]}


class JarHook(BuildHookInterface):
    """Built anew when a source is newer, as `make` does it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            for name, words in _JARS.items():
                _build(Path(self.root), name, words)


def _build(root: Path, name: str, words: list[str]) -> None:
    if _is_fresh(root, root / name):
        return
    if shutil.which("javac") is None:
        raise SystemExit(f"mpca: {name} is not built, and there is no javac on the path: install a JDK 17, or take a wheel")
    made = subprocess.run(["sh", "./mvnw", "-q", "-B", "-DskipTests", *words, "package"], cwd=root / "jvm", check=False)
    if made.returncode or not (root / name).is_file():
        raise SystemExit(f"mpca: {name} could not be built: Maven ended with exit code {made.returncode}; its words are above")


def _is_fresh(root: Path, jar: Path) -> bool:
    if not jar.is_file():
        return False
    if (root / "PKG-INFO").is_file():  # an sdist: all its files have one date
        return True
    sources = [root / "jvm" / "pom.xml", *(root / "jvm" / "src").rglob("*")]
    return jar.stat().st_mtime >= max(one.stat().st_mtime for one in sources if one.is_file())
