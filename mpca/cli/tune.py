"""`mpca tune CONF`: the grid search over alpha of MPCA SGD's section 6.3, by short runs of the configuration itself.

The best alpha depends on the model, its learning rate and n, the updates between two exchanges of a shard. A simulation would
have to guess all three, so these are real runs: CONF's model, data, optimiser and agents, on executors that `mpca train` starts
on this machine. They are short, which makes them cheap, and is their share of the data: what a run reads in `--time`. The paper
takes a smaller data set instead, of which a run would see the same samples again and again.

What to know of the answer: it holds for this n (printed), so run it where the training will run; a run is evaluated on the test
split like any other, so an alpha is chosen on it; and agents on executors are not deterministic, so small differences say
nothing.
"""

from __future__ import annotations

import fcntl
import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import IO, Any

import click

from mpca.agent.process import die_with
from mpca.checks import refused
from mpca.cli.options import Parsed, json_option
from mpca.cli.sheets import show
from mpca.errors import ConfigError, RunFailed
from mpca.timeouts import RUN_END_S
from mpca.units import format_duration, parse_duration

__all__ = ["Tried", "best", "further", "tune"]

#: A first grid in which each is half of the next. The paper's own values, 0.005 and 0.05, lie inside.
GRID = (0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1)
AUTO = "auto"
_MORE = 4  # values beyond the grid, where the best one lies at its edge
_NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Tried:
    """One value of alpha, and how its run ended."""

    alpha: float | str
    error: float
    """Of the joint model at the end, 0 to 1; 1: it diverged."""
    target_s: float | None
    """Seconds of training to the target; None: there is none, or it was not reached."""
    n: float
    """Mean updates between two exchanges of a shard."""
    samples: int | None
    """That all agents read."""

    @property
    def score(self) -> tuple[float, float]:
        """Smaller is better: who reached the target sooner, then who has the smaller error."""
        return (math.inf if self.target_s is None else self.target_s), self.error


def best(tried: Sequence[Tried]) -> Tried:
    """The best one; of equal ones the first."""
    return min(tried, key=lambda one: one.score)


def further(tried: Sequence[Tried], first: int, most: float) -> float | None:
    """The next alpha beyond the edge of the grid at which the best number lies; None: it lies inside, or enough were tried.

    Args:
        tried: all so far, "auto" among them.
        first: numbers of the first grid.
        most: alpha may not be larger.
    """
    numbers = {one.alpha: one for one in tried if isinstance(one.alpha, float)}
    if not 2 <= len(numbers) < first + _MORE:
        return None
    found, order = best(list(numbers.values())).alpha, sorted(numbers)
    if found not in (order[0], order[-1]):
        return None
    near = order[1] if found == order[0] else order[-2]
    beyond = float(f"{order[0] ** 2 / near if found == order[0] else order[-1] ** 2 / near:.5g}")
    return beyond if 0 < beyond <= most else None


def _alphas(text: str) -> tuple[float, ...]:
    try:
        found = tuple(sorted({float(one) for one in text.split(",")}))
    except ValueError:
        raise ValueError(f"not a list of numbers: {text!r}; write 0.0125,0.025,0.05") from None
    if len(found) < 2 or not all(0 < one < math.inf for one in found):
        raise ValueError(f"not a grid: {text!r}; it needs two numbers or more, each above 0")
    return found


@click.command()
@click.argument("conf", type=click.Path(path_type=Path))
@click.option("--set", "sets", multiple=True, metavar="SECTION.KEY=VALUE", help="As for mpca train; for all runs.")
@click.option("--alphas", type=Parsed("numbers", _alphas), default=",".join(map(str, GRID)), show_default=True)
@click.option(
    "--time", "time_s", type=Parsed("duration", parse_duration), default="60s", show_default=True, help="Of each run."
)
@click.option("--run-dir", type=click.Path(path_type=Path), help="Folder of the runs; runs/<name>-tune if not given.")
@json_option
def tune(
    conf: Path, sets: tuple[str, ...], alphas: tuple[float, ...], time_s: float, run_dir: Path | None, as_json: bool
) -> None:
    """Find the alpha for CONF: a short run with each of a grid, and further ones where the best lies at its edge.

    A second start goes on where the first one was. The last line is to be pasted into CONF. Run it on machines and links like
    those of the training: the best alpha depends on how often shards are exchanged. The default method has no alpha: name one
    that has, as in `--set method.name=mpca`.
    """
    from mpca.api.job import resolve
    from mpca.api.signals import Signals

    if not time_s > 0:
        raise refused("--time", time_s, "must be above 0, such as 60s")
    sets = (*sets, f"objectives.max_time={time_s:g}s")
    resolved = resolve(conf, sets)
    most = _most(resolved.method)
    for alpha in alphas:
        resolve(conf, (*sets, f"method.alpha={alpha:g}"))  # refuses what the method refuses, before anything is started
    from mpca.api import builtin  # it imports what a refusal above does not need

    builtin.check(resolved.to_dict())
    folder = run_dir or Path("runs") / f"{resolved.run.name}-tune"
    with _claimed(folder, resolved.to_dict()), Signals():
        tried = _search(alphas, most, not resolved.method.regulariser, lambda alpha: _run(conf, sets, alpha, folder))
    found = best(tried)
    if found.error >= 1:
        raise RunFailed(f"training diverged with every alpha: lower optimizer.lr; the runs lie in {folder}")
    pasted = f'alpha = "{AUTO}"' if found.alpha == AUTO else f"alpha = {found.alpha:g}"
    if as_json:
        click.echo(json.dumps({"alpha": found.alpha, "runs": [asdict(one) for one in tried], "run_dir": str(folder)}))
        return
    _print(tried, found, time_s)
    click.echo(f"\n{pasted}    # [method] of {conf}; the best of {len(tried)} at n = {found.n:.1f}")


def _most(method: Any) -> float:
    """The largest alpha that the method takes."""
    from mpca.methods.mpca import MPCA
    from mpca.methods.mpca_nesterov import NesterovMPCA

    if not isinstance(method, MPCA) or (isinstance(method, NesterovMPCA) and method.correction):
        raise refused("method.name", method.name, 'mpca tune looks for alpha: set method.name = "mpca" or "mpca-paper"')
    for form in ("correction", "replace"):
        if getattr(method, form):
            raise refused(f"method.{form}", True, 'alpha is not used in this form: set it to false, or method.name = "mpca"')
    return math.inf if method.regulariser else 1.0


def _claimed(folder: Path, tables: Mapping[str, Any]) -> IO[bytes]:
    """Make the folder, or see that it has runs of the same configuration; it is this process's until the file is closed.

    Raises:
        ConfigError: it has something else, another process has it, or it cannot be used. What is in it stays as it is.
    """
    from mpca.private import make_folder, opener

    path = folder / "tune.json"
    method = {key: value for key, value in tables["method"].items() if key != "alpha"}
    mine = json.dumps({**tables, "method": method}, sort_keys=True, default=str).encode()
    try:
        make_folder(folder)
        ours = path.is_file() and not path.is_symlink()
        if not ours and any(folder.iterdir()):
            raise _refused(
                folder, "is not empty and has no file tune.json, so it is not of mpca tune: choose a new or an empty one"
            )
        file = open(path, "r+b") if ours else open(path, "x+b", opener=opener)  # noqa: SIM115  # the caller closes it
        try:
            _hold(file, mine, folder)
        except BaseException:
            file.close()
            raise
    except OSError as error:
        raise _refused(folder, f"cannot be used: {error.strerror or error}; choose another one") from None
    return file


def _hold(file: IO[bytes], mine: bytes, folder: Path) -> None:
    """Lock the file, and see that it says what is tuned; an empty one is of a start that was cut off."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _refused(folder, "another mpca tune uses it: wait for it, or choose another one") from None
    file.seek(0)
    found = file.read()
    if found == mine:
        return
    if found:
        try:
            json.loads(found)
        except ValueError as error:
            raise _refused(folder, f"its tune.json is damaged ({error}): choose another one") from None
        raise _refused(folder, "has runs of another configuration or --time: choose another one")
    if len(list(folder.iterdir())) > 1:
        raise _refused(folder, "its tune.json is empty: choose another one")
    file.write(mine)
    file.flush()


def _refused(folder: Path, rule: str) -> ConfigError:
    return refused("--run-dir", str(folder), rule)


def _search(alphas: Sequence[float], most: float, auto: bool, run: Callable[[float | str], Tried]) -> list[Tried]:
    """Try "auto", the grid, and what lies beyond its edge, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    waiting: list[float | str] = [*([AUTO] if auto else []), *alphas]
    tried: list[Tried] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task("", total=len(waiting))
        while waiting:
            alpha = waiting.pop(0)
            shown.update(task, description=f"alpha = {alpha}")
            tried.append(run(alpha))
            shown.console.print(f"alpha = {alpha}: error {100 * tried[-1].error:.2f} %", highlight=False)
            if not waiting and (more := further(tried, len(alphas), most)) is not None:
                waiting.append(more)
            shown.update(task, completed=len(tried), total=len(tried) + len(waiting))
    return tried


def _run(conf: Path, sets: Sequence[str], alpha: float | str, folder: Path) -> Tried:
    """One run, unless an earlier start has made it. What was cut off stays, and the new attempt takes the next number."""
    name = f"alpha-{alpha}"
    attempts = _attempts(folder, name)
    path = next((one for one in attempts.values() if _summary(one) is not None), None)
    if path is None:
        path = folder / (f"{name}.{max(attempts) + 1}" if attempts else name)
        _train(conf, (*sets, f"method.alpha={alpha}"), path)
    summary = _summary(path)
    if summary is None:
        raise RunFailed(f"the run with alpha = {alpha} has failed: {_last_line(_log(path))}")
    diverged = summary.status == "failed" or summary.final_error is None
    error = 1.0 if diverged else float(summary.final_error or 0.0)
    return Tried(alpha, error, summary.seconds_to_target, _mean_tau(path), summary.samples)


def _attempts(folder: Path, name: str) -> dict[int, Path]:
    """Attempts with an alpha, `alpha-X`, `alpha-X.2`, ..., by number; a log alone counts as one too."""
    pattern = re.compile(rf"{re.escape(name)}(?:\.([1-9][0-9]*))?(?:\.log)?")
    found = (pattern.fullmatch(one.name) for one in folder.iterdir())
    numbers = sorted({int(one[1] or 1) for one in found if one is not None})
    return {number: folder / (name if number == 1 else f"{name}.{number}") for number in numbers}


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}.log")


def _summary(path: Path) -> Any:
    """Of a run that says something of its alpha; None: there is none, or it ended for another reason."""
    from mpca.records.summary import read_summary

    try:
        found = read_summary(path / "summary.json")
    except (OSError, ValueError):
        return None
    told = found.status in ("reached", "early_stopping", "max_time", "max_cycles") or (
        found.status == "failed" and _NOT_FINITE in found.reason
    )
    return found if told else None


def _train(conf: Path, sets: Sequence[str], path: Path) -> None:
    """`mpca train` in a process of its own; what it says goes beside its folder.

    Raises:
        ConfigError: it was refused.
        KeyboardInterrupt: a signal asks us to end; the run has ended.
        RunFailed: its log cannot be written.
    """
    log = _log(path)
    pairs = [word for one in sets for word in ("--set", one)]
    command = [sys.executable, "-m", "mpca.cli", "train", str(conf), *pairs, "--run-dir", str(path), "--json"]
    try:
        said = open(log, "xb")  # noqa: SIM115  # closed below
    except OSError as error:
        raise RunFailed(f"log of a run cannot be written: {log}: {error.strerror}") from None
    with said:
        code = _ended(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on; Ctrl-Z stops it alone
                preexec_fn=lambda: die_with(signal.SIGTERM),  # when this process is killed
            )
        )
    if code == ConfigError.exit_code:
        raise ConfigError(_last_line(log).removeprefix("mpca: refused: "))


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Wait for a run. A signal that asks us to end goes to the run too, which has its time to save; then it is killed.

    Raises:
        Interrupted: the first signal.
    """
    from mpca.api.signals import Interrupted

    first: Interrupted | None = None
    limit_s = None
    while True:
        try:
            code = child.wait(limit_s)
            break
        except Interrupted as error:
            first = first or error
            child.send_signal(error.signum)
            limit_s = RUN_END_S
        except subprocess.TimeoutExpired:
            child.kill()
    if first is not None:
        raise first
    return code


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _mean_tau(path: Path) -> float:
    """n, from the records of a run; 0: it has no cycles."""
    from mpca.report.load import load_run

    taus = [one["tau"] for cycle in load_run(path).cycles for one in cycle.contributors.values()]
    return fmean(taus) if taus else 0.0


def _print(tried: Sequence[Tried], found: Tried, time_s: float) -> None:
    from mpca.sim.sheet import Sheet

    rows = []
    for one in sorted(tried, key=lambda one: (isinstance(one.alpha, float), one.alpha)):
        target = "-" if one.target_s is None else format_duration(one.target_s)
        mark = " <" if one is found else ""
        error = "diverged" if one.error >= 1 else f"{100 * one.error:.2f} %"
        rows.append((f"{one.alpha}{mark}", error, target, f"{one.n:.1f}", "-" if one.samples is None else f"{one.samples:,}"))
    sheet = Sheet(
        f"alpha, by runs of {format_duration(time_s)} at most",
        ("alpha", "error", "to the target", "n", "samples"),
        tuple(rows),
        (
            "MPCA SGD, section 6.3. error: of the joint model at the end. n: updates between two exchanges of a shard; with",
            "another n another alpha is best. One run each, and runs differ by chance: nearly equal errors are equally good.",
        ),
    )
    show(sheet)
