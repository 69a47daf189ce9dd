"""Runs the rows one after the other, and goes on where an earlier call ended.

Each measurement is a process of its own. One that fails, or takes too long, is told and written down, and the next one begins.
The file is written after each measurement. A call finds the unfinished file of the same commit and machine, and measures what
is missing in it. Before and after each measurement it looks what else the machine does: figures of a busy one are kept, and
judged by nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpca.cli.bench.suite import report, yardstick
from mpca.cli.bench.suite.comparison import FORMAT, attempts, compared, counts, figures, lines, loaded, read
from mpca.cli.bench.suite.rows import ROWS, Row, on_gpu, short
from mpca.environment import child_environment

__all__ = ["ALL", "FOLDER", "GPU", "SHORT", "Case", "case", "ended", "main", "measure", "missing", "opened", "plan"]

FOLDER = "benchmarks"
#: What files of whole runs, of short ones and of those on a GPU begin with.
ALL, SHORT, GPU = "all-", "short-", "gpu-"
_REFUSED = 2  # `mpca` ends with this when something that it needs is not there
_TAIL_LINES = 12
_LEAVE_S = 30.0

#: Measures a row once: {"result": ...}, {"left_out": why} or {"failed": why}.
Case = Callable[[Row], dict[str, Any]]


def main(words: Sequence[str] | None = None) -> int:
    """Run everything, the short form, or what needs a GPU.

    Returns:
        1 if a case failed, nothing could be measured, or a figure became worse by more than its noise; 130 if it was
        interrupted; else 0.
    """
    parser = argparse.ArgumentParser(prog="make bench")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--short", action="store_true", help="the lines that end within fourteen minutes, twice each")
    parts.add_argument("--gpu", action="store_true", help="the lines that need a GPU, once each")
    asked = parser.parse_args(words)
    rows, prefix, other = ROWS, ALL, SHORT
    if asked.short:
        rows, prefix, other = short(), SHORT, ALL
    elif asked.gpu:
        rows, prefix, other = on_gpu(), GPU, ALL
    brief = asked.short or asked.gpu
    root = Path(__file__).resolve().parents[4]
    path, run = opened(root / FOLDER, report.commit(root), report.machine(), report.versions(), time.time(), prefix)
    last = report.last_committed(root, FOLDER, (prefix, other))
    before: dict[str, Any] | None = None
    try:
        before = read(last[1]) if last else None
    except ValueError as error:
        _say(f"{last and last[0]} cannot be compared with: {error}")
    for line in plan(run, rows, before):
        _say(line)
    if asked.short:
        _say(f"left out: {', '.join(row.name for row in ROWS if not row.in_short)}")
    try:
        measure(path, run, rows, case, yardstick.measure, _say)
    except KeyboardInterrupt:
        what = (
            f"{path.relative_to(root)} has what there is, and the same command goes on"
            if path.exists()
            else "nothing was measured"
        )
        _say(f"interrupted: {what}")
        _say(f"missing: {', '.join(missing(run, rows))}")
        return 130
    if next(attempts(run), None) is None:
        path.unlink()
        _say("nothing was measured")
        return 1
    failed = [name for name, row in run["rows"].items() if "failed" in row]
    _say(f"written: {path.relative_to(root)}")
    for name in missing(run, rows):
        _say(f"not measured: {name}")
    busy = [loaded(one) for one in attempts(run)]
    if any(busy):
        _say(
            f"the machine had other work in {sum(busy)} of {len(busy)} measurements: measure again before you commit this file"
        )
    if last is None:
        _say("no run was committed yet: nothing to compare with")
    if before is None:
        return int(bool(failed or last))
    comparison = compared(before, run)
    _say(f"compared with {last and last[0]}, seconds and rates in yardsticks:")
    for line in lines(comparison, told_missing=not brief):
        _say(line)
    return int(bool(failed or comparison.worse))


def plan(run: dict[str, Any], rows: Sequence[Row], before: dict[str, Any] | None) -> list[str]:
    """What will be measured, and about how long that takes: as long as in the last committed run, or as the rows say."""
    total, counts = 0.0, []
    for row in rows:
        left = row.repeats - len(_kept(run, row))
        took = [one["seconds"] for one in _kept(before or {"rows": {}}, row) if "seconds" in one]
        total += left * (sum(took) / len(took) if took else row.expected_s)
        if left:
            counts.append(f"{row.name} x{left}" if left > 1 else row.name)
    what = ", ".join(counts) or "nothing is missing"
    return [f"about {total / 60:.0f} minutes on a quiet machine, less what cannot run here: {what}"]


def missing(run: dict[str, Any], rows: Sequence[Row]) -> list[str]:
    """Rows that have fewer measurements than they should."""
    return [row.name for row in rows if len(_kept(run, row)) < row.repeats]


def _kept(run: dict[str, Any], row: Row) -> list[dict[str, Any]]:
    """Measurements of a row with the same words that a run has already."""
    kept = run["rows"].get(row.name, {})
    return [one for one in kept.get("attempts", ()) if "result" in one] if kept.get("words") == list(row.words) else []


def opened(
    folder: Path, commit: str, machine: dict[str, Any], versions: dict[str, str], now: float, prefix: str = ALL
) -> tuple[Path, dict[str, Any]]:
    """The unfinished run of this commit, machine and versions in a folder, or a new one; with its path."""
    for path in sorted(folder.glob(f"{prefix}*.json"), reverse=True):
        with suppress(OSError, ValueError):
            run = read(path.read_bytes())
            if (run.get("ended"), run.get("commit"), run["machine"], run.get("versions")) == (None, commit, machine, versions):
                return path, run
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    head = {"format": FORMAT, "started": stamp, "ended": None, "commit": commit, "machine": machine, "versions": versions}
    return folder / f"{prefix}{stamp}.json", {**head, "rows": {}}


def measure(
    path: Path,
    run: dict[str, Any],
    rows: Sequence[Row],
    case: Case,
    measure_yardstick: Callable[[], dict[str, float]],
    say: Callable[[str], None],
    at_rest: Callable[[], dict[str, float]] = report.at_rest,
) -> None:
    """Measure what is missing in a run, and write it after each measurement.

    Args:
        path: the run's file.
        run: the run, changed in place.
        rows: what belongs to a run.
        case: measures a row once.
        measure_yardstick: is called before each measurement.
        say: gets one line for each measurement.
        at_rest: is called before and after each, and tells what else the machine does.
    """
    for row in rows:
        measured = _kept(run, row)
        entry: dict[str, Any] = {"words": list(row.words), "attempts": measured, "figures": figures(row, measured)}
        run["rows"][row.name] = entry
        while len(measured) < row.repeats:
            rest = [at_rest()]
            yard = measure_yardstick()
            start = time.monotonic()
            end = case(row)
            seconds = round(time.monotonic() - start, 1)
            rest.append(at_rest())
            if "result" not in end:
                entry |= end
                say(f"{row.name}: {' '.join(end)}: {' '.join(end.values())}")
                break
            measured.append({"yardstick": yard, "at_rest": rest, "seconds": seconds, **end})
            entry["figures"] = figures(row, measured)
            busy = ", on a busy machine" if loaded(measured[-1]) else ""
            why = "" if counts(end) else f", which does not count: {end['result']['reason']}"
            say(f"{row.name}: {len(measured)} of {row.repeats}, {seconds:.0f} s{busy}{why}")
            report.write(path, run)
        report.write(path, run)
    run["ended"] = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    report.write(path, run)


def case(row: Row) -> dict[str, Any]:
    """Run one line of `mpca bench`."""
    return ended([sys.executable, "-m", "mpca.cli", "bench", *row.words, "--json"], row.limit_s)


def ended(command: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Run a command in a process group of its own.

    Returns:
        What became of it, as of a `Case`.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=child_environment(),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return {"failed": f"took longer than {limit_s:.0f} s"}
    except BaseException:
        _end(process)
        raise
    tail = "\n".join(err.splitlines()[-_TAIL_LINES:])
    if process.returncode == _REFUSED and "Usage:" not in err:
        return {"left_out": tail}
    if process.returncode:
        return {"failed": f"exit_code={process.returncode}\n{tail}"}
    try:
        return {"result": dict(json.loads(out.splitlines()[-1]))}
    except (ValueError, TypeError, IndexError):
        return {"failed": f"did not print a JSON object: {out[-200:]!r}"}


def _end(process: subprocess.Popen[str]) -> None:
    """First in order: told alone, it ends its driver, then executors and namespaces, then removes files. Then by force."""
    process.terminate()
    try:
        process.communicate(timeout=_LEAVE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _say(text: str) -> None:
    print(text, flush=True)
