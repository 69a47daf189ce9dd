"""Pairs of runs side by side on executors of this machine: one is left alone, its twin meets a fault a minute. Both end after
as many updates, and their joint models are judged on what nobody learnt (P35: recovery costs no accuracy)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.spark.twins.ledger import Ledger
from tests.spark.twins.train import AGENTS, judge

__all__ = ["KINDS", "Failed", "Pair", "Twin", "drawn", "lines", "outside", "pair"]

FAULT_EVERY_S, LOOK_EVERY_S = 60.0, 1.0
#: Of one agent; both runs of a pair get the same number, whatever this machine makes of it in a minute.
UPDATES_A_MINUTE = 1100
START_S, RECOVERY_S, END_S = 240.0, 300.0, 240.0
#: A run that trains so much longer than its minutes does not get on; nor does it outlive who started it by more.
LATE = 3.0
STOPPED_S = 8.0  # shorter than the silence after which an agent is replaced, and than a cycle's deadline
ROOT = Path(__file__).resolve().parents[3]


class Failed(Exception):
    """A twin did not do what a run does."""


@dataclass(frozen=True)
class Twin:
    """A run that has ended."""

    seed: int
    faults: dict[str, int]  # by kind
    attempts: int
    cycles: int
    updates: int
    seconds: float
    error: float
    loss: float


class Run:
    """One twin, while it runs: an attempt of its driver, and the next one if that was killed."""

    def __init__(self, folder: Path, seed: int, minutes: float) -> None:
        folder.mkdir(parents=True)
        self.faults: dict[str, int] = {}
        self.ledger = Ledger(AGENTS)
        self._folder, self._seed, self._read = folder, seed, 0
        self._max_time = f"{LATE * minutes:g}min"
        self._end = folder / "end"
        self._log = (folder / "log").open("ab")
        self._began = time.monotonic()
        self._process = self._attempt("-")

    @property
    def run_dir(self) -> Path:
        return self._folder / "run"

    def _attempt(self, resume: str) -> subprocess.Popen[bytes]:
        words = [str(self.run_dir), str(self._end), str(self._seed), self._max_time, resume]
        command = [sys.executable, "-m", "tests.spark.twins.train", *words]
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def look(self) -> None:
        """Read what is new in the records.

        Raises:
            Failed: the run has ended.
        """
        code = self._process.poll()
        if code is not None and not self._end.exists():
            raise Failed(f"{self._folder}: ended with {code} after {self.ledger.updates} updates, see its log")
        path = self.run_dir / "records.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            self.ledger.take(whole.splitlines())

    # ---- faults

    def meet(self, kind: str, chance: random.Random, wait: Callable[[Callable[[], bool], str], None]) -> None:
        """One fault, until all agents take part again."""
        agent = self.ledger.agents[chance.randrange(AGENTS)]
        try:
            process = psutil.Process(agent["pid"])
            victim = {"agent": process, "parent": process.parent(), "executor": _executor(process)}
        except psutil.NoSuchProcess:
            raise Failed(f"{self._folder}: agent {agent['index']} has ended by itself, see its log") from None
        what, _, whom = kind.partition(" ")
        if whom == "driver":
            attempts = self.ledger.attempts
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = self._attempt("auto")
            wait(lambda: self.ledger.attempts > attempts, "the next driver")
        elif what == "kill":
            starts = _starts(self.ledger)
            victim[whom].kill()
            wait(lambda: _starts(self.ledger) != starts, "a new agent")
        else:
            victim[whom].suspend()
            until = time.monotonic() + STOPPED_S
            try:
                wait(lambda: time.monotonic() > until, "time to pass")
            finally:
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim[whom].resume()
        full = self.ledger.full
        wait(lambda: self.ledger.full > full, "a cycle of all agents")
        self.faults[kind] = self.faults.get(kind, 0) + 1

    # ---- its end

    def end(self) -> None:
        """Train functions return."""
        self._end.touch()

    def told(self) -> Twin:
        from safetensors.torch import load_file

        seconds = time.monotonic() - self._began
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self._folder}: did not end within {END_S:.0f} s, see its log") from None
        self.look()
        if code:
            raise Failed(f"{self._folder}: ended with {code}, see its log")
        error, loss = judge(load_file(self.run_dir / "model.safetensors"))
        ledger = self.ledger
        return Twin(self._seed, self.faults, ledger.attempts, ledger.cycles, ledger.updates, round(seconds, 1), error, loss)

    def close(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGINT)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._log.close()


def _executor(agent: psutil.Process) -> psutil.Process:
    return next(one for one in agent.parents() if one.name() == "java")


def _starts(ledger: Ledger) -> dict[int, int]:
    return {index: one["pid"] for index, one in ledger.agents.items()}


KINDS = ("kill agent", "kill parent", "kill executor", "kill driver", "stop agent", "stop executor")


def drawn(chance: random.Random) -> Iterator[str]:
    """Kinds without end: all in one order, then all in another."""
    while True:
        yield from chance.sample(KINDS, len(KINDS))


@dataclass(frozen=True)
class Pair:
    alone: Twin
    faulty: Twin


def pair(minutes: float, seed: int, folder: Path, say: Callable[[str], None]) -> Pair:
    """Both twins of a seed.

    Raises:
        Failed: one did not get on, or agents stayed away.
    """
    goal = round(minutes * UPDATES_A_MINUTE * AGENTS)
    say(f"seed {seed}: two runs begin, of {minutes:g} minutes, which is {goal} updates")
    alone, faulty = runs = [Run(folder / f"{seed}-{name}", seed, minutes) for name in ("alone", "faulty")]
    chance = random.Random(seed)
    ended: set[Run] = set()

    def look() -> None:
        time.sleep(LOOK_EVERY_S)
        for run in runs:
            run.look()
            if run not in ended and run.ledger.updates >= goal:
                run.end()
                ended.add(run)

    def wait(there: Callable[[], bool], what: str, limit_s: float = RECOVERY_S) -> None:
        until = time.monotonic() + limit_s
        while not there() and faulty not in ended:
            if time.monotonic() > until:
                raise Failed(f"seed {seed}: {what}: not within {limit_s:.0f} s")
            look()

    try:
        wait(lambda: all(run.ledger.full for run in runs), "the first cycle of all agents", START_S)
        began = time.monotonic()
        for number, kind in enumerate(drawn(chance), 1):
            while time.monotonic() < began + number * FAULT_EVERY_S and faulty not in ended:
                look()
            if faulty in ended:
                break
            at = time.monotonic()
            faulty.meet(kind, chance, wait)
            took = time.monotonic() - at
            say(f"seed {seed}, {at - began:5.0f} s: {kind}, over after {took:.0f} s; {faulty.ledger.updates} of {goal} updates")
        while len(ended) < len(runs):
            look()
        return Pair(alone.told(), faulty.told())
    finally:
        for run in runs:
            run.close()


def outside(pairs: list[Pair]) -> list[str]:
    """What speaks against P35: means that differ by more than runs of one kind among themselves. One pair says nothing."""
    found: list[str] = []
    if len(pairs) < 2:
        return found
    for figure in ("error", "loss"):
        alone = [getattr(one.alone, figure) for one in pairs]
        faulty = [getattr(one.faulty, figure) for one in pairs]
        apart = abs(sum(alone) - sum(faulty)) / len(pairs)
        spread = max(max(one) - min(one) for one in (alone, faulty))
        if apart > spread:
            found.append(f"{figure}: means are {apart:.4g} apart, and runs of one kind at most {spread:.4g}")
    return found


def lines(pairs: list[Pair]) -> list[str]:
    """A table for people."""
    said = [
        f"{'seed':>6} {'':8} {'faults':>6} {'drivers':>7} {'cycles':>7} {'updates':>8} {'seconds':>8} {'error':>8} {'loss':>8}"
    ]
    for one in pairs:
        for name, twin in (("alone", one.alone), ("faulty", one.faulty)):
            said.append(
                f"{twin.seed:6} {name:8} {sum(twin.faults.values()):6} {twin.attempts:7} {twin.cycles:7} {twin.updates:8} "
                f"{twin.seconds:8.0f} {twin.error:8.2%} {twin.loss:8.5f}"
            )
    ratios = [one.faulty.loss / one.alone.loss for one in pairs]
    each, mean = ", ".join(f"{one:.4f}" for one in ratios), sum(ratios) / len(ratios)
    said.append(f"loss with faults over loss without: {each}; mean {mean:.4f}")
    return [*said, *outside(pairs)]


def to_json(pairs: list[Pair]) -> str:
    return json.dumps({"pairs": [asdict(one) for one in pairs], "outside": outside(pairs)}, indent=1) + "\n"
