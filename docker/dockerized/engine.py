"""The engine of docker: the one that runs on this machine, or one of our own that `stop` takes away again.

Ours is a dockerd with socket, images and log in one folder of the user's cache, so that the image is there the next time.
Docker's command line is what people have and know; the PyPI client would be a dependency more, with less in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from dockerized.machine import Machine, processes, take_away
from mpca.cli.dev.readiness import wait_until
from mpca.environment import child_environment, environment
from mpca.errors import EnvironmentRefused

__all__ = ["Engine", "cache", "install"]

_READY_S = 60.0
_STOP_S = 30.0


def cache() -> Path:
    """Where downloads and images stay between two clusters."""
    return Path(environment("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpca"


def install(say: Callable[[str], None], program: str, *packages: str) -> None:
    """See to it that a program is there; on Debian as root by apt.

    Raises:
        EnvironmentRefused: it is not there and cannot be installed here.
    """
    if shutil.which(program):
        return
    remedy = f"install it ({' '.join(packages)}) and try again"
    if not Path("/etc/debian_version").exists():
        raise EnvironmentRefused(f"no {program} on this machine, and this is no Debian: {remedy}")
    if os.geteuid() != 0:
        raise EnvironmentRefused(f"no {program} on this machine, and installing it takes root: {remedy}, or run this as root")
    say(f"installing {' '.join(packages)} with apt")
    quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)
    done = subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        env=child_environment(DEBIAN_FRONTEND="noninteractive"),
        **quiet,
    )
    if done.returncode or not shutil.which(program):
        tail = "\n".join(done.stderr.splitlines()[-5:])
        raise EnvironmentRefused(f"apt could not install {' '.join(packages)}: exit code {done.returncode}\n{tail}")


class Engine:
    """Docker's command line against one engine."""

    def __init__(self, folder: Path | None = None) -> None:
        """With a folder: ours, which keeps everything there; without: whichever one docker finds by itself."""
        self.folder = folder
        self.env = child_environment(**({"DOCKER_HOST": f"unix://{folder}/docker.sock"} if folder else {}))

    @classmethod
    def ready(cls, say: Callable[[str], None]) -> Engine:
        """One that answers.

        Raises:
            EnvironmentRefused: there is none, and none can be started here.
        """
        found = cls.running()
        if found is not None:
            say(f"docker engine: {'ours' if found.folder else 'the one that runs here'}, {found.version()}")
            return found
        if os.geteuid() != 0:
            raise EnvironmentRefused("no docker engine answers, and starting one takes root: start docker, or run this as root")
        install(say, "dockerd", "docker.io")
        install(say, "docker", "docker.io", "docker-cli")
        ours = cls.own()
        ours.start(say)
        return ours

    @classmethod
    def own(cls) -> Engine:
        """Ours, whether it runs or not."""
        return cls(cache() / "docker")

    @classmethod
    def running(cls) -> Engine | None:
        """The one that is up, if any: ours first."""
        for one in (cls.own(), cls()):
            if shutil.which("docker") and one.answers():
                return one
        return None

    def __call__(self, *words: str, timeout_s: float = 300.0) -> str:
        """``docker WORDS``: what it printed.

        Raises:
            EnvironmentRefused: it failed; with what it said.
        """
        done = self.call("docker", *words, timeout_s=timeout_s)
        if done.returncode:
            raise EnvironmentRefused(
                f"docker {' '.join(words)} failed: exit code {done.returncode}\n{done.stderr.strip()[-2000:]}"
            )
        return done.stdout

    def call(self, *command: str, timeout_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """A command with this engine in its environment, however it ends."""
        return subprocess.run(
            command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def answers(self) -> bool:
        if self.folder and not (self.folder / "docker.sock").exists():
            return False
        # with a server that is away the client still ends with 0 in some versions
        done = self.call("docker", "version", "--format", "{{.Server.Version}}")
        return done.returncode == 0 and bool(done.stdout.strip())

    def version(self) -> str:
        return self("version", "--format", "{{.Server.Version}}").strip()

    def start(self, say: Callable[[str], None]) -> None:
        """Start ours."""
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            if self.answers():
                return
            if processes(folder):
                raise EnvironmentRefused(f"a dockerd runs and does not answer: see {folder}/dockerd.log, and end it")
            if not self._before.exists():  # otherwise an engine of ours was killed: what it left is still not the machine's
                self._before.write_text(json.dumps(Machine.now().to_json()))
            (folder / "dockerd.pid").unlink(missing_ok=True)
            say(f"starting dockerd; its images stay in {folder}")
            with (folder / "dockerd.log").open("wb") as log:
                subprocess.run(
                    [
                        *("setsid", "--fork", "dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/run"),
                        *("--pidfile", f"{folder}/dockerd.pid", "-H", f"unix://{folder}/docker.sock"),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    check=True,
                )
            if not wait_until(self.answers, _READY_S):
                tail = "\n".join((folder / "dockerd.log").read_text(errors="replace").splitlines()[-10:])
                raise EnvironmentRefused(f"dockerd does not answer after {_READY_S:.0f} s: log={folder}/dockerd.log\n{tail}")

    def stop(self, say: Callable[[str], None]) -> None:
        """End ours and everything that it did to the machine; another's is left alone."""
        if self.folder is None or not self._before.exists():
            return
        with self._alone():
            if self.answers() and self("ps", "--all", "--quiet").strip():
                say("dockerd stays: there are containers on it")
                return
            say("stopping dockerd")
            self._end()
            take_away(Machine.from_json(json.loads(self._before.read_text())), self.folder)
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            for name in ("docker.sock", "dockerd.pid", "before.json"):
                (self.folder / name).unlink(missing_ok=True)

    # ---- inside ----

    @property
    def _folder(self) -> Path:
        assert self.folder is not None  # an engine of somebody else's is never started
        return self.folder

    @property
    def _before(self) -> Path:
        """How the machine was when our engine was started; there as long as something is to be undone."""
        return self._folder / "before.json"

    def _end(self) -> None:
        found: Sequence[psutil.Process] = processes(self._folder)
        for one in found:
            with contextlib.suppress(psutil.Error):
                if one.name() == "dockerd":
                    one.terminate()
        if not wait_until(lambda: not processes(self._folder), _STOP_S):
            for one in processes(self._folder):
                with contextlib.suppress(psutil.Error):
                    one.kill()
            wait_until(lambda: not processes(self._folder), _STOP_S)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One start or stop at a time."""
        with (self._folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
