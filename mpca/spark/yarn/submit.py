"""The `spark-submit` line of a run. Pure: it opens no file, asks no cluster and starts nothing (`cli/submit.py` does).

The line is an interface: it is printed, and a person may change it and run it by hand. So it has everything that the run
needs, as settings of Spark: ``--set`` becomes ``--conf spark.mpca.*``, the table of `settings.py` is written out, and the
containers' sizes are numbers. Only secrets are not in it: every user can read a line's words in /proc. Secrets go into a file
that spark-submit reads, and the line shows which ones there are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from mpca.checks import masked, refused
from mpca.config.resolved import Resolved
from mpca.config.spark import SPARK_PREFIX
from mpca.errors import ConfigError
from mpca.redaction import MASK, PATTERN, properties, secrets_of
from mpca.spark.settings import settings
from mpca.spark.yarn.sizing import Container

__all__ = [
    "ARCHIVE_NAME",
    "AUTHENTICATE",
    "Submission",
    "agents_python",
    "check_file_systems",
    "in_the_clear",
    "no_way_back",
    "not_shared",
    "split_archive",
]

#: The folder in each container's work folder into which an archive is unpacked.
ARCHIVE_NAME = "environment"
#: The only setting for which the cluster's spark-defaults.conf outranks the table: an administrator has decided.
AUTHENTICATE = "spark.authenticate"
_FILE_SYSTEMS = ("spark.kerberos.access.hadoopFileSystems", "spark.yarn.access.hadoopFileSystems")  # the latter is Spark 2's
_CRYPTO = "spark.network.crypto.enabled"
_CIPHER = "spark.network.crypto.cipher"


def split_archive(archive: str) -> tuple[str, str]:
    """File and folder name of ``X.tar.gz#environment``.

    Raises:
        ConfigError: the name cannot be that of a folder.

    Example:
        >>> split_archive("hdfs:///env.tar.gz#torch")
        ('hdfs:///env.tar.gz', 'torch')
    """
    path, _, name = archive.partition("#")
    name = name or ARCHIVE_NAME
    if not path or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ConfigError(f"--archives {masked(archive)}: must be FILE#NAME, such as env.tar.gz#{ARCHIVE_NAME}")
    return path, name


def agents_python(config: Resolved, archive: str | None, own: str) -> str:
    """The interpreter of agents, as their nodes find it: the named one, the archive's, or the same path as ours."""
    if config.cluster.python:
        return config.cluster.python
    return f"./{split_archive(archive)[1]}/bin/python" if archive else own


def no_way_back(config: Resolved, conf: Mapping[str, str]) -> list[str]:
    """A warning for a run in cluster mode without backups: a driver that is started again could not go on. A line, or none.

    Args:
        config: of the run.
        conf: Spark's settings.
    """
    if config.backup.interval or conf.get("spark.yarn.maxAppAttempts", "").strip() == "1":
        return []
    return [
        "warning: backup.interval = 0: no backup is written before the end, so a driver that YARN starts again begins anew; "
        "set it to 60s, or spark.yarn.maxAppAttempts to 1"
    ]


def in_the_clear(conf: Mapping[str, str]) -> list[str]:
    """What others on the network may read or change: a line for each reason, or none.

    Args:
        conf: Spark's settings.
    """
    if conf.get("spark.ssl.rpc.enabled", "").strip().lower() == "true":  # of Spark 4: TLS in place of Spark's own encryption
        return []
    if conf.get(_CRYPTO, "").strip().lower() != "true":
        return [f"{_CRYPTO} is off: what executors and driver send each other is not encrypted (SECURITY.md, Encryption)"]
    cipher = conf.get(_CIPHER, "").strip()
    if "/GCM/" in cipher.upper():
        return []
    return [
        f"warning: {_CIPHER} = {cipher or 'not set'}: AES/CTR, Spark's own, hides words but does not notice when they are "
        "changed (CVE-2025-55039); set it to AES/GCM/NoPadding"
    ]


def not_shared(config: Resolved) -> list[str]:
    """A warning for each folder of a run in cluster mode that lies on the disk of whatever host the driver comes to.

    Raises:
        ConfigError: a folder is relative: it would lie in the driver's container, and go with it.
    """
    lines = []
    for key, value in (("run.dir", config.run.dir), ("backup.path", config.backup.path)):
        if not value or ("://" in value and not value.startswith("file://")):
            continue
        if not value.startswith(("/", "file:///")):
            raise refused(
                key, value, "is relative, and goes with the driver's container in cluster mode; name hdfs://... instead"
            )
        lines.append(
            f"warning: {key} = {value}: a folder of the driver's host, which YARN chooses. Unless all hosts share it, a driver "
            "that is started again does not find it, and neither do you; name hdfs://... instead"
        )
    return lines


def check_file_systems(paths: Mapping[str, str], default: str, conf: Mapping[str, str]) -> None:
    """Refuse a place on a secured file system for which containers would get no token.

    Args:
        paths: by key of the configuration.
        default: ``fs.defaultFS``, for which Spark gets one by itself.
        conf: Spark's settings.

    Raises:
        ConfigError: which place, and what to set.
    """
    listed = [one.strip() for key in _FILE_SYSTEMS for one in conf.get(key, "").split(",")]
    known = {urlsplit(one).netloc for one in (default, *listed)}
    for key, path in paths.items():
        system = urlsplit(path)
        if system.scheme == "hdfs" and system.netloc and system.netloc not in known:
            raise refused(
                key,
                path,
                f"is on another file system than {default}, and containers get no token for it: "
                f"set {_FILE_SYSTEMS[0]}=hdfs://{system.netloc}",
            )


@dataclass(frozen=True)
class Submission:
    """A run on its way to YARN."""

    config: Resolved
    sets: Sequence[str]  # section.key=value, as they were given
    program: str  # the Python file that spark-submit starts
    words: Sequence[str]  # its arguments
    deploy_mode: str  # "client" or "cluster"
    executor: Container
    driver: Container
    python: str  # of the process that submits, and in client mode of the driver
    jar: str  # ours
    spark_jars: Mapping[str, str] = field(default_factory=dict)  # where containers find Spark's jars; empty: Spark's default
    queue: str | None = None
    proxy_user: str = ""  # for whom a service submits
    archive: str | None = None  # FILE#NAME
    py_files: Sequence[str] = ()
    files: Sequence[str] = ()
    discovery: str = ""  # the script that finds GPUs, one of `files`
    local_ip: str = ""  # SPARK_LOCAL_IP; a loopback address when the cluster is all on this machine
    defaults: Mapping[str, str] = field(default_factory=dict, repr=False)  # the cluster's spark-defaults.conf

    @property
    def containers(self) -> list[Container]:
        """Those whose sizes YARN must allow."""
        return [self.executor, self.driver] if self.deploy_mode == "cluster" else [self.executor]

    def command(self, spark_submit: str = "spark-submit", secrets: str = "") -> list[str]:
        """The line, word by word, without secrets.

        Args:
            spark_submit: its path.
            secrets: file with `properties`; empty: there is no such file, and the line shows which secrets it lacks.
        """
        config = self.config
        hidden = self.hidden()
        words = [spark_submit, "--master", "yarn", "--deploy-mode", self.deploy_mode, "--name", f"mpca {config.run.name}"]
        if self.queue:
            words += ["--queue", self.queue]
        if self.proxy_user:
            words += ["--proxy-user", self.proxy_user]
        words += ["--jars", self.jar]
        for option, values in (("--py-files", self.py_files), ("--files", self.files)):
            if values:
                words += [option, ",".join(values)]
        if self.archive:
            words += ["--archives", "#".join(split_archive(self.archive))]
        if secrets:
            words += ["--properties-file", secrets]
        for key, value in self.settings().items():
            if key not in hidden:
                words += ["--conf", f"{key}={value}"]
            elif not secrets:
                words += ["--conf", f"{key}={MASK}"]
        return [*words, self.program, *self.words]

    def printable(self, spark_submit: str = "spark-submit") -> str:
        """The line for a shell."""
        return " ".join(shlex.quote(word) for word in self.command(spark_submit))

    def hidden(self) -> set[str]:
        """Keys of settings that are secret, by the user's rule, else the cluster's, else Spark's own.

        The rule looks only at the keys of our own settings: their values are paths and names, which may contain the word
        "token".
        """
        ours = {key: "" for key in self.settings() if key.startswith(SPARK_PREFIX)}
        return secrets_of({**self.settings(), **ours}, self.defaults.get(PATTERN, ""))

    def properties(self) -> str:
        """The secrets as a properties file, which spark-submit reads in place of spark-defaults.conf; empty: there are none."""
        return properties({key: value for key, value in self.settings().items() if key in self.hidden()})

    def authenticates_by_default(self) -> bool:
        """Whether `spark.authenticate` is on because neither user nor cluster said otherwise."""
        return AUTHENTICATE not in {**self.defaults, **self.config.spark}

    def settings(self) -> dict[str, str]:
        """Every ``--conf``. The user's settings win over ours."""
        table = settings(yarn=True)
        if AUTHENTICATE in self.defaults:
            del table[AUTHENTICATE]
        return {
            **table,
            **self._sizes(),
            **self._pythons(),
            **self.spark_jars,
            **self.config.spark,
            **self._own(),
        }

    def _sizes(self) -> dict[str, str]:
        cluster = self.config.cluster
        agents = self.config.method.agents(cluster.agents)
        per_executor = min(cluster.agents_per_executor, agents)
        sizes = {
            "spark.executor.instances": str(-(-agents // per_executor)),
            "spark.executor.cores": str(self.executor.cores),
            self.executor.heap_key: _mib(self.executor.heap),
            self.executor.overhead_key: _mib(self.executor.overhead),
            self.driver.heap_key: _mib(self.driver.heap),
        }
        if self.deploy_mode == "cluster":
            sizes[self.driver.overhead_key] = _mib(self.driver.overhead)
        if cluster.device == "cuda" and self.discovery:
            # No spark.task.resource.gpu.amount: tasks that ask for a GPU would starve the exchange, or share one with an agent.
            sizes["spark.executor.resource.gpu.amount"] = str(per_executor)
            sizes["spark.executor.resource.gpu.discoveryScript"] = self.discovery
        return sizes

    def _pythons(self) -> dict[str, str]:
        there = agents_python(self.config, self.archive, self.python)
        found = {"spark.pyspark.python": there}
        if self.deploy_mode == "client":
            found["spark.pyspark.driver.python"] = self.python
        else:
            found["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] = there
            if self.local_ip.startswith("127."):  # otherwise executors get an address of this machine on which nothing listens
                found["spark.yarn.appMasterEnv.SPARK_LOCAL_IP"] = self.local_ip
        return found

    def _own(self) -> dict[str, str]:
        given = dict(one.partition("=")[::2] for one in self.sets)
        own = {f"{SPARK_PREFIX}{key.strip()}": value for key, value in given.items() if not key.strip().startswith("spark.")}
        if self.archive and not self.config.cluster.python:
            own[f"{SPARK_PREFIX}cluster.python"] = agents_python(self.config, self.archive, self.python)
        return own


def _mib(size: int) -> str:
    return f"{-(-size // (1 << 20))}m"
