"""TensorBoard's event files, in ``tensorboard/`` of the run's folder.

`tensorboard.summary.Writer` is not used: it writes in a thread of its own, which ends at the first full disk, and its files
cannot be cut at an event. `torch.utils.tensorboard` is that writer too, and imports torch. What both write with is used: the
package's events and its `RecordWriter`.

A file that grows cannot be copied to HDFS. So there a file ends and the next one begins, at first every three seconds, later
each time that the run is a fiftieth older: a run of a week has some 500 files. TensorBoard reads the files of a folder one
after the other.
"""

from __future__ import annotations

import io
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mpca.extras import extras
from mpca.private import make_folder
from mpca.records import LineWriter, RunFolder
from mpca.track.port import Begin
from mpca.track.scalars import Scalar

__all__ = ["TensorBoard"]

_PART_EVERY_S = 3.0
_PART_SHARE = 0.02  # of the seconds so far
_DT_STRING = 7


class TensorBoard:
    """Files of events. A disk that is full loses nothing: the same events are written again."""

    def __init__(self) -> None:
        with extras():
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        self._events, self._summaries, self._writer = event_pb2, summary_pb2, RecordWriter
        self._tensors, self._shapes = tensor_pb2, tensor_shape_pb2
        self._file: LineWriter | None = None  # its appending is right for any bytes
        self._opened, self._number = 0.0, 0
        self._head = b""  # of the file, until it is there

    def begin(self, run: Begin) -> tuple[str, str]:
        self._run = run
        self._made = time.time()
        self._folder = RunFolder(Path(run.folder)).tensorboard
        make_folder(self._folder)
        rows = "\n".join(f"    {name} = {value}" for name, value in run.parameters.items())
        self._write([self._text("config", rows)])
        return run.name, ""

    def log(self, scalars: Sequence[Scalar]) -> None:
        self._write(
            self._event(one.t, one.step, self._summaries.Summary.Value(tag=one.name, simple_value=one.value)) for one in scalars
        )

    def end(self, status: str, reason: str, files: Sequence[str]) -> None:
        self._write([self._text("end", f"{status}: {reason}")])
        assert self._file is not None
        self._file.close()

    def _write(self, events: Iterable[Any]) -> None:
        now = time.time()
        if self._file is not None and self._run.in_parts and now - self._opened > self._part_s(now):
            self._file.close()
            self._file = None
        if self._file is None:
            name = f"events.out.tfevents.{self._made:.0f}.{platform.node()}.{self._run.attempt}.{self._number:06d}"
            self._file, self._opened, self._number = LineWriter(self._folder / name), now, self._number + 1
            self._head = self._bytes([self._events.Event(wall_time=now, file_version="brain.Event:2")])
        self._file.append(self._head + self._bytes(events))
        self._head = b""

    def _part_s(self, now: float) -> float:
        return max(_PART_EVERY_S, _PART_SHARE * (now - self._run.wall))

    def _bytes(self, events: Iterable[Any]) -> bytes:
        held = io.BytesIO()
        writer = self._writer(held)
        for one in events:
            writer.write(one.SerializeToString())
        return held.getvalue()

    def _event(self, t: float, step: int, value: Any) -> Any:
        return self._events.Event(wall_time=self._run.wall + t, step=step, summary=self._summaries.Summary(value=[value]))

    def _text(self, name: str, text: str) -> Any:
        """As `tensorboard.plugins.text` makes it, whose import takes twenty times as long as all others here."""
        metadata = self._summaries.SummaryMetadata(plugin_data=self._summaries.SummaryMetadata.PluginData(plugin_name="text"))
        shape = self._shapes.TensorShapeProto(dim=[self._shapes.TensorShapeProto.Dim(size=1)])
        tensor = self._tensors.TensorProto(dtype=_DT_STRING, string_val=[text.encode()], tensor_shape=shape)
        return self._event(
            time.time() - self._run.wall, 0, self._summaries.Summary.Value(tag=name, metadata=metadata, tensor=tensor)
        )
