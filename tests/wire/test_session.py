from __future__ import annotations

import pytest

from mpca.errors import LocalProtocolError, RemoteProtocolError
from mpca.wire.messages import (
    Begin,
    Cut,
    Exchange,
    Failed,
    Fetched,
    Finished,
    Install,
    Installed,
    Message,
    Progress,
    ReadersChanged,
    SaveState,
    Snapshot,
    SnapshotRequest,
    StateTaken,
    Stop,
)
from mpca.wire.session import AGENT, CLOSED, EXECUTOR, LOADING, STOPPING, TRAINING, TRANSITIONS, WAITING, Session
from tests.wire.test_codec import HELLO, MESSAGES, START

#: An executor's words.
OURS = (type(START), Begin, Cut, Fetched, SnapshotRequest, Install, ReadersChanged, SaveState, StateTaken, Stop)


class SessionPair:
    """Two real ends with a link that delivers at once: what one sends, the other must have received."""

    def __init__(self) -> None:
        self.executor, self.agent = Session(EXECUTOR), Session(AGENT)

    def say(self, *messages: Message) -> None:
        for message in messages:
            ours = type(message) in OURS
            sender, receiver = (self.executor, self.agent) if ours else (self.agent, self.executor)
            sender.sending(message)
            receiver.received(message)
            assert self.executor.state == self.agent.state


def asks(number: int, shard: int) -> Exchange:
    return Exchange(number, shard, 12, 41, 0.0, 0.0)


def training() -> SessionPair:
    pair = SessionPair()
    pair.say(START, HELLO, Begin())
    assert pair.agent.state == TRAINING
    return pair


def test_normal_flow() -> None:
    pair = SessionPair()
    pair.say(START, HELLO, SnapshotRequest(-1, 0), Snapshot(-1, 0, 0, 0.0, 0.0))
    pair.say(Install(0, 0, "replace"), Installed(0, 0, "replace", 0.0, 0.0))
    assert pair.executor.state == WAITING
    pair.say(ReadersChanged(1, {}), Begin(), ReadersChanged(2, {}))
    pair.say(Install(0, 1, "install"), Install(1, 1, "install"), SnapshotRequest(0, 0))
    pair.say(Snapshot(0, 0, 5, 0.0, 0.0), Installed(1, 1, "install", 0.0, 0.0), Installed(0, 1, "install", 0.0, 0.0))
    pair.say(Begin(), Stop("enough"), Progress(5, 5, 1.0, 0.0, {}), Finished(b""))
    assert pair.executor.state == CLOSED


def test_words_that_cross_the_agents_last_one_are_dropped() -> None:
    pair = training()
    pair.agent.sending(Finished(b""))
    for message in (SnapshotRequest(1, 0), Install(0, 1, "install"), ReadersChanged(1, {}), Begin(), Stop("enough")):
        pair.executor.sending(message)
        pair.agent.received(message)
    pair.executor.received(Finished(b""))
    assert pair.executor.state == pair.agent.state == CLOSED


def test_stop_may_cross_hello() -> None:
    pair = SessionPair()
    pair.say(START)
    pair.executor.sending(Stop("enough"))
    pair.agent.sending(HELLO)
    pair.executor.received(HELLO)
    pair.agent.received(Stop("enough"))
    pair.say(Finished(b""))


@pytest.mark.parametrize("role", [EXECUTOR, AGENT])
def test_every_illegal_move_names_role_state_and_message_and_changes_nothing(role: str) -> None:
    for state, legal in TRANSITIONS[role].items():
        for message in MESSAGES:
            if type(message) in legal:
                continue
            session = Session(role)
            session.state = state
            from_executor = type(message) in OURS
            sends = from_executor == (role == EXECUTOR)
            error = LocalProtocolError if sends else RemoteProtocolError
            with pytest.raises(error, match=rf"{type(message).__name__} is illegal here: role={role}, state={state}"):
                (session.sending if sends else session.received)(message)
            assert session.state == state


def test_nobody_says_the_other_sides_words() -> None:
    with pytest.raises(LocalProtocolError, match="AGENT does not send Begin"):
        Session(AGENT).sending(Begin())
    with pytest.raises(RemoteProtocolError, match="EXECUTOR does not receive Stop"):
        Session(EXECUTOR).received(Stop("enough"))


@pytest.mark.parametrize(
    ("before", "message", "says"),
    [
        (
            [SnapshotRequest(4, 1)],
            SnapshotRequest(5, 2),
            r"a second SnapshotRequest while one is unanswered: role=EXECUTOR, open=\(4, 1\)",
        ),
        ([], Snapshot(4, 1, 0, 0.0, 0.0), "Snapshot without its SnapshotRequest: role=AGENT, cycle=4"),
        ([SnapshotRequest(4, 1)], Snapshot(4, 2, 0, 0.0, 0.0), "Snapshot without its SnapshotRequest"),
        ([Install(1, 7, "install")], Install(1, 8, "install"), r"slot is taken: role=EXECUTOR, shard=1, version=8"),
        ([], Installed(1, 7, "install", 0.0, 0.0), "Installed without its Install"),
        ([Install(1, 7, "install")], Installed(1, 7, "replace", 0.0, 0.0), "Installed without its Install"),
        ([asks(1, 1), SnapshotRequest(4, 0)], Snapshot(4, 0, 0, 0.0, 0.0), "Snapshot while an Exchange has the slot"),
        ([asks(1, 1)], asks(2, 2), "a second Exchange while one is unanswered: role=AGENT, shard=1"),
        ([asks(1, 1), Install(1, 7, "install")], asks(1, 1), "Exchange out of turn: role=AGENT, number=1, last=1"),
        ([], asks(2, 1), "Exchange out of turn: role=AGENT, number=2, last=0"),
    ],
)
def test_every_answer_has_its_question(before: list[Message], message: Message, says: str) -> None:
    pair = training()
    pair.say(*before)
    sender, receiver = (
        (pair.executor, pair.agent) if isinstance(message, (SnapshotRequest, Install)) else (pair.agent, pair.executor)
    )
    with pytest.raises(LocalProtocolError, match=says):
        sender.sending(message)
    with pytest.raises(RemoteProtocolError):
        receiver.received(message)
    assert pair.executor.state == pair.agent.state == TRAINING


def test_failed_may_come_before_start() -> None:
    session = Session(EXECUTOR)
    session.received(Failed("ImportError", "..."))
    assert session.state == CLOSED


def test_a_stopping_agent_still_answers() -> None:
    pair = training()
    pair.say(SnapshotRequest(1, 0), Install(0, 1, "install"), Stop("enough"), Snapshot(1, 0, 3, 0.0, 0.0))
    pair.say(Installed(0, 1, "install", 0.0, 0.0), SnapshotRequest(2, 1), Snapshot(2, 1, 1, 0.0, 0.0))
    assert pair.agent.state == STOPPING


def test_an_exchange_ends_with_the_install_of_its_shard() -> None:
    pair = training()
    pair.say(SnapshotRequest(4, 0), asks(1, 1), Install(0, 7, "replace"), Installed(0, 7, "replace", 0.0, 0.0))
    pair.say(Install(1, 8, "install"), Snapshot(4, 0, 0, 0.0, 0.0), Installed(1, 8, "install", 0.0, 0.0))
    pair.say(asks(2, 1), Install(1, 8, "install"), Installed(1, 8, "install", 0.0, 0.0))
    pair.say(asks(3, 0), Stop("enough"), SnapshotRequest(5, 0), Snapshot(5, 0, 0, 0.0, 0.0))
    pair.say(Install(0, 9, "install"), Installed(0, 9, "install", 0.0, 0.0), Finished(b""))


def test_an_exchange_may_cross_stop() -> None:
    pair = training()
    pair.agent.sending(asks(1, 1))
    pair.executor.sending(Stop("enough"))
    pair.executor.received(asks(1, 1))
    pair.agent.received(Stop("enough"))
    pair.say(SnapshotRequest(4, 0), Snapshot(4, 0, 0, 0.0, 0.0))
    with pytest.raises(LocalProtocolError, match="Exchange is illegal here: role=AGENT, state=STOPPING"):
        pair.agent.sending(asks(2, 1))


def test_an_install_that_waits_to_be_read_ends_an_exchange() -> None:
    pair = training()
    pair.say(Install(1, 7, "replace"), asks(1, 1), Installed(1, 7, "replace", 0.0, 0.0), asks(2, 1))


def test_an_install_that_crosses_an_exchange_ends_it_on_both_sides() -> None:
    pair = training()
    pair.agent.sending(asks(1, 1))
    pair.executor.sending(Install(1, 7, "replace"))
    pair.executor.received(asks(1, 1))
    pair.agent.received(Install(1, 7, "replace"))
    pair.say(SnapshotRequest(4, 0), Snapshot(4, 0, 0, 0.0, 0.0), Installed(1, 7, "replace", 0.0, 0.0))
    pair.say(Install(1, 8, "install"), Installed(1, 8, "install", 0.0, 0.0), asks(2, 1))


def test_a_model_is_cut_anew_before_the_first_step_and_said_hello_for_again() -> None:
    pair = SessionPair()
    pair.say(START, HELLO, SnapshotRequest(-1, 0), Snapshot(-1, 0, 0, 0.0, 0.0), Cut(6))
    assert pair.agent.state == LOADING
    with pytest.raises(LocalProtocolError, match="Begin is illegal here"):
        pair.executor.sending(Begin())
    pair.say(HELLO, Install(5, 0, "replace"), Installed(5, 0, "replace", 0.0, 0.0), Begin())
    with pytest.raises(LocalProtocolError, match="Cut is illegal here"):
        pair.executor.sending(Cut(3))


def test_a_model_is_not_cut_while_the_agent_owes_an_answer() -> None:
    pair = SessionPair()
    pair.say(START, HELLO, SnapshotRequest(-1, 0))
    with pytest.raises(LocalProtocolError, match=r"Cut while the agent owes an answer: .*open=\(-1, 0\)"):
        pair.executor.sending(Cut(6))


def test_stop_may_cross_the_hello_behind_a_cut() -> None:
    pair = SessionPair()
    pair.say(START, HELLO, Cut(6), Stop("enough"))
    pair.say(HELLO, Finished(b""))
    assert pair.agent.state == CLOSED
