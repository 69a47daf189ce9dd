"""Files through an executor, whose side is played by a thread here; `tests/hadoop/test_streaming.py` has the real one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mpca.agent.context import AgentContext
from mpca.agent.files import MEMORY_BYTES, ExecutorFiles, FilePipe
from mpca.data.manifest import store_at
from mpca.data.stream import Streamed
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import SplitData
from mpca.storage import LocalStore, Location, opening
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Fetch, Fetched, Files
from tests.data.pictures import ingested
from tests.support.pipe import START, PipeEnds


class Executor:
    """Serves ``hdfs://h/...`` out of a local folder, as `org.mpca.agent.FilePipe` does it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0
        self.thread: threading.Thread | None = None

    def open(self, files: Files) -> None:
        ends = [
            os.open(f"/proc/{files.pid}/fd/{fd}", flags)
            for fd, flags in ((files.requests_fd, os.O_RDONLY), (files.answers_fd, os.O_WRONLY), (files.memory_fd, os.O_RDWR))
        ]
        self.thread = threading.Thread(target=self._serve, args=ends)
        self.thread.start()

    def _serve(self, requests: int, answers: int, memory: int) -> None:
        reader = FrameReader()
        os.write(answers, encode(Fetched(0, 0, "", "")))
        while data := os.read(requests, 1 << 16):
            for fetch in reader.feed(data):
                assert isinstance(fetch, Fetch)
                self.asked += 1
                os.write(answers, encode(self._fetch(fetch, memory)))
        for one in (requests, answers, memory):
            os.close(one)

    def _fetch(self, fetch: Fetch, memory: int) -> Fetched:
        path = self.folder / fetch.url.removeprefix("hdfs://h/set/")
        if path.name == "slow":
            return Fetched(fetch.number, 0, "org.apache.hadoop.hdfs.BlockMissingException", "no living DataNode")
        if not path.exists():
            return Fetched(fetch.number, 0, "java.io.FileNotFoundException", f"File does not exist: {path.name}")
        data = path.read_bytes()[fetch.offset : fetch.offset + fetch.bytes]
        os.pwrite(memory, data, 0)
        return Fetched(fetch.number, len(data), "", "")


@pytest.fixture
def through(tmp_path: Path) -> Iterator[Callable[[Path], tuple[Executor, ExecutorFiles]]]:
    made: list[tuple[Executor, FilePipe]] = []

    def make(folder: Path) -> tuple[Executor, ExecutorFiles]:
        executor = Executor(folder)
        made.append((executor, pipe := FilePipe(executor.open)))
        return executor, ExecutorFiles(pipe, Location.parse("hdfs://h/set"))

    yield make
    for executor, pipe in made:
        pipe.close()
        assert executor.thread is not None
        executor.thread.join(10)
        assert not executor.thread.is_alive()


def test_ranges_and_whole_files_come_in_pieces_of_the_memory(through, tmp_path: Path) -> None:
    content = os.urandom(2 * MEMORY_BYTES + 100)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(content[:MEMORY_BYTES])
    executor, files = through(tmp_path)
    assert files.read_range("a", 7, MEMORY_BYTES + 9) == content[7 : MEMORY_BYTES + 16]
    assert executor.asked == 2
    assert files.read_range("a", len(content) - 3, 50) == content[-3:], "fewer at the end"
    assert files.read_range("a", len(content) + 3, 50) == b""
    assert files.read("a") == content
    assert files.read("b") == content[:MEMORY_BYTES]
    assert files.exists("a")
    assert not files.exists("c")


def test_all_stores_of_an_agent_share_one_way_to_the_executor(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    executor = Executor(tmp_path)
    with PipeEnds() as ends:
        ends.say(START)
        ends.link.receive(None)
        context = AgentContext.make(START, ends.link)
        opening = threading.Thread(target=lambda: [executor.open(one) for one in ends.heard() if isinstance(one, Files)])
        opening.start()
        stores = [context.open_hdfs(Location.parse("hdfs://h/set")) for _ in range(2)]  # a second pipe would never be opened
        assert [store.read(name) for store, name in zip(stores, "ab", strict=True)] == [b"one", b"two"]
        opening.join(10)
    assert context.files is not None
    context.files.close()
    assert executor.thread is not None
    executor.thread.join(10)


def test_errors_are_those_of_the_operating_system_with_the_place(through, tmp_path: Path) -> None:
    _, files = through(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"File does not exist: c.*hdfs://h/set/c"):
        files.read("c")
    with pytest.raises(OSError, match=r"BlockMissingException: no living DataNode.*hdfs://h/set/slow"):
        files.read_range("slow", 0, 1)
    with pytest.raises(OSError, match="an agent only reads files through its executor"):
        files.write("c", b"")


def test_a_stream_through_the_executor_is_the_stream_from_the_disk(through, tmp_path: Path) -> None:
    pictures = ingested(tmp_path, classes=2, each=10)
    executor, files = through(pictures)
    opening.use(lambda location: files)
    try:
        store = store_at("hdfs://h/set")
    finally:
        opening.use(None)
    sides = [
        list(Streamed(SplitData.open(one, "train"), StreamOptions(read_ahead=1 << 20), 0).stream(8, epochs=2))
        for one in (store, LocalStore(pictures))
    ]
    assert len(sides[0]) == len(sides[1]) == 5
    for (images, labels), (same, likewise) in zip(*sides, strict=True):
        assert torch.equal(images, same)
        assert torch.equal(labels, likewise)
    assert executor.asked > 2


def test_an_executor_that_is_gone_is_an_error_and_no_wait() -> None:
    ends: list[int] = []

    def open_and_leave(files: Files) -> None:
        requests = os.open(f"/proc/{files.pid}/fd/{files.requests_fd}", os.O_RDONLY)
        answers = os.open(f"/proc/{files.pid}/fd/{files.answers_fd}", os.O_WRONLY)
        os.write(answers, encode(Fetched(0, 0, "", "")))
        ends.extend((requests, answers))

    pipe = FilePipe(open_and_leave)
    os.close(ends.pop())
    files = ExecutorFiles(pipe, Location.parse("hdfs://h/set"))
    with pytest.raises(OSError, match="the executor no longer reads files for this agent"):
        files.read("a")
    os.close(ends.pop())
    with pytest.raises(BrokenPipeError):
        files.read("a")
    pipe.close()
