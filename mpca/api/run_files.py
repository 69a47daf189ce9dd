"""The files of a run that has begun, however it ends, and where they go when its folder cannot be written."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mpca.api.finish import is_final
from mpca.api.signals import Interrupted
from mpca.driver.callbacks import Callback, Callbacks
from mpca.errors import ConfigError, MpcaError
from mpca.private import opener, replace_file
from mpca.records import Backlog, BadFile, EndRecord, RunFolder, RunRecord, Summary, write_summary
from mpca.timeouts import TRACKERS_END_S
from mpca.track.port import Begin
from mpca.track.trackers import Trackers

if TYPE_CHECKING:
    from mpca.api.location import RunLocation
    from mpca.config.resolved import Resolved

__all__ = ["RunFiles", "close_folder", "keep"]

log = logging.getLogger("mpca.run")


class RunFiles:
    """The records of an attempt, the bad records of its data, and its end, which is written once; trackers and callbacks hear
    of them.

    This is made when the run begins: a run that was refused before has left its folder as it was.

    Args:
        location: of the folder, which this driver owns.
        term: of this attempt.
        config: of the run.
        record: the first one of this attempt.
        callbacks: who hears of the records.
        hurried: whether a signal has asked for the end; then the wait for trackers is short.

    Raises:
        ConfigError, OSError: as `begin` of the location.
    """

    def __init__(
        self,
        location: RunLocation,
        term: int,
        config: Resolved,
        record: RunRecord,
        callbacks: Iterable[Callback] = (),
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        self._location, self._record, self._config, self._hurried = location, record, config.track, hurried
        self.records: Backlog = location.begin(term, config, record)
        self.trackers = Trackers(self.records, _begins(location, config, record), location.folder.records)
        #: Takes the records of the run, for the file, for trackers and for callbacks.
        self.sink = Callbacks(self.trackers, callbacks)
        self.bad = BadFile(location.folder.bad)
        self._ended = False

    @property
    def bad_shown(self) -> str:
        """Where a person finds the bad records of the data."""
        return f"{self._location.shown}/{self._location.folder.bad.name}"

    def save(self, t: float, summary: Summary, model: bytes | None) -> str:
        """Write the end.

        Args:
            t: seconds of the run, for its last record.
            model: `model.safetensors`, if there is a model.

        Returns:
            What went wrong, and where everything lies instead; empty: nothing went wrong.
        """
        self._ended = True
        trouble = self._save(t, summary, model)
        self.sink.end(summary)
        return trouble

    def _save(self, t: float, summary: Summary, model: bytes | None) -> str:
        location, folder, faults = self._location, self._location.folder, []
        if location.root.is_local and location.lost is not None:
            faults.append(str(location.lost))  # another driver owns the folder now
        else:
            faults += close_folder(self.records, self.bad, folder, t, summary, model)
        try:
            if location.lost is None:
                files = [folder.report, folder.summary, folder.config, *([folder.model] if self._config.model else [])]
                patience_s = TRACKERS_END_S if summary.status == "interrupted" else self._config.finish_timeout
                self.trackers.end(summary.status, summary.reason, files, patience_s, self._hurried)
        finally:  # a signal may end that wait
            try:
                location.publish(self.records.waiting)
            except OSError as error:
                faults.append(str(error))
        if not faults:
            return ""
        text = f"the end is not saved in {location.shown}: {'; '.join(faults)}"
        text += f"; {keep(folder, self.records, self.bad, summary, model)}"
        log.error("%s", text)
        return text

    def broken_off(self, error: BaseException, seconds: float, submit_seconds: dict[str, float]) -> None:
        """The run ended before its loop did: say so in its folder, unless the end is written already.

        Args:
            error: what ended it.
            seconds: since the run was asked for.
            submit_seconds: by stage of the start, as in the summary.
        """
        if self._ended:
            return
        record = self._record
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = str(error) if isinstance(error, (MpcaError, Interrupted)) else f"{type(error).__name__}: {error}"
        summary = Summary(
            status=status,
            reason=reason,
            method=record.method,
            num_agents=record.num_agents,
            seed=record.seed,
            seconds=0.0,
            seconds_to_first_step=None,
            submit_seconds=submit_seconds,
            target_error=record.target_error,
            attempts=record.attempt,
            resumed_from=record.resumed_from,
            final=is_final(error),
            versions=record.versions,
        )
        self.save(record.t + seconds, summary, None)


def _begins(location: RunLocation, config: Resolved, record: RunRecord) -> dict[str, Begin]:
    """How the run begins at each tracker."""
    parameters = {
        key if section == "spark" else f"{section}.{key}": str(value)
        for section, table in config.to_dict().items()
        for key, value in table.items()
    }
    begin = Begin(
        name=location.root.name,
        project=config.track.project or config.run.name,
        folder=str(location.folder.path.absolute()),
        where=location.root.text,
        parameters=parameters | {f"versions.{name}": version for name, version in record.versions.items()},
        wall=time.time() - record.t,
        attempt=record.attempt,
        uri=config.track.mlflow_uri,
        in_parts=location.shown != location.folder.path,
    )
    return dict.fromkeys(config.track.names, begin)


def close_folder(
    records: Backlog, bad: BadFile, folder: RunFolder, t: float, summary: Summary, model: bytes | None
) -> list[str]:
    """Write the model, the last records, ``summary.json`` and ``report.html``.

    Returns:
        A line for each file that cannot be written: its name, and why.
    """
    from mpca.report import write_report

    faults = []
    try:
        if model is not None:
            replace_file(folder.model, model)
    except OSError as error:
        faults.append(f"{folder.model.name}: {error.strerror}")
    records.write(EndRecord(t=t, status=summary.status, reason=summary.reason))
    if not records.flush():
        assert records.error is not None
        faults.append(f"{folder.records.name}: {records.error.strerror}")
    if not bad.flush(at_once=True):
        assert bad.error is not None
        faults.append(f"{folder.bad.name}: {bad.error.strerror}")
    try:
        write_summary(folder.summary, summary)
    except OSError as error:
        faults.append(f"{folder.summary.name}: {error.strerror}")
    try:
        write_report(folder.path)
    except (OSError, ConfigError) as error:  # `mpca report` can draw it later from the other files
        log.warning("report not written: path=%s: %s", folder.report, error)
    except Exception:  # a run that trained for weeks must not fail for its report
        log.exception("report not written: path=%s", folder.report)
    return faults


def keep(folder: RunFolder, records: Backlog, bad: BadFile, summary: Summary, model: bytes | None) -> str:
    """Save in a temporary folder what the run folder did not take, and the files that can still be read from it.

    Returns:
        Where it lies, or why it could not be kept.
    """
    try:
        kept = RunFolder(Path(tempfile.mkdtemp(prefix="mpca-kept-")))
        for path in (folder.config, folder.records):
            with suppress(OSError):
                replace_file(kept.path / path.name, path.read_bytes())
        with open(kept.records, "ab", opener=opener) as file:
            file.write(records.waiting)
        if bad.count:
            replace_file(kept.bad, bad.text())
        if model is not None:
            replace_file(kept.model, model)
        write_summary(kept.summary, summary)
    except OSError as error:
        return f"nor in a temporary folder: {error}"
    return f"what there is of it lies in {kept.path}"
