"""Images that a device decodes: the same patches as processes cut, in the same order, and what becomes of bad ones.

The device's library is simplejpeg here, with images at their full size; nvJPEG is in tests/gpu.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch
from PIL import Image
from torch import Tensor

from mpca.data import check_decoder
from mpca.data.decode import _upright, decode
from mpca.data.device_decode import DeviceDecoder, upright
from mpca.data.index import Entry
from mpca.data.plan import Unit
from mpca.data.stream import Streamed
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import Record, SplitData
from mpca.data.workers import RecordQueue, Result
from mpca.data.workers_main import Job, view_of
from mpca.errors import ConfigError
from mpca.storage import LocalStore
from tests.data.pictures import ingested, jpeg


class OnDevice:
    """Decodes with `simplejpeg`, at full size; refuses what it is told to, as a library without partial results."""

    def __init__(self, refuses: bytes = b"none") -> None:
        self.calls: list[int] = []
        self._refuses = refuses

    def __call__(self, jpegs: Sequence[bytes], cut: Callable[[int, Tensor], Tensor]) -> Tensor:
        self.calls.append(len(jpegs))
        if any(self._refuses in one for one in jpegs):
            raise RuntimeError("nvjpegDecodeBatched failed")
        images = [torch.from_numpy(simplejpeg.decode_jpeg(one, "RGB")).permute(2, 0, 1) for one in jpegs]
        return torch.stack([cut(number, image) for number, image in enumerate(images)])


JOB = Job(seed=1, shorter_edge=256, crop=224, centre=False, slots=1, input_bytes=0)


def record(number: int, data: bytes | None, epoch: int = 0) -> Record:
    entry = Entry(0, len(data or b""), zlib.crc32(data or b""), 0, str(number))
    return Record(number, epoch, Unit(0, number, 1), number, entry, data, str(number), "" if data is not None else "not read")


def decoded(records: Sequence[Record], jpegs: OnDevice, job: Job = JOB) -> list[Result]:
    feed = RecordQueue(1 << 24)
    for one in records:
        feed.put(one)
    feed.end()
    return list(DeviceDecoder(feed, job, jpegs).results())


def by_processes(one: Record, job: Job = JOB) -> np.ndarray:
    out = np.empty((3, job.crop, job.crop), np.uint8)
    assert one.jpeg is not None
    view_of(job, one.jpeg, one.entry.crc, one.epoch, one.number, out)
    return out


def png(edge: int = 256) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((edge, edge, 3), 7, np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("centre", [False, True])
def test_the_views_are_those_of_the_processes(centre: bool) -> None:
    job = Job(seed=1, shorter_edge=256, crop=224, centre=centre, slots=1, input_bytes=0)
    records = [record(number % 20, jpeg(number % 20), epoch=number // 20) for number in range(50)]
    jpegs = OnDevice()
    results = decoded(records, jpegs, job)
    assert [result.record for result in results] == records
    for result in results:
        assert result.view is not None
        np.testing.assert_array_equal(result.view, by_processes(result.record, job))
    assert jpegs.calls == [32, 18], "many in one call"


def test_what_is_to_be_scaled_is_scaled_on_the_device_to_nearly_the_same_pixels() -> None:
    (result,) = decoded([record(3, jpeg(3, edge=400))], OnDevice())
    assert result.view is not None
    far = np.abs(result.view.astype(int) - by_processes(result.record).astype(int))
    assert far.mean() < 1
    assert far.max() <= 8, "the processes' library scales while it decodes"


def test_a_bad_record_costs_itself_alone_and_says_why() -> None:
    damaged = record(4, jpeg(4))
    records = [
        record(0, None),
        record(1, jpeg(1)),
        record(2, b"text"),
        record(3, png()),
        Record(4, 0, damaged.unit, 4, damaged.entry, jpeg(5), "4"),
        record(6, jpeg(6)[:200]),
    ]
    results = decoded(records, OnDevice())
    assert [result.view is None for result in results] == [True, False, True, False, True, True]
    reasons = [result.reason for result in results]
    assert reasons[0] == "not read"
    assert reasons[2].startswith("neither JPEG nor PNG")
    assert reasons[4].startswith("wrong checksum")
    assert reasons[5].startswith("truncated")
    np.testing.assert_array_equal(results[3].view, np.full((3, 224, 224), 7))


def test_what_the_device_refuses_is_decoded_as_the_processes_do_and_nothing_else_is() -> None:
    records = [record(number, jpeg(number)) for number in range(4)]
    jpegs = OnDevice(refuses=jpeg(2))
    results = decoded(records, jpegs)
    for result in results:
        assert result.view is not None
        np.testing.assert_array_equal(result.view, by_processes(result.record))
    assert jpegs.calls == [4, 1, 1, 1, 1]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_upright_as_arrays_are(orientation: int) -> None:
    pixels = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(4, 5, 3)
    turned = upright(torch.from_numpy(pixels).permute(2, 0, 1), orientation)
    np.testing.assert_array_equal(turned.permute(1, 2, 0).numpy(), _upright(pixels, orientation))


def test_exif_is_followed_on_the_device() -> None:
    image, out = Image.fromarray(decode(jpeg(1), 256)), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(out, "JPEG", exif=exif, quality=95)
    (result,) = decoded([record(1, out.getvalue())], OnDevice())
    assert result.view is not None
    np.testing.assert_array_equal(result.view, by_processes(result.record))


def test_a_stream_gives_the_same_batches_without_processes(tmp_path: Path) -> None:
    data = SplitData.open(LocalStore(ingested(tmp_path)), "train")
    streamed = Streamed(data, StreamOptions(read_ahead=1 << 20, decoder="cuda"), seed=3)
    by_device = streamed.stream(7, epochs=2, jpegs=OnDevice())
    batches = []
    for batch in by_device:
        batches.append(batch)
        assert by_device.worker_pids() == []
    for one, other in zip(batches, streamed.stream(7, epochs=2), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_gpu_that_is_to_decode_and_is_not_there_is_refused() -> None:
    assert not check_decoder({"name": "imagenet"}, "cpu")
    assert not check_decoder({"decoder": "cpu"}, "cuda")
    assert check_decoder({"decoder": "cuda"}, "cuda:0")
    with pytest.raises(
        ConfigError, match=r"data\.decoder = 'cuda': agents have no GPU: cluster\.device = 'cpu'; train on one by"
    ):
        check_decoder({"decoder": "cuda"}, "cpu")
    with pytest.raises(ConfigError, match=r"data\.decoder = 'gpu': must be cpu or cuda"):
        StreamOptions(decoder="gpu")
