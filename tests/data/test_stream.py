"""What an agent reads: in which order, each record once, with which bad ones left out, in how much memory."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from mpca.data.cache import RecordCache
from mpca.data.decode import decode
from mpca.data.evaluation_loader import EvaluationLoader
from mpca.data.plan import Readers
from mpca.data.stream import Stream, Streamed
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_position import StreamPosition
from mpca.data.stream_reader import ShareReader, SplitData
from mpca.errors import BadRecords, ConfigError
from mpca.storage import LocalStore
from tests.data.pictures import ingested, jpeg
from tests.gpu.standin import StandIn
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.long

CLASSES, EACH = 2, 24


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("pictures"), CLASSES, EACH + 2, withheld=2)


def copied(source: Path) -> MemoryStore:
    """The same data set in memory, where a test may damage it."""
    store = MemoryStore()
    for path in source.iterdir():
        store.write(path.name, path.read_bytes())
    return store


def reader(data: SplitData, agent: int = 0, agents: int = 1, **changes) -> ShareReader:
    settings = {"seed": 3, "incarnation": 0, "window_bytes": 1 << 20, "cache": RecordCache(0), "epochs": 1, **changes}
    return ShareReader(data, agent=agent, agents=agents, **settings)


def keys(one: ShareReader) -> list[str]:
    return [record.entry.key for record in one.records()]


def streamed(store, split: str = "train", seed: int = 3, **options) -> Streamed:
    return Streamed(SplitData.open(store, split), StreamOptions(**{"read_ahead": 1 << 20, **options}), seed)


@pytest.fixture
def stream(pictures: Path) -> Callable[..., Stream]:
    return lambda **more: streamed(LocalStore(pictures)).stream(5, **{"epochs": 1, **more})


# ---- the order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [1, 2, 5])
def test_agents_together_read_every_record_of_an_epoch_once(pictures: Path, agents: int) -> None:
    data = SplitData.open(LocalStore(pictures), "train")
    found = itertools.chain(*(keys(reader(data, agent, agents, epochs=2)) for agent in range(agents)))
    assert Counter(found) == Counter({data.index.entry(number).key: 2 for number in range(CLASSES * EACH)})


def test_the_order_is_a_function_of_its_seeds(pictures: Path) -> None:
    data = SplitData.open(LocalStore(pictures), "train")
    first = keys(reader(data, 0, 2, epochs=2))
    assert keys(reader(data, 0, 2, epochs=2)) == first
    half = len(first) // 2
    assert first[:half] != first[half:]
    assert keys(reader(data, 0, 2, epochs=2, seed=4)) != first
    again = keys(reader(data, 0, 2, epochs=2, incarnation=1))
    assert again != first
    assert Counter(again) == Counter(first), "a replacement reads the same share in another order"


@pytest.mark.parametrize("window_bytes", [1, 40_000])
def test_what_a_lost_agent_had_not_finished_is_read_by_the_living(pictures: Path, window_bytes: int) -> None:
    data = SplitData.open(LocalStore(pictures), "train")
    readers = [reader(data, agent, 3, window_bytes=window_bytes) for agent in range(3)]
    streams = [one.records() for one in readers]
    handed, seen = StreamPosition(), Counter()
    for agent in (0, 1, 2):
        for _ in range(7):
            record = next(streams[agent])
            seen[record.number] += 1
            if agent == 1:
                handed.add(record)
    epoch, done = handed.position
    assert epoch == 0
    for one in (readers[0], readers[2]):
        one.readers = one.readers.lose(1, epoch, done)
    seen.update(record.number for agent in (0, 2) for record in streams[agent])
    assert set(seen) == set(range(CLASSES * EACH)), "nothing is left out"
    each = CLASSES * EACH // 24  # records of a unit
    assert sum(seen.values()) - len(seen) == 7 - done * each, "what is read twice is of units that were not finished"


def test_a_stream_says_how_far_its_caller_has_come(pictures: Path) -> None:
    one = streamed(LocalStore(pictures)).stream(6, epochs=2, agents=2)
    seen = [one.position for _ in one]
    assert seen[0] == (0, 0), "the first batch is in hand, and not done with"
    assert seen == sorted(seen)
    assert {epoch for epoch, _ in seen} == {0, 1}
    assert one.position[0] == one.ahead == 1


def test_a_replacement_begins_where_it_is_told_to_and_one_that_is_given_up_waits(pictures: Path) -> None:
    data = SplitData.open(LocalStore(pictures), "train")
    late = Readers.of(2).lose(1, 0, 3).join(1, 2)
    epochs = [record.epoch for record in reader(data, 1, 2, epochs=3, readers=late).records()]
    assert set(epochs) == {2}
    from_the_start = [record.epoch for record in reader(data, 1, 2, epochs=3).records()]
    assert len(epochs) == from_the_start.count(2)

    given_up = reader(data, 1, 2, epochs=3, readers=Readers.of(2).lose(1, 0, 3))
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        given_up.readers = late

    given_up._wait = wait
    assert {record.epoch for record in given_up.records()} == {0, 2}, "what it had not heard of it has read"
    assert len(waited) == 1


def test_views_are_the_same_bytes_for_equal_seeds_whoever_decodes(pictures: Path) -> None:
    def once(workers: int, seed: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(streamed(LocalStore(pictures), seed=seed, workers=workers).stream(7, epochs=1))

    first, second, other = once(1), once(2), once(1, seed=4)
    assert [len(labels) for _, labels in first] == [7, 7, 7, 7, 7, 7, 6]
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])
    assert not torch.equal(torch.cat([images for images, _ in first]), torch.cat([images for images, _ in other]))
    assert first[0][0].dtype == torch.float32
    assert first[0][0].shape == (7, 3, 224, 224)
    assert torch.cat([images for images, _ in first]).mean().abs() < 0.02, "the channel means are subtracted"


def test_batches_lie_on_the_device_that_is_asked_for(pictures: Path) -> None:
    here = list(streamed(LocalStore(pictures)).stream(7, epochs=1))
    with StandIn():
        one = streamed(LocalStore(pictures)).stream(7, epochs=1, device=torch.device("cuda", 0))
        there = [(images.device, images.cpu(), labels.cpu()) for images, labels in one]
    for (images, labels), (device, same, same_labels) in zip(here, there, strict=True):
        assert device == torch.device("cuda", 0)
        assert torch.equal(images, same)
        assert torch.equal(labels, same_labels)


def test_evaluation_looks_at_the_middle_when_asked_to(pictures: Path) -> None:
    test = streamed(LocalStore(pictures), "validation", test_view="centre")
    ((images, labels),) = test.stream(10, epochs=1)
    assert sorted(labels.tolist()) == [0, 0, 1, 1]
    index, mean = test.data.index, torch.tensor(test.data.manifest.channel_means)
    whole = [
        decode(test.data.store.read_range("validation-000000.tar", e.offset, e.length), 256) for e in map(index.entry, range(4))
    ]
    expected = {
        bytes(((torch.from_numpy(one[16:240, 20:244].copy()) - mean) / 255).permute(2, 0, 1).contiguous().numpy())
        for one in whole
    }
    assert {image.numpy().tobytes() for image in images} == expected


def test_a_run_that_is_stopping_ends_the_stream_and_samples_are_counted(stream: Callable[..., Stream]) -> None:
    counted: list[int] = []
    for _ in stream(epochs=None, count=counted.append, stopping=lambda: sum(counted) >= 100):
        pass
    assert sum(counted) == 100


# ---- bad input ---------------------------------------------------------------------------------------------------------


def corpus() -> dict[str, bytes]:
    """Records that cannot be used, by what is wrong with them."""
    whole = jpeg(1)
    return {
        "empty": b"",
        "text": b"hello",
        "cut": whole[:200],
        "huge": whole[: whole.index(b"\xff\xc0") + 5] + b"\xff\xff\xff\xff" + whole[whole.index(b"\xff\xc0") + 9 :],
    }


@pytest.fixture
def bad_set(tmp_path: Path) -> Path:
    """A set whose shards were made by somebody who did not look: 24 good records and one of each bad kind."""
    from mpca.data.index import HEADER
    from mpca.data.manifest import Manifest, Shard, Split
    from mpca.data.shards import ShardWriter

    good = {f"good{number}": jpeg(number) for number in range(24)}
    writer = ShardWriter()
    for number, (key, data) in enumerate({**good, **corpus()}.items()):
        writer.add(key, data, number % 2)
    import zlib

    store = LocalStore(tmp_path / "set")
    data, index = writer.finish(), HEADER + b"".join(entry.line(0) for entry in writer.entries)
    store.write("train-000000.tar", data)
    store.write("train.index", index)
    split = Split(28, [14, 14], f"{zlib.crc32(index):08x}", [Shard("train-000000.tar", 28, len(data))])
    store.write("manifest.json", Manifest(["a", "b"], [0.0, 0.0, 0.0], {"train": split}, 0, 0, 0, "x", {}).dump())
    return tmp_path / "set"


def test_bad_records_are_skipped_counted_once_and_named(bad_set: Path) -> None:
    told: list[tuple[str, str]] = []
    tell = {"tell_bad": lambda record, reason: told.append((record, reason))}
    one = streamed(LocalStore(bad_set)).stream(8, epochs=2, max_bad_fraction=0.2, **tell)
    seen = sum(len(labels) for _, labels in one)
    assert seen == 2 * 24
    assert one.bad is not None
    assert one.bad.count == len(corpus())
    assert {name.split(":")[1].split(" ")[0] for name in one.bad.names} == set(corpus())
    assert [f"{record}: {reason}" for record, reason in told] == one.bad.names


def test_above_the_fraction_the_stream_ends_with_the_names(bad_set: Path) -> None:
    with pytest.raises(
        BadRecords, match=r"3 of 28 that an agent reads in an epoch, data.max_bad_fraction=0.1; train-000000.tar:"
    ):
        list(streamed(LocalStore(bad_set)).stream(8, epochs=1, max_bad_fraction=0.1))


def test_its_length_is_how_many_batches_come(stream: Callable[..., Stream]) -> None:
    one = stream(epochs=2)
    assert len(one) == sum(1 for _ in one)
    assert len(stream(epochs=None)) == len(stream(epochs=1)), "of one epoch, as schedules count"


@pytest.mark.timeout(60)
def test_a_stream_of_which_nothing_can_be_read_ends_and_says_so(bad_set: Path, tmp_path: Path) -> None:
    store = copied(bad_set)
    store.damage("train-000000.tar", bytes(store.size("train-000000.tar")))
    with pytest.raises(BadRecords, match=r"not one record can be read: all 28 of an epoch are bad; train-000000.tar:"):
        list(streamed(store).stream(8, max_bad_fraction=1.0))
    with pytest.raises(BadRecords, match="not one record can be read"):
        list(EvaluationLoader(streamed(store), 8, max_bad_fraction=1.0))


def test_a_changed_byte_is_found_by_the_checksum(pictures: Path) -> None:
    store = copied(pictures)
    entry = SplitData.open(store, "train").index.entry(0)
    shard = bytearray(store.read("train-000000.tar"))
    shard[entry.offset + entry.length // 2] ^= 1
    store.damage("train-000000.tar", bytes(shard))
    one = streamed(store).stream(8, epochs=1, max_bad_fraction=0.5)
    assert sum(len(labels) for _, labels in one) == CLASSES * EACH - 1
    assert one.bad is not None
    assert entry.key in one.bad.names[0]
    assert "wrong checksum" in one.bad.names[0]


@pytest.mark.parametrize("whole_shard", [False, True])
def test_a_cut_shard_costs_its_unread_records_and_says_so(
    pictures: Path, whole_shard: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = copied(pictures)
    data = SplitData.open(store, "train")
    first, last = data.index.starts[0], data.index.starts[1]
    middle = data.index.entry((first + last) // 2)
    unread = last - (first + last) // 2
    store.damage("train-000000.tar", None if whole_shard else store.read("train-000000.tar")[: middle.offset + 10])
    one = streamed(store).stream(8, epochs=1, max_bad_fraction=0.9)
    lost = last - first if whole_shard else unread
    assert sum(len(labels) for _, labels in one) == CLASSES * EACH - lost
    assert one.bad is not None
    assert one.bad.count == lost
    assert ("the shard is not there" if whole_shard else "the shard ends before it") in caplog.text
    assert "memory:train-000000.tar" in caplog.text
    undamaged = streamed(LocalStore(pictures)).stream(8, epochs=1)
    assert list(undamaged)
    assert one.position == undamaged.position, "records that cannot be read are handed out too"


def test_a_read_that_fails_for_a_while_is_tried_again(pictures: Path) -> None:
    class Flaky(LocalStore):
        failures = 2

        def read_range(self, path: str, offset: int, length: int) -> bytes:
            if self.failures:
                self.failures -= 1
                raise OSError("not just now")
            return super().read_range(path, offset, length)

    waited: list[float] = []
    data = SplitData.open(Flaky(pictures), "train")
    assert len(keys(reader(data, wait=waited.append))) == CLASSES * EACH
    assert waited == [0.2, 1.0]


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("train.index", b"\t1\tclass1", b"\t2\tclass1", "label out of range: .*train.index: 24 records, the first is class1"),
        ("train.index", b"\t1\tclass1", b"\t1\tclassX", "damaged index: .*crc32="),
        ("manifest.json", b"    24,\n", b"    0,\n", "1 of 2 classes have no record to train on: class0"),
        ("manifest.json", b'"format": 2', b'"format": 3', "has format 3, this mpca reads 1 to 2: use a newer mpca"),
        ("manifest.json", b"{", b"[", "damaged manifest"),
    ],
)
def test_a_set_that_cannot_be_trained_on_is_refused_at_the_start(
    pictures: Path, file: str, old: bytes, new: bytes, says: str
) -> None:
    import zlib

    store = copied(pictures)
    was = store.read(file)
    now = was.replace(old, new) if file == "train.index" else was.replace(old, new, 1)
    assert now != was
    store.damage(file, now)
    if "range" in says:  # whoever wrote it meant it
        manifest = store.read("manifest.json").replace(f"{zlib.crc32(was):08x}".encode(), f"{zlib.crc32(now):08x}".encode())
        store.damage("manifest.json", manifest)
    with pytest.raises(ConfigError, match=says):
        SplitData.open(store, "train")


def test_more_agents_than_records_are_refused(pictures: Path) -> None:
    with pytest.raises(ConfigError, match="fewer samples than agents: train has 48 records, agents=49"):
        streamed(LocalStore(pictures)).stream(8, agents=49)


# ---- processes and memory ----------------------------------------------------------------------------------------------


def test_a_decoder_that_is_killed_is_started_again_and_costs_what_it_was_at(stream: Callable[..., Stream]) -> None:
    one = stream(epochs=6, max_bad_fraction=1.0)
    seen, killed = 0, 0
    for _, labels in one:
        seen += len(labels)
        if killed < 3 and seen > 60 * (killed + 1) and (pids := one.worker_pids()):
            os.kill(pids[0], signal.SIGKILL)
            killed += 1
    assert killed == 3
    assert one.bad is not None
    assert 6 * CLASSES * EACH - seen <= 3, "a crash costs one record at most"
    assert all("the decoder died of it: signal 9 (SIGKILL)" in name for name in one.bad.names)


PROGRAM = """
import os, sys
from mpca.data.stream import Streamed
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import SplitData
from mpca.storage import LocalStore
streamed = Streamed(SplitData.open(LocalStore(sys.argv[1]), "train"), StreamOptions(read_ahead=1 << 20, workers=2), 0)
stream = streamed.stream(4)
for number, _ in enumerate(stream):
    if number == 2:
        print(*stream.worker_pids(), flush=True)
"""


def test_decoders_end_with_their_agent_whatever_ends_it(pictures: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(pictures)], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in agent.stdout.readline().split()]
        assert len(workers) == 2
        agent.kill()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive


def test_memory_stays_within_its_bound_however_large_the_set(tmp_path: Path) -> None:
    """Counted where it is held: JPEGs that were read and are not decoded yet."""
    limit, record = 1 << 20, 40_000
    numbers = iter(range(10_000))

    class Counting(LocalStore):
        """A set of incompressible records; `held` by whoever read them and has not let go."""

        largest = 0

        def read_range(self, path: str, offset: int, length: int) -> bytes:
            self.largest = max(self.largest, length)
            return super().read_range(path, offset, length)

    from mpca.data.index import HEADER
    from mpca.data.shards import ShardWriter

    writer = ShardWriter()
    for number in range(400):
        writer.add(str(number), np.random.default_rng(number).bytes(record), 0)
    import zlib

    from mpca.data.manifest import Manifest, Shard, Split

    store, data = Counting(tmp_path), writer.finish()
    index = HEADER + b"".join(entry.line(0) for entry in writer.entries)
    store.write("train-000000.tar", data)
    store.write("train.index", index)
    split = Split(400, [400], f"{zlib.crc32(index):08x}", [Shard("train-000000.tar", 400, len(data))])
    store.write("manifest.json", Manifest(["a"], [0.0] * 3, {"train": split}, 0, 0, 0, "x", {}).dump())
    import tracemalloc

    one = reader(SplitData.open(store, "train"), window_bytes=limit // 2, epochs=2)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in one.records():
        next(numbers)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert next(numbers) == 800
    assert store.largest <= limit // 2
    assert peak < 1.5 * limit < len(data) / 10


# ---- the local copy ----------------------------------------------------------------------------------------------------


def test_the_second_epoch_comes_from_the_local_copy(pictures: Path, tmp_path: Path) -> None:
    class Counting(LocalStore):
        fetched = 0

        def read_range(self, path: str, offset: int, length: int) -> bytes:
            self.fetched += length
            return super().read_range(path, offset, length)

    store = Counting(pictures)
    data = SplitData.open(store, "train")
    with RecordCache(64 << 20, tmp_path) as cache:
        one = reader(data, 0, 2, cache=cache, epochs=3)
        records = one.records()
        share = one.share_records
        first = [next(records) for _ in range(share)]
        once = store.fetched
        later = list(records)
    assert store.fetched == once, "nothing was read twice"
    assert {record.jpeg for record in later} == {record.jpeg for record in first}
    assert len(later) == 2 * share


def test_options_that_cannot_be_are_refused_by_name() -> None:
    for changes, says in (
        ({"workers": 0}, r"data\.workers = 0: must be 1 or more"),
        ({"crop": 300}, r"data\.shorter_edge = 256: must be 300 or more"),
        ({"test_view": "left"}, "must be random or centre"),
    ):
        with pytest.raises(ConfigError, match=says):
            StreamOptions(**changes)
