"""Files of a cluster, for commands: may the user write here, does this exist already, upload it once.

Calls go through the JVM of `jvm/hadoop.py`. A run's own files go through `mpca.storage` and its stores.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JJavaError

from mpca.checks import masked
from mpca.errors import EnvironmentRefused
from mpca.spark.jvm.login import explained
from mpca.storage.hadoop_errors import as_os_error

__all__ = ["ClusterFiles", "content_key"]

_BLOCK = 1 << 20


def content_key(jars: Sequence[Path]) -> str:
    """A name for the content of these files: the same on every machine, and another one after any change."""
    digest = hashlib.sha256()
    for jar in sorted(jars, key=lambda one: one.name):
        digest.update(jar.name.encode() + b"\0")
        with jar.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()[:16]


class ClusterFiles:
    """The file systems that the cluster's configuration names."""

    def __init__(self, jvm: Any, configuration: Any) -> None:
        self._jvm = jvm
        self._configuration = configuration

    @property
    def default(self) -> str:
        """``fs.defaultFS``."""
        return str(self._configuration.get("fs.defaultFS", "file:///"))

    def home(self) -> str:
        """The user's folder, in which Spark keeps the files that an application needs while it runs."""
        with _Refusing(self.default):
            return str(self._system("/").getHomeDirectory().toString())

    def check_writable(self, path: str, what: str) -> None:
        """Check that the user may make and change files there, without writing any.

        Args:
            path: a folder, which may not exist yet.
            what: its name in the error.

        Raises:
            EnvironmentRefused: the user may not.
        """
        with _Refusing(path, what):
            access = self._jvm.org.apache.hadoop.fs.permission.FsAction.WRITE_EXECUTE
            try:
                system, here = self._system(path), self._standing(path)
                if not system.getFileStatus(here).isDirectory():
                    raise EnvironmentRefused(f"{what} cannot be made: {masked(path)}: {here.toString()} is a file")
                system.access(here, access)
            except Py4JJavaError as error:
                if not str(error.java_exception.getClass().getName()).endswith(".AccessControlException"):
                    raise
                raise EnvironmentRefused(
                    f"{what} is not writable: {masked(path)}: {_first_line(error)}; name a folder of your own"
                ) from None

    def probe(self, folder: str) -> None:
        """Write a file in `folder`, or in the nearest folder above it that exists, rename it, read its length, and remove it.

        Raises:
            EnvironmentRefused: one of these fails; says which.
        """
        system = self._system(folder)
        name = f"{str(self._standing(folder).toString()).rstrip('/')}/.mpca-doctor"
        steps: list[tuple[str, Callable[[], Any]]] = [
            ("write", lambda: self._write(system, self._path(f"{name}/a"), b"mpca")),
            ("rename", lambda: system.rename(self._path(f"{name}/a"), self._path(f"{name}/b"))),
            ("read", lambda: system.getFileStatus(self._path(f"{name}/b")).getLen() == 4),
        ]
        try:
            for step, act in steps:
                with _Refusing(folder, f"cannot {step} in"):
                    if not act():
                        raise EnvironmentRefused(f"cannot {step} in {masked(folder)}: HDFS gives no reason")
        except EnvironmentRefused:
            with suppress(Py4JJavaError):
                system.delete(self._path(name), True)
            raise
        with _Refusing(folder, "cannot remove from"):
            system.delete(self._path(name), True)

    def clock(self, folder: str) -> float:
        """Wall clock of the NameNode in seconds, from a file that is made and removed in `folder` or above it."""
        with _Refusing(folder):
            system = self._system(folder)
            there = self._path(f"{str(self._standing(folder).toString()).rstrip('/')}/.mpca-doctor-clock")
            self._write(system, there, b"")
            stamp = system.getFileStatus(there).getModificationTime() / 1000
            system.delete(there, False)
        return float(stamp)

    def space(self, path: str) -> int:
        """Bytes that are free."""
        with _Refusing(path):
            return int(self._system(path).getStatus(self._standing(path)).getRemaining())

    def read(self, path: str) -> str | None:
        """The text of a small file; None if it does not exist."""
        with _Refusing(path):
            system, there = self._system(path), self._path(path)
            if not system.exists(there):
                return None
            stream = system.open(there)
            try:
                return str(self._jvm.java.util.Scanner(stream, "UTF-8").useDelimiter("\\A").next())  # all of it, on Java 8 too
            finally:
                stream.close()

    def fetch(self, url: str, offset: int, length: int) -> bytes:
        """A part of a file, for `ExecutorFiles`: py4j is slow, and good enough for a data set's manifest and indices.

        Raises:
            OSError: it cannot be read; FileNotFoundError: it is not there.
        """
        try:
            system, there = self._system(url), self._path(url)
            wanted = max(0, min(length, system.getFileStatus(there).getLen() - offset))
            stream = system.open(there)
            try:
                if wanted:
                    stream.seek(offset)
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, wanted))
            finally:
                stream.close()
        except Py4JJavaError as error:
            thrown = error.java_exception
            raise as_os_error(thrown.getClass().getName(), thrown.getMessage() or "", masked(url)) from None

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; none if it does not exist."""
        with _Refusing(folder):
            system, there = self._system(folder), self._path(folder)
            return sorted(str(one.getPath().getName()) for one in system.listStatus(there)) if system.exists(there) else []

    def bring(self, jars: Sequence[Path], say: Callable[[str], None]) -> str:
        """Upload these jars as one archive into the user's folder, unless the same content is there already.

        Args:
            jars: what goes in.
            say: takes a line for the user.

        Returns:
            The archive's address.
        """
        folder = f"{self.home()}/.mpca"
        target = f"{folder}/spark-jars-{content_key(jars)}.zip"
        with _Refusing(target):
            system = self._system(target)
            if system.exists(self._path(target)):
                return target
            size = sum(jar.stat().st_size for jar in jars)
            say(f"bringing Spark's jars to {target}, once: {size >> 20} MiB")
            with TemporaryDirectory(prefix="mpca-jars-") as work:
                local = Path(work) / "jars.zip"
                with zipfile.ZipFile(local, "w", zipfile.ZIP_STORED) as archive:  # jars are compressed already
                    for jar in jars:
                        archive.write(jar, jar.name)
                half = self._path(f"{target}.{id(self):x}")
                system.copyFromLocalFile(False, True, self._path(f"file://{local}"), half)
                if not system.rename(half, self._path(target)):  # another process was quicker, with the same bytes
                    system.delete(half, False)
        return target

    def _standing(self, path: str) -> Any:
        """The path, or the nearest folder above it that exists."""
        system, here = self._system(path), self._path(path)
        while not system.exists(here):
            here = here.getParent()
        return here

    def _write(self, system: Any, path: Any, data: bytes) -> bool:
        stream = system.create(path, True)
        stream.write(bytearray(data))
        stream.close()
        return True

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        with _Refusing(path):
            return self._path(path).getFileSystem(self._configuration)


class _Refusing:
    """Turns an exception of the JVM into a refusal that names the path."""

    def __init__(self, path: str, what: str = "not reachable:") -> None:
        self._path, self._what = path, what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Py4JJavaError):
            text, advice = explained(error)
            advice = f"; {advice}" if advice else ""
            raise EnvironmentRefused(f"{self._what} {masked(self._path)}: {masked(text)}{advice}") from None


def _first_line(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString()).splitlines()[0]
