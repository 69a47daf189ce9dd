"""The end of every run: the driver backs up, evaluates and saves the joint model, and writes the summary and the report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mpca.driver.backups import BackupWriter
from mpca.driver.evaluating import EvaluatorDied
from mpca.driver.evaluations import numbers_of
from mpca.driver.instructions import End
from mpca.driver.runner import Runner
from mpca.errors import AgentFailed, BackupError, BadRecords, ConfigError, EnvironmentRefused
from mpca.records import Summary
from mpca.storage import model_file
from mpca.timeouts import LAST_BACKUP_S, LAST_EVALUATION_S
from mpca.units import format_duration

__all__ = ["back_up_last", "evaluate_last", "exit_code", "is_final", "result_of", "summarise"]

log = logging.getLogger("mpca.run")

_EXIT_CODES = {"reached": 0, "early_stopping": 0, "max_time": 0, "max_cycles": 0, "failed": 1}
_SIGNALLED = 128
#: Errors in the user's configuration, code, data or backup: every attempt meets them. Another attempt may avoid all others.
_FINAL = (AgentFailed, BackupError, BadRecords, ConfigError, EnvironmentRefused)


def is_final(error: BaseException) -> bool:
    """Whether another attempt of the same run would end by this error too."""
    return isinstance(error, _FINAL)


def exit_code(end: End, signal_number: int | None) -> int:
    """The exit code of a run that ended, as README lists them."""
    if end.status == "interrupted":
        return _SIGNALLED + (signal_number or 2)
    if f"{BadRecords.__module__}.{BadRecords.__name__}:" in end.reason.partition("\n")[0]:  # as an agent's last word says it
        return BadRecords.exit_code
    return _EXIT_CODES[end.status] or int(any(one.work_lost for one in end.cut_off))


class _Wait:
    """How long the end of a run waits: `patience_s`, or `short_s` if that is longer, and `short_s` from when it is hurried."""

    def __init__(self, patience_s: float, short_s: float, hurried: Callable[[], bool]) -> None:
        self._short_s, self._hurried, self._in_a_hurry = short_s, hurried, False
        self._began = self._now = time.monotonic()
        self._until = self._began + max(patience_s, short_s)

    def goes_on(self) -> bool:
        """Asked again and again."""
        self._now = time.monotonic()
        if not self._in_a_hurry and self._hurried():
            self._until, self._in_a_hurry = min(self._until, self._now + self._short_s), True
        return self._now < self._until

    @property
    def took_s(self) -> float:
        """When it was last asked."""
        return self._now - self._began

    @property
    def left_s(self) -> float:
        """The same."""
        return self._until - self._now


def evaluate_last(runner: Runner, patience_s: float, hurried: Callable[[], bool]) -> Mapping[str, float] | None:
    """What the evaluation of the last joint model returns; None when there is no such model, or no answer in time.

    Args:
        runner: of a run that has ended.
        patience_s: the answer may take so long, or `LAST_EVALUATION_S` if that is longer. That includes the start of the
            evaluator's process, and an evaluation that goes on already.
        hurried: whether the run was interrupted or has failed, or cannot wait; asked again and again. From then on:
            `LAST_EVALUATION_S`.

    Raises:
        AgentFailed: the user's evaluation raised.
        ConfigError: it does not return a number that a goal looks at.
    """
    joint, evaluator = runner.joint, runner.evaluations.evaluator
    if evaluator is None or joint is None or not joint.complete or not any(joint.versions()):
        return None
    wait, asked = _Wait(patience_s, LAST_EVALUATION_S, hurried), False
    while wait.goes_on():
        for done in evaluator.poll():
            if isinstance(done, EvaluatorDied):
                if not asked:
                    continue  # with an older model; to ask for this one starts it again
                log.warning("the last joint model was not evaluated: %s", done.reason)
                return None
            runner.evaluations.take(done)
            if asked:
                return done.values
        if not evaluator.busy and not asked:
            runner.evaluations.submit(runner.machine.cycle, joint)
            asked = True
        time.sleep(0.005)
    log.warning("the last joint model was not evaluated: no answer within %s", format_duration(round(wait.took_s, 1)))
    return None


def back_up_last(
    runner: Runner, backups: BackupWriter | None, patience_s: float, hurried: Callable[[], bool], tell: Callable[[str], None]
) -> None:
    """Write a last backup, of the joint model as it is: what it says of cycles, time and data is true of no other.

    It comes before the last evaluation, which may take minutes: a driver that is killed meanwhile goes on from here. x_0 is
    backed up too, so that a later attempt has the same x_0.

    Args:
        runner: of a run that has ended.
        backups: the writer; None: the run has none.
        patience_s: it may take so long, or `LAST_BACKUP_S` if that is longer.
        hurried: whether the run was interrupted; asked again and again. From then on: `LAST_BACKUP_S`.
        tell: told once if it takes longer than that.
    """
    if backups is None or runner.joint is None or not runner.joint.complete:
        return
    runner.back_up_saved()
    wait, told = _Wait(patience_s, LAST_BACKUP_S, hurried), False

    def until_written() -> bool:
        nonlocal told
        while backups.busy and wait.goes_on():
            if not told and wait.took_s > LAST_BACKUP_S:
                told = True
                tell(f"the last backup is being written, for at most {format_duration(round(wait.left_s))} more")
            time.sleep(0.005)
        return not backups.busy

    if until_written():  # not beside it: two copies of joint state and trajectory are four models
        runner.back_up_last()
        until_written()
    backups.close(0.0)
    runner.take_backups()


def result_of(runner: Runner) -> tuple[bytes | None, dict[str, Any], Mapping[str, float] | None]:
    """The result of the run: the best model by `KeepBest`, or else the one that reached a target, or else the last one.

    Returns:
        ``model.safetensors``, and the model as arrays by its own names; None and nothing when there is no model, since x_0 is
        no run's result. Then what the evaluation of the best model, or of the one that reached a target, returned; None: the
        result is neither.
    """
    joint, kept = runner.joint, runner.evaluations.best_model or runner.reached
    if joint is None or not joint.complete or not any(joint.versions()):
        return None, {}, None
    if kept is None:
        vector, layout, values = joint.vector(), joint.layout, None
    else:
        vector, layout, values = np.concatenate(kept.x), kept.layout, kept.values
    return model_file(layout, vector), layout.state_dict(vector), values


def summarise(
    runner: Runner,
    end: End,
    seed: int,
    final: Mapping[str, float] | None,
    submit_seconds: dict[str, float],
    resumed_from: str | None,
    versions: dict[str, str],
) -> Summary:
    tally, goals, history = runner.tally, runner.goals, runner.evaluations.history
    errors = [one["error"] for one in history if one["error"] is not None]
    judged = (one for one in history if one["cycle"])  # x_0 reaches no target
    hit = next((one for one in judged if any(target.met(numbers_of(one)) for target in goals.targets)), None)
    began = runner.machine.began
    # the first evaluation of a run that goes on from a backup may come before training began
    trained_at_hit = None if hit is None or began is None else max(0.0, hit["t"] - runner.t_of(began)) + runner.earlier_s
    joint = runner.joint
    return Summary(
        status=end.status,
        reason=end.reason,
        method=runner.method.name,
        num_agents=tally.agents,
        seed=seed,
        seconds=runner.trained_s or 0.0,
        seconds_to_first_step=submit_seconds.get("first_step"),
        submit_seconds=submit_seconds,
        cycles=runner.machine.shape.first_cycle + tally.cycles,
        counts=runner.machine.counts,
        steps=tally.steps,
        samples=tally.samples,
        final_error=(final or {}).get("error"),
        best_error=min(errors, default=None),
        final_metrics=dict(final or {}),
        target_error=goals.target_error,
        seconds_to_target=trained_at_hit,
        evaluations=len(history),
        pause_share=tally.pause_share or 0.0,
        model_bytes=4 * joint.bounds[-1] if joint is not None else 0,
        bytes_in_driver=tally.bytes_in_driver,
        bytes_out_driver=tally.bytes_out_driver,
        bytes_data_remote=tally.data_remote,
        bad_records=runner.bad.count if runner.bad is not None else 0,
        agents_lost=runner.machine.agents_lost,
        agents_replaced=runner.machine.agents_replaced,
        cut_off={str(one.agent): one.reason for one in end.cut_off},
        backups=tally.backups,
        attempts=runner.machine.shape.term,
        resumed_from=resumed_from,
        final=end.final,
        versions=versions,
    )
