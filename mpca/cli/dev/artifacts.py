"""The jars of Hadoop, which Maven fetches once into the user's cache, and the Java that runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from mpca.environment import environment
from mpca.errors import EnvironmentRefused

__all__ = ["VERSION", "jars", "java_home"]

#: The last version of the 3.3 line. Clients of Spark 3.5 (3.3.4) and of CDP talk to it.
VERSION = "3.3.6"
_POM = Path(__file__).with_name("hadoop-jars.xml")
_WRAPPER = Path(__file__).resolve().parents[3] / "jvm" / "mvnw"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: Not needed: a second binding of slf4j, a second log4j beside Hadoop's own, and a database driver of YARN federation.
_LEFT_OUT = "slf4j-log4j12,log4j,mssql-jdbc"


def jars(say: Callable[[str], None] = lambda text: None) -> Path:
    """The folder of jars for this version; they are fetched when it does not exist.

    Args:
        say: takes a line for the user.

    Raises:
        EnvironmentRefused: there is no Maven, or it could not fetch them; with the end of its output.
    """
    cache = Path(environment("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpca"
    folder = cache / f"hadoop-{VERSION}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn") or (str(_WRAPPER) if _WRAPPER.is_file() else None)
    if maven is None:
        raise EnvironmentRefused("mvn is not on the PATH: Maven fetches Hadoop's jars; install it")
    say(f"fetching the jars of Hadoop {VERSION} (about 90 MiB) into {folder}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hadoop-", dir=cache) as work:
        shutil.copy(_POM, Path(work) / "pom.xml")
        command = [
            *(maven, "-q", "-B", "-f", f"{work}/pom.xml", _PLUGIN, f"-Dhadoop.version={VERSION}"),
            *("-DincludeScope=runtime", f"-DexcludeArtifactIds={_LEFT_OUT}", f"-DoutputDirectory={work}/jars"),
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-10:])
            raise EnvironmentRefused(f"Maven could not fetch Hadoop {VERSION}: exit code {done.returncode}\n{tail}")
        try:
            os.rename(f"{work}/jars", folder)  # at once: a process that finds the folder finds all of it
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder


def java_home() -> str:
    """JAVA_HOME, or the home of the java on PATH.

    Raises:
        EnvironmentRefused: there is no Java.
    """
    home = environment("JAVA_HOME")
    if home and Path(home, "bin", "java").exists():
        return home
    java = shutil.which("java")
    if java is None:
        raise EnvironmentRefused("no Java: install a JDK 8, 11 or 17, or point JAVA_HOME to it")
    return str(Path(java).resolve().parents[1])
