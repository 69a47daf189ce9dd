"""The end of a run, whichever it is: the joint model is evaluated and saved, the summary and the report are written."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import Any

from mpca.api.evaluation import JointEvaluator
from mpca.driver.backups import BackupWriter
from mpca.driver.instructions import End
from mpca.driver.runner import Runner
from mpca.errors import AgentFailed, BackupError, BadRecords, ConfigError, EnvironmentRefused
from mpca.records import EndRecord, RunFolder, Sink, Summary, write_summary
from mpca.storage import model_file

__all__ = ["close_folder", "evaluate_last", "exit_code", "is_final", "save_model", "summarise", "take_reached"]

log = logging.getLogger("mpca.run")

# A stopped run has ten seconds in all (issue: Ctrl-C): the agents take up to four of them.
EVALUATE_S = 3.0
BACKUP_S = 5.0
_EXIT_CODES = {"reached": 0, "max_time": 0, "max_cycles": 0, "failed": 1}
_SIGNALLED = 128
#: The user's own: the configuration, the code, the data, the backup that was named. All else may go better another time.
_FINAL = (AgentFailed, BackupError, BadRecords, ConfigError, EnvironmentRefused)


def is_final(error: BaseException) -> bool:
    """Whether another attempt of the same run would end by this error too."""
    return isinstance(error, _FINAL)


def exit_code(end: End, signal_number: int | None) -> int:
    """Exit codes of design 6.1."""
    if end.status == "interrupted":
        return _SIGNALLED + (signal_number or 2)
    if f"{BadRecords.__module__}.{BadRecords.__name__}:" in end.reason.partition("\n")[0]:  # as an agent's last word says it
        return BadRecords.exit_code
    return _EXIT_CODES[end.status]


def take_reached(runner: Runner) -> float | None:
    """The result of a run that reached its target is the model that did, not what a few cycles more made of it."""
    assert runner.joint is not None
    assert runner.reached is not None
    runner.joint.states = runner.reached
    return runner.error


def evaluate_last(runner: Runner, evaluator: JointEvaluator | None) -> float | None:
    """Error of the joint model that is saved; None when it cannot be had in time."""
    joint = runner.joint
    if evaluator is None or joint is None or not joint.complete:
        return None
    deadline = time.monotonic() + EVALUATE_S
    asked = False
    while time.monotonic() < deadline:
        for done in evaluator.poll():
            runner.take_evaluation(done)
            if asked:
                return done.error
        if not evaluator.busy and not asked:
            evaluator.submit(runner.machine.cycle, joint)
            asked = True
        time.sleep(0.005)
    log.warning("the last joint model was not evaluated: no answer within %.0f s", EVALUATE_S)
    return None


def save_model(runner: Runner, folder: RunFolder, backups: BackupWriter | None) -> dict[str, Any]:
    """Write ``model.safetensors`` and a last backup; returns the model by its own names."""
    joint = runner.joint
    if joint is None or not joint.complete:
        return {}
    temporary = folder.model.with_name(".model.safetensors.tmp")
    temporary.write_bytes(model_file(joint.layout, joint.vector()))
    temporary.replace(folder.model)
    if backups is not None:
        backups.submit(joint, runner.machine.cycle, runner.progress(), runner.machine.readers.position())
        backups.close(BACKUP_S)
        runner.take_backups()
    return joint.layout.state_dict(joint.vector())


def summarise(
    runner: Runner,
    end: End,
    seed: int,
    final_error: float | None,
    submit_seconds: dict[str, float],
    resumed_from: str | None,
    versions: dict[str, str],
) -> Summary:
    tally, goals = runner.tally, runner.goals
    errors = [one["error"] for one in tally.history if one["error"] is not None]
    hit = next((one for one in tally.history if one["error"] is not None and one["error"] <= goals.target_error), None)
    first_t = None if tally.first_step is None else runner.t_of(tally.first_step)
    trained_at_hit = None if hit is None or first_t is None else hit["t"] - first_t + runner.earlier_s
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
        steps=tally.steps,
        samples=tally.samples,
        final_error=final_error,
        best_error=min(errors, default=None),
        target_error=goals.target_error,
        seconds_to_target=trained_at_hit if goals.target_error else None,
        evaluations=len(tally.history),
        pause_share=tally.pause_share or 0.0,
        model_bytes=4 * joint.bounds[-1] if joint is not None else 0,
        bytes_in_driver=tally.bytes_in_driver,
        bytes_out_driver=tally.bytes_out_driver,
        bytes_data_remote=tally.data_remote,
        agents_lost=runner.machine.roster.lost,
        agents_replaced=runner.machine.roster.replaced,
        backups=tally.backups,
        attempts=runner.machine.shape.epoch,
        resumed_from=resumed_from,
        final=end.final,
        versions=versions,
    )


def close_folder(records: Sink, folder: RunFolder, t: float, summary: Summary) -> dict[str, Any]:
    """The last record, ``summary.json`` and ``report.html``; returns the summary as a map."""
    from mpca.report import write_report

    records.write(EndRecord(t=t, status=summary.status, reason=summary.reason))
    write_summary(folder.summary, summary)
    try:
        write_report(folder.path)
    except Exception:  # a run that trained for weeks does not fail for its drawing
        log.exception("report not written: path=%s", folder.report)
    return asdict(summary)
