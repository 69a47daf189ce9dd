"""The agent's end of the control pipe: what is here is read, in order, and one message may be taken out of turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from mpca.agent.link import Link, LinkClosed
from mpca.errors import LocalProtocolError, RemoteProtocolError
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Begin, Finished, Hello, Message, Progress, ReadersChanged, Stop
from tests.support.pipe import START, PipeEnds

SECONDS = 10.0  # for what another thread does


@pytest.fixture
def executor() -> Iterator[PipeEnds]:
    with PipeEnds() as ends:
        yield ends


def joined(executor: PipeEnds) -> Link:
    """The agent has said Hello."""
    executor.say(START)
    assert executor.link.receive(None) == [START]
    executor.link.send(Hello(0, 0, 1, "3", "2", "0", "x0", [], {}, {}, [0, 1], 1, 3, 4096, []))
    assert len(executor.heard()) == 1
    return executor.link


def test_all_that_is_here_comes_in_order_and_nothing_is_waited_for(executor: PipeEnds) -> None:
    link = joined(executor)
    assert link.receive() == []
    executor.say(Begin(), ReadersChanged(1, {"a": 1}), Stop("enough"))
    assert link.receive() == [Begin(), ReadersChanged(1, {"a": 1}), Stop("enough")]
    assert link.receive() == []


def test_one_is_taken_out_of_turn_and_the_others_stay_in_order(executor: PipeEnds) -> None:
    link = joined(executor)
    assert link.peek(Stop) is None
    executor.say(Begin(), ReadersChanged(1, {"a": 1}), Stop("enough"), ReadersChanged(2, {"a": 2}))
    assert link.peek(Stop) == Stop("enough")
    assert link.peek(Stop) is None, "once"
    assert link.receive(None) == [Begin(), ReadersChanged(1, {"a": 1}), ReadersChanged(2, {"a": 2})], "at once: all are here"


def test_who_waits_gets_what_comes_in_pieces_when_it_is_whole(executor: PipeEnds) -> None:
    link = joined(executor)
    data = encode(ReadersChanged(1, {"a": "b" * 100}))
    got: list[list[Message]] = []
    waiting = threading.Thread(target=lambda: got.append(link.receive(None)))
    waiting.start()
    for piece in (data[:3], data[3:50], data[50:]):
        assert got == []
        os.write(executor.write_fd, piece)
    waiting.join(SECONDS)
    assert got == [[ReadersChanged(1, {"a": "b" * 100})]]


def test_the_end_of_the_pipe_comes_after_what_was_said_before_it(executor: PipeEnds) -> None:
    link = joined(executor)
    executor.say(Begin(), Stop("enough"))
    executor.end_writing()
    assert link.receive() == [Begin(), Stop("enough")]
    for ask in (link.receive, lambda: link.receive(None), lambda: link.peek(Stop)):
        with pytest.raises(LinkClosed, match="end of file on the control pipe"):
            ask()


def test_what_is_said_to_nobody_is_noticed(executor: PipeEnds) -> None:
    link = joined(executor)
    executor.end_reading()
    with pytest.raises(LinkClosed, match="the executor no longer reads"):
        link.send(Finished(b""))


def test_what_the_protocol_does_not_allow_is_refused_on_both_ways(executor: PipeEnds) -> None:
    with pytest.raises(LocalProtocolError):
        executor.link.send(Finished(b""))
    executor.say(Begin())
    with pytest.raises(RemoteProtocolError):
        executor.link.receive()


def test_more_than_a_pipe_holds_is_sent_whole(executor: PipeEnds) -> None:
    link = joined(executor)
    said = Progress(1, 2, 3.0, 0.5, {f"metric {n}": float(n) for n in range(20_000)})
    heard: list[Message] = []

    def read() -> None:
        reader = FrameReader()
        while not heard:
            heard.extend(reader.feed(os.read(executor.read_fd, 1 << 16)))

    reading = threading.Thread(target=read)
    reading.start()
    link.send(said)
    reading.join(SECONDS)
    assert heard == [said]
