"""Names of bad records on their way from a stream's thread to the driver."""

from __future__ import annotations

from mpca.agent.bad_names import BadNames
from mpca.wire.codec import decode, encode
from mpca.wire.messages import Progress


def test_each_is_told_once_in_order_a_hundred_at_a_time() -> None:
    bad = BadNames()
    for number in [*range(250), 3, 249]:
        bad.add(f"r{number}", "damaged")
    told = []
    while bad:
        told.append(bad.take())
    assert [len(one) for one in told] == [100, 100, 50]
    assert [record for one in told for record, _ in one] == [f"r{number}" for number in range(250)]
    bad.add("r7", "damaged")  # the next loop over the stream
    assert (bad.take(), bad.dropped) == ([], 0)


def test_what_there_is_no_room_for_is_counted_once() -> None:
    bad = BadNames()
    for _ in range(2):
        for number in range(10_003):
            bad.add(f"r{number}", "damaged")
    assert bad.dropped == 3
    assert len(bad.take()) == 100
    bad.add("r10003", "damaged")
    assert bad.dropped == 3, "there is room again"


def test_whatever_a_file_is_called_can_be_sent() -> None:
    bad = BadNames()
    bad.add("\udcff" + "x" * 600 + " at 512", "not \udc80 an image")
    ((record, reason),) = bad.take()
    assert (len(record), record[:4], record[-7:], reason) == (500, "...x", " at 512", "not ? an image")
    message = Progress(0, 0, 0.0, 0.0, {}, bad=[[record, reason]])
    assert decode(encode(message)[4:]) == message
