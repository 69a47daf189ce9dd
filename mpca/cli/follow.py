"""Runs a spark-submit line, shows its output without Spark's chatter, passes signals on, and finds the run's exit code.

In client mode the driver is a grandchild of this process. A signal goes to the driver, so that it ends its run in order;
Spark's JVM in between would only end. In cluster mode the driver is a container, and a signal kills the application. SIGHUP
does not: a run in cluster mode does not depend on the terminal that submitted it.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from types import FrameType
from typing import IO

import psutil

from mpca.agent.process import die_with
from mpca.cli.outcome import is_result, result_lines, say_last
from mpca.environment import child_environment
from mpca.errors import EnvironmentRefused
from mpca.records import Summary, parse_summary
from mpca.spark.hdfs.files import ClusterFiles
from mpca.spark.jvm.hadoop import SparkHome, hadoop_jvm
from mpca.spark.yarn.client import Application, Yarn, application_ids, exit_code, memory_kill
from mpca.streams import aside
from mpca.timeouts import LAST_LINES_S

__all__ = ["follow"]

_CHATTER = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d INFO ")
#: Some clusters' log4j2 names the thread too, or more of the class's name.
_STATE = re.compile(r"INFO +\S*Client: (?:\[.*?\]:? )?Application report for (application_\w+) \(state: (\w+)\)")
_ROOT_CAUSE = "mpca: "
_TAIL = 15
_SIGNALLED = 128


def follow(line: list[str], deploy_mode: str, program: str, home: SparkHome, run_folder: Callable[[str], str]) -> int:
    """Run the line to its end.

    Args:
        line: of spark-submit.
        deploy_mode: "client" or "cluster".
        program: name of the driver's file, by which its process is found.
        home: the Spark that submits.
        run_folder: gives the run folder of an application in cluster mode.

    Returns:
        The run's exit code.
    """
    following = _Following(line, deploy_mode == "cluster", program, home, run_folder)
    watched = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
        watched.append(signal.SIGHUP)
    before = {one: signal.signal(one, following.signalled) for one in watched}
    try:
        with aside():
            code = following.run()
        say_last(*following.last_words(code))
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    return code


class _Following:
    def __init__(
        self, line: list[str], cluster_mode: bool, program: str, home: SparkHome, run_folder: Callable[[str], str]
    ) -> None:
        self._cluster_mode, self._program, self._home, self._run_folder = cluster_mode, program, home, run_folder
        self._application: str | None = None
        self._state = ""
        self._root_cause = ""
        self._result: list[str] = []  # how the run went, in lines
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._signal: int | None = None
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=child_environment(SPARK_HOME=str(home.path)),
            # Ctrl-C reaches this process alone, which passes it on. When this process is killed, the JVM gets SIGTERM.
            start_new_session=True,
            preexec_fn=lambda: die_with(signal.SIGTERM),
        )

    def run(self) -> int:
        readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, sys.stdout), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, sys.stderr), daemon=True),
        ]
        for reader in readers:
            reader.start()
        code = self._process.wait()
        for reader, source in zip(readers, (self._process.stdout, self._process.stderr), strict=True):
            reader.join(LAST_LINES_S)
            if source is not None and not reader.is_alive():
                source.close()
        if self._signal == signal.SIGHUP and self._cluster_mode:
            self._say(f"the terminal is gone, and {self._application or 'what was submitted'} goes on")
        elif self._cluster_mode and self._application is not None:
            code = self._outcome(self._application)
        elif code and not self._root_cause and self._signal is None:
            self._say(*self._tail)
        if self._signal is not None:
            code = _SIGNALLED + self._signal
        return code if code >= 0 else _SIGNALLED - code

    def last_words(self, code: int) -> tuple[list[str], list[str]]:
        """Lines for stdout and stderr that come after everything else: how the run went, and why if it failed."""
        if not code:
            return self._result, []
        where = f", {self._application}" if self._application else ""
        return self._result, [self._root_cause or f"mpca: spark-submit ended with exit code {code}{where}"]

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks for an orderly end, the next one ends it. A terminal that is gone sends SIGHUP three times."""
        if number == signal.SIGHUP and self._signal is not None:
            return
        first, self._signal = self._signal is None, number
        threading.Thread(target=self._end, args=(number, first), daemon=True).start()

    # ---- inside ----

    def _end(self, number: int, gently: bool) -> None:
        if self._cluster_mode:
            if number != signal.SIGHUP and self._application is not None:
                try:
                    with hadoop_jvm(self._home) as jvm, closing(Yarn(jvm)) as yarn:
                        yarn.kill(self._application)
                except EnvironmentRefused as error:
                    self._say(f"{self._application} was not killed: {error}")
                    self._process.terminate()
            else:
                self._process.terminate()
            return
        drivers = list(self._drivers()) if gently else []
        if not drivers:
            self._process.terminate()
        for one in drivers:
            with suppress(psutil.Error):
                one.send_signal(number)

    def _drivers(self) -> Iterator[psutil.Process]:
        """The driver's Python processes below Spark's JVM, whose own command line names the program too."""
        with suppress(psutil.Error):
            for one in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.Error):  # Spark's scripts leave zombies
                    if any(word.endswith(self._program) for word in one.cmdline()[:3]):
                        yield one

    def _outcome(self, application: str) -> int:
        """Find how the run went: in cluster mode spark-submit says only whether it went well."""
        folder = self._run_folder(application)
        with hadoop_jvm(self._home) as jvm, closing(Yarn(jvm)) as yarn:
            ended = self._ended(yarn, application)
            summary, saved = _left(ClusterFiles(jvm, yarn.configuration), folder)
        code = exit_code(ended)
        self._result = [f"run folder {folder}"]
        if summary is not None:
            self._result += result_lines(asdict(summary), folder, saved)
        reason = summary.reason.strip().splitlines() if summary is not None else []
        killed = memory_kill(ended.diagnostics)
        if killed is not None:
            advice = killed.advice(f"spark.driver.memoryOverhead to what `yarn logs -applicationId {application}` says of it")
            self._root_cause = f"{_ROOT_CAUSE}the driver's {advice}"
        elif code and reason:
            self._say(*reason[1:])
            self._root_cause = f"{_ROOT_CAUSE}{reason[0]}"
        elif code:
            lines = [one for one in ended.diagnostics.splitlines() if one.strip()]
            self._say(*lines[-_TAIL:])
            self._root_cause = f"{_ROOT_CAUSE}{application} {ended.state}: {lines[0] if lines else 'YARN gives no reason'}"
        return code

    def _ended(self, yarn: Yarn, application: str) -> Application:
        """The application at its end. If a signal stopped the submitter while the application came up, kill the application."""
        seen = yarn.application(application)
        if not seen.over and self._signal is not None:
            yarn.kill(application)
            seen = yarn.application(application)
        return seen

    def _read(self, source: IO[str], sink: IO[str]) -> None:
        chatter = False
        for line in source:
            text = line.rstrip("\n")
            state = _STATE.search(text)
            if self._application is None and source is self._process.stderr:
                self._application = next(iter(application_ids(text)), None)
            if state is not None and state[2] != self._state:
                self._state = state[2]
                self._say(f"{state[1]} {state[2]}", sink=sys.stdout)
            if text.startswith(_ROOT_CAUSE):
                self._root_cause = text  # it is shown last
                continue
            if source is self._process.stdout and is_result(text):  # shown last too: Spark's last lines come after the run's
                self._result.append(text)
                continue
            # indented lines that follow chatter are chatter too
            chatter = _CHATTER.match(text) is not None or (chatter and text[:1].isspace())
            if not chatter:
                self._tail.append(text)
                self._say(text, sink=sink)

    def _say(self, *lines: str, sink: IO[str] | None = None) -> None:
        for line in lines:
            print(line, file=sink or sys.stderr, flush=True)


def _left(files: ClusterFiles, folder: str) -> tuple[Summary | None, list[str]]:
    """A run's summary and the names of its files; None and no names if they do not exist or cannot be read."""
    try:
        text = files.read(f"{folder}/summary.json") if folder else None
        if text is None:
            return None, []
        return parse_summary(text, folder), files.names(folder)
    except (EnvironmentRefused, ValueError):  # a damaged summary counts as none
        return None, []
