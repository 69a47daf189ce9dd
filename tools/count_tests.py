"""What became of the tests, by folder, from pytest's JUnit files; for `.ci/run`.

Prints passed, failed and skipped tests of every folder, how long each file of results took, the slowest modules, and the last
words of tests that failed. Exits with 1 when a test on a real cluster was skipped: such a test counts only when it ran; when
any is missing; and when a folder has none, whoever took it away. Needs the files' paths and the ids that pytest collects (on
stdin, as ``pytest --collect-only -q`` prints them).
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

__all__ = ["FOLDERS", "REAL", "count", "failures", "main", "missing", "seconds", "slowest"]

#: Where there are tests. A folder that goes away, or comes, is written here by whoever does it.
FOLDERS = (
    "tests",
    "tests/agent",
    "tests/algorithm",
    "tests/api",
    "tests/bare",
    "tests/bench",
    "tests/browser",
    "tests/cli",
    "tests/data",
    "tests/docker",
    "tests/driver",
    "tests/gpu",
    "tests/hadoop",
    "tests/methods",
    "tests/ml",
    "tests/models",
    "tests/records",
    "tests/report",
    "tests/shm",
    "tests/sim",
    "tests/sim/compare",
    "tests/sim/science",
    "tests/spark",
    "tests/storage",
    "tests/track",
    "tests/trainers",
    "tests/wire",
)
REAL = ("tests/spark", "tests/hadoop", "tests/docker", "tests/browser")
#: Of what a failed test said; a log that is cut in the middle still has its end.
_LAST_CHARACTERS = 600
_SLOWEST = 10
_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def _folder(module: str) -> str:
    """``tests.sim.compare.test_result.TestX`` -> ``tests/sim/compare``; of a module beside the folders, ``tests``."""
    return "/".join(itertools.takewhile(lambda word: not word.startswith("test_"), module.split(".")))


def count(*junits: str) -> dict[str, Counter[str]]:
    """By folder: how many passed, failed and were skipped."""
    found: dict[str, Counter[str]] = {}
    for case in (case for junit in junits for case in ElementTree.fromstring(junit).iter("testcase")):
        ends = [_OUTCOMES[child.tag] for child in case if child.tag in _OUTCOMES]
        found.setdefault(_folder(case.get("classname", "")), Counter())[ends[0] if ends else "passed"] += 1
    return found


def failures(*junits: str) -> list[str]:
    """Name and last words of each test that failed."""
    return [
        f"{case.get('classname')}::{case.get('name')}: ...{(child.get('message') or child.text or '')[-_LAST_CHARACTERS:]}"
        for case in (case for junit in junits for case in ElementTree.fromstring(junit).iter("testcase"))
        for child in case
        if _OUTCOMES.get(child.tag) == "failed"
    ]


def seconds(junit: str) -> float:
    """From the first test of a file to the end of its last one."""
    return sum(float(suite.get("time", "0")) for suite in ElementTree.fromstring(junit).iter("testsuite"))


def slowest(*junits: str) -> list[tuple[str, float]]:
    """Modules and seconds of their tests, fixtures included, the slowest first."""
    took: dict[str, float] = {}
    for case in (case for junit in junits for case in ElementTree.fromstring(junit).iter("testcase")):
        module = case.get("classname", "")
        took[module] = took.get(module, 0.0) + float(case.get("time", "0"))
    return sorted(took.items(), key=lambda one: one[1], reverse=True)[:_SLOWEST]


def missing(counts: dict[str, Counter[str]], collected: Iterable[str]) -> list[str]:
    """What keeps these tests from counting."""
    wanted = Counter(str(PurePosixPath(line.split("::")[0]).parent) for line in collected if "::" in line)
    said = [f"{folder}: no tests; it is in the list of tools/count_tests.py" for folder in FOLDERS if folder not in counts]
    said += [f"{folder}: not in the list of tools/count_tests.py" for folder in sorted(counts.keys() - set(FOLDERS))]
    for folder in sorted(wanted.keys() | counts.keys()):
        ran = counts.get(folder, Counter())
        if ran["skipped"] and folder.startswith(REAL):
            said.append(f"{folder}: {ran['skipped']} skipped; tests on a real cluster must run")
        if sum(ran.values()) < wanted[folder]:
            said.append(f"{folder}: {sum(ran.values())} of {wanted[folder]} tests ran")
    return said


def main(junits: Iterable[Path], collected: Iterable[str]) -> int:
    texts = {one.stem: one.read_text(encoding="utf-8") for one in junits}
    counts = count(*texts.values())
    for folder, ends in sorted(counts.items()):
        print(f"{folder:<20} " + ", ".join(f"{ends[name]} {name}" for name in ("passed", "failed", "skipped")))
    wrong = missing(counts, collected)
    print("seconds: " + ", ".join(f"{name} {seconds(text):.0f}" for name, text in texts.items()))
    print("slowest: " + ", ".join(f"{module} {took:.0f}" for module, took in slowest(*texts.values())))
    print("\n".join([*failures(*texts.values()), *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(map(Path, sys.argv[1:]), sys.stdin))
