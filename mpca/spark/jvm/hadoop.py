"""Hadoop's own clients in a small JVM, for commands that ask a cluster before, or without, a Spark application.

Spark's ``spark-class`` starts the JVM, so it has the class path, the configuration and the login that spark-submit will have:
what works here works there, also with Kerberos and with name services of two NameNodes. This file also decides which Spark
that is. A run does not need this JVM: its driver has one.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpca.environment import child_environment, environment
from mpca.errors import EnvironmentRefused
from mpca.spark.jvm.jar import line_of
from mpca.spark.jvm.log import first_error
from mpca.spark.jvm.login import PROXY_USER, Login, become
from mpca.timeouts import CHILD_END_S

__all__ = ["SparkHome", "configuration_folder", "hadoop_jvm", "spark_home"]

#: A line of a properties file: the key ends at the first blank, "=" or ":".
_SETTING = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:]?\s*(.*)")


@dataclass(frozen=True, slots=True)
class SparkHome:
    """The Spark that submits, and as whom."""

    path: Path
    login: Login | None = None  # None: the user's ticket
    proxy_user: str = ""  # for whom the user of that ticket acts; empty: for nobody else

    @property
    def submit(self) -> Path:
        return self.path / "bin" / "spark-submit"

    @property
    def core_jar(self) -> str:
        """Name of the jar that tells the version of Spark and of Scala, ``spark-core_2.12-3.5.4.jar``."""
        return next((jar.name for jar in self.jars() if jar.name.startswith("spark-core_")), "no spark-core jar")

    @property
    def version(self) -> str:
        return self.core_jar.removesuffix(".jar").rpartition("-")[2]

    def jars(self) -> list[Path]:
        return sorted((self.path / "jars").glob("*.jar"))

    def defaults_text(self) -> str:
        """The cluster's ``spark-defaults.conf``; empty if there is none."""
        folder = Path(environment("SPARK_CONF_DIR") or self.path / "conf")
        try:
            return (folder / "spark-defaults.conf").read_text(encoding="utf-8")
        except OSError:
            return ""

    def defaults(self) -> dict[str, str]:
        """The settings in ``spark-defaults.conf``."""
        found = (_SETTING.match(line) for line in self.defaults_text().splitlines())
        return {one[1]: one[2].strip() for one in found if one is not None}


def spark_home() -> SparkHome:
    """The Spark in SPARK_HOME, which is the cluster's own, or else the Spark that pip installed.

    Raises:
        EnvironmentRefused: there is no Spark there.
    """
    named = environment("SPARK_HOME")
    if named:
        home = SparkHome(Path(named))
    else:
        pyspark = find_spec("pyspark")  # found, and not imported: a refusal may follow
        assert pyspark is not None  # we depend on it
        assert pyspark.origin is not None  # it has an __init__.py
        home = SparkHome(Path(pyspark.origin).resolve().parent)
    if not home.submit.is_file():
        raise EnvironmentRefused(
            f"no Spark in SPARK_HOME={home.path}: bin/spark-submit is missing; name the cluster's, or unset it"
        )
    return home


def configuration_folder() -> Path:
    """HADOOP_CONF_DIR or YARN_CONF_DIR.

    Raises:
        EnvironmentRefused: neither is set, or it holds no configuration of a cluster.
    """
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        value = environment(name)
        if not value:
            continue
        folder = Path(value)
        missing = [file for file in ("core-site.xml", "yarn-site.xml") if not (folder / file).is_file()]
        if missing:
            raise EnvironmentRefused(
                f"{name}={value} has no {' and no '.join(missing)}: name the folder with the cluster's configuration, such as "
                "/etc/hadoop/conf"
            )
        return folder
    raise EnvironmentRefused(
        "HADOOP_CONF_DIR is not set, so no cluster can be found: set it to the folder with core-site.xml and yarn-site.xml, "
        "such as /etc/hadoop/conf"
    )


@contextmanager
def hadoop_jvm(home: SparkHome) -> Iterator[Any]:
    """A JVM with Hadoop's clients, as py4j shows it. It ends with the block, and with this process.

    Raises:
        EnvironmentRefused: it does not start, or the login fails.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway

    words = [str(home.path / "bin" / "spark-class"), "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
    log = tempfile.TemporaryFile()  # noqa: SIM115  closed below, after the process
    user = {PROXY_USER: home.proxy_user} if home.proxy_user else {}
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        # Small, and quick to start: it answers a dozen questions.
        env=child_environment(SPARK_HOME=str(home.path), JAVA_TOOL_OPTIONS=_options(), **user),
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    gateway = None
    try:
        port, token = process.stdout.readline().strip(), process.stdout.readline().strip()
        if not port.isdigit():
            with suppress(subprocess.TimeoutExpired):
                process.wait(CHILD_END_S)
            log.seek(0)
            said = first_error(f"{port}\n{log.read().decode(errors='replace')}") or f"exit code {process.returncode}"
            raise EnvironmentRefused(
                f"the JVM of Hadoop's clients did not start: {said}; "
                f"{line_of(home.core_jar).java} must be on PATH or in JAVA_HOME"
            )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True))
        if home.login is not None:
            become(gateway.jvm, home.login)
        yield gateway.jvm
    finally:
        if gateway is not None:
            with suppress(Exception):
                gateway.shutdown()
        process.stdin.close()
        try:
            process.wait(CHILD_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        log.close()


def _options() -> str:
    own = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m"
    return f"{environment('JAVA_TOOL_OPTIONS')} {own}".strip()
