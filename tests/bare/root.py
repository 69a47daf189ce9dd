"""A Debian root folder with almost nothing in it, and commands run inside.

The folder is made by debootstrap once and kept as an archive under ~/.cache/mpca. Commands run in mount and process
namespaces of their own, so that whatever happens to the test nothing stays mounted and no process stays behind. How this
machine reaches its registries (proxies, certificates, package indexes, mirrors) is taken over from it; its tools are not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["NEEDED", "PACKAGES", "BareRoot", "bare_root"]

#: Of every test that makes one.
NEEDED = (
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="making and entering a root folder takes root"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed"),
)

BOOKWORM = "bookworm"
PACKAGES = ("git", "python3", "make", "ca-certificates")
_DEFAULT_MIRROR = "http://deb.debian.org/debian"
_CACHE = Path.home() / ".cache" / "mpca"
#: Variables that say how to reach the network, and nothing else about the machine.
_NETWORK_VARIABLE = re.compile(r"(?i).*(_proxy|_cert|_cert_file|_cert_dir|_ca_bundle|_cainfo)$|^(PIP|UV|MAVEN|MVNW)_.*")
#: Files that say the same; a path below the home folder lands below /root.
_NETWORK_FILES = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
    "~/.config/pip/pip.conf",
    "~/.pip/pip.conf",
    "~/.config/uv/uv.toml",
    "~/.m2/settings.xml",
)
#: Downloads that are shared with the machine: bytes only, nothing that was installed.
_DOWNLOADS = ("~/.cache/uv", "~/.m2/repository", "~/.m2/wrapper")
#: Mounts and processes of the command end with it, also when it is killed.
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")


class BareRoot:
    """One root folder, unpacked at `path`."""

    def __init__(self, path: Path, suite: str = BOOKWORM) -> None:
        self.path = path
        archive = _CACHE / f"{suite}-{'-'.join(PACKAGES)}.tar"
        if not archive.is_file():
            _bootstrap(archive, suite)
        path.mkdir()
        with tarfile.open(archive) as tar:
            tar.extractall(path, filter="fully_trusted")  # noqa: S202 - an archive of this test
        for source, target in _network_files():
            inside = self.inside(target)
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.unlink(missing_ok=True)
            shutil.copyfile(source, inside)
        _write_apt(self.inside("/etc/apt"), suite)
        self.run("update-ca-certificates", quiet=True)

    def inside(self, path: str) -> Path:
        """A path of the root, seen from here."""
        return self.path / path.lstrip("/")

    def run(self, command: str, cwd: str = "/root", timeout_s: float = 1800, quiet: bool = False) -> str:
        """Run a line of shell in the root; returns what it said, stdout and stderr as they came.

        Raises:
            AssertionError: it failed; the text ends with the last lines.
        """
        inner = f"cd {shlex.quote(cwd)} && {command}"
        mounts = [
            f"mount -t proc proc {self.path}/proc",
            f"mount --rbind /dev {self.path}/dev",
            f"mount -t tmpfs tmpfs {self.path}/dev/shm",
            *(f"mkdir -p {self._home(d)} && mount --bind {Path(d).expanduser()} {self._home(d)}" for d in _downloads()),
        ]
        entry = " && ".join([*mounts, f"exec chroot {self.path} /bin/bash -c {shlex.quote(inner)}"])
        done = subprocess.run(
            [*_APART, "bash", "-c", entry],
            env={**_network_variables(self.path), "HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if not quiet:
            print(f"$ {command}\n{done.stdout}")
        assert done.returncode == 0, f"{command!r} ended with {done.returncode}:\n{done.stdout[-4000:]}"
        return done.stdout

    def _home(self, path: str) -> Path:
        return self.inside(path.replace("~", "/root", 1))


@contextmanager
def bare_root(path: Path, suite: str = BOOKWORM) -> Iterator[BareRoot]:
    """A root for one test. Its gigabytes go after the test; pytest would keep them for three runs."""
    try:
        yield BareRoot(path, suite)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _bootstrap(archive: Path, suite: str) -> None:
    folder, unfinished = archive.with_suffix(".new"), archive.with_suffix(".part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(folder), _mirror(suite)]
    try:
        subprocess.run([*_APART, "--mount-proc", *command], check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(unfinished, "w") as tar:
            tar.add(folder, arcname=".")
        unfinished.rename(archive)
    finally:
        unfinished.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _sources() -> Iterator[str]:
    for path in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            yield path.read_text(encoding="utf-8")


def _mirror(suite: str) -> str:
    """The mirror that this machine itself uses for the suite or, if it is another Debian, for that: mirrors have all."""
    return _mirror_of(suite) or _mirror_of(BOOKWORM) or _DEFAULT_MIRROR


def _mirror_of(suite: str) -> str | None:
    for text in _sources():
        for line in text.splitlines():
            one_line = re.match(rf"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{suite}\s+main", line)
            if one_line:
                return one_line[1]
        stanza = re.search(rf"(?ms)^URIs:\s*(\S+).*?^Suites:.*\b{suite}\b", text)
        if stanza:
            return stanza[1]
    return None


def _write_apt(apt: Path, suite: str) -> None:
    """The same mirror as here, and how apt reaches it (proxies, timeouts)."""
    (apt / "sources.list").write_text(f"deb {_mirror(suite)} {suite} main\n", encoding="utf-8")
    settings = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    network = [line for line in settings.splitlines() if re.match(r'Acquire::\S+ "[^"]+";', line)]
    (apt / "apt.conf.d" / "90network").write_text("\n".join([*network, ""]), encoding="utf-8")


def _network_files() -> Iterator[tuple[Path, str]]:
    for name in _NETWORK_FILES:
        if Path(name).expanduser().is_file():
            yield Path(name).expanduser(), name.replace("~", "/root", 1)
    for path in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        yield path, str(path)


def _network_variables(root: Path) -> dict[str, str]:
    """Those whose value, where it is a path, exists in the root too."""
    return {
        name: value
        for name, value in os.environ.items()
        if _NETWORK_VARIABLE.match(name) and (not value.startswith("/") or (root / value.lstrip("/")).exists())
    }


def _downloads() -> list[str]:
    return [name for name in _DOWNLOADS if Path(name).expanduser().is_dir()]
