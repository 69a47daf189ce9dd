"""The progress of a run: one live line on a terminal; in a log a plain line per evaluation, or every ten seconds without any.

Agents' output passes through here too (`[agent 3] text`), since the live line must make way for it. For the driver's thread
only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mpca.driver.objectives import Target
from mpca.driver.status import RunStatus
from mpca.units import format_duration

__all__ = ["ProgressLine", "status_line"]

_REFRESHES_PER_S = 4
_LINE_EVERY_S = 10.0


def status_line(status: RunStatus) -> str:
    """Cycle or exchange, error, the first metric that agents logged, images/s, tau since the last refresh, agents alive of
    wanted, time to the objective.

    The rate of the optimisers' updates is there where samples are not counted (the user's own loader), and until an evaluation
    says how far the run is.

    Example:
        >>> status_line(RunStatus(seconds=12.0, cycle=41, error=0.081, agents_alive=3, agents_wanted=4))
        'cycle 41 | error 8.10 % | 3/4 agents | 12s'
    """
    parts = [f"{status.counts} {status.cycle}"]
    if status.state != "training":
        parts.insert(0, status.state + (f" ({status.reason})" if status.reason else ""))
    if status.error is not None:
        goal = f" (target {100 * status.target_error:g} %)" if status.target_error else ""
        parts.append(f"error {100 * status.error:.2f} %{goal}")
    for name, value in status.evaluated:
        goals = [one.removeprefix(name) for one in status.targets if Target.parse(one).metric == name]
        parts.append(f"{name} {value:.4g}" + (f" (target{goals[0]})" if goals else ""))
    if status.logged is not None:
        name, value = status.logged
        whose = "agents' " if name in ("error", *dict(status.evaluated)) else ""
        parts.append(f"{whose}{name} {value:.4g}")
    if status.images_per_s is not None:
        parts.append(f"{status.images_per_s:,.0f} images/s")
    if status.updates_per_s is not None and (status.images_per_s is None or not status.evaluations):
        digits = 0 if status.updates_per_s >= 10 else 2
        parts.append(f"{status.updates_per_s:,.{digits}f} updates/s")
    if status.tau is not None:
        parts.append(f"tau {status.tau:.0f}")
    parts.append(f"{status.agents_alive}/{status.agents_wanted} agents")
    parts.append(format_duration(status.seconds))
    if status.seconds_left is not None:
        parts[-1] += f", at most {format_duration(max(status.seconds_left, 0.0))} left"
    return " | ".join(parts)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error again; rich would end the process."""
        raise  # rich calls this while it handles the error


class ProgressLine:
    """Shows `RunStatus` on a stream. A context manager, so that the terminal is always restored.

    Text is lost when the stream can no longer be written, such as that of a closed notebook.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._console = _Console(file=stream, highlight=False, markup=False, soft_wrap=True)
        self._live: Live | None = None
        self._evaluations = 0
        self._shown = ("", "")
        self._at = 0.0  # seconds of the run: when a log got its newest line

    def __enter__(self) -> ProgressLine:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=_REFRESHES_PER_S, transient=True)
            with self._unless_gone():
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with self._unless_gone():
                self._live.stop()
            self._live = None

    def update(self, status: RunStatus) -> None:
        """Show the newest status.

        A log gets a line for each evaluation, and for each change of state or of its reason; and every ten seconds while it
        trains without an evaluation.
        """
        line = status_line(status)
        if self._live is not None:
            with self._unless_gone():
                self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))
            return
        shown = (status.state, status.reason)
        silent = status.state == "training" and not status.evaluations and status.seconds - self._at >= _LINE_EVERY_S
        if status.evaluations != self._evaluations or shown != self._shown or silent:
            self.say(line)
            self._at = status.seconds
        self._evaluations, self._shown = status.evaluations, shown

    def say(self, text: str) -> None:
        """Print a line that stays above the live line."""
        with self._unless_gone():
            self._console.print(Text(text))

    def output(self, agent: int, line: str) -> None:
        """Print a line of an agent's output."""
        self.say(f"[agent {agent}] {line}")

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # ValueError: the stream was closed, or its encoding lacks a character
            self._console.quiet = True
