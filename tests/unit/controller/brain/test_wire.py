"""Messages between controller and brain: whole, in order, bounded, and only from an end that knows the secret."""

import socket
from contextlib import suppress
from threading import Thread

import pytest
from hypothesis import given, settings, strategies as st

from controller.brain.wire import (
    LARGEST_BODY,
    LARGEST_HEAD,
    Failed,
    Inbox,
    Ping,
    Pong,
    Ready,
    Thinks,
    WireError,
    prove,
    receive,
    send,
    written,
)


def test_messages_are_read_whole_however_they_arrive() -> None:
    data = b"".join(bytes(piece) for n in range(3) for piece in written(Ping(n), b"body"))
    inbox = Inbox()

    found = [each for n in range(len(data)) for each in inbox.feed(data[n : n + 1])]

    assert found == [(Ping(n), b"body") for n in range(3)]


@pytest.mark.parametrize(("head", "body"), [(LARGEST_HEAD + 1, 0), (1, LARGEST_BODY + 1), (2**32 - 1, 2**64 - 1)])
def test_a_message_that_is_too_long_is_refused_before_it_is_read(head: int, body: int) -> None:
    start = head.to_bytes(4, "little") + body.to_bytes(8, "little")
    mine, theirs = socket.socketpair()

    with pytest.raises(WireError, match="not valid"):
        list(Inbox().feed(start))
    with mine, theirs:
        mine.sendall(start)
        with pytest.raises(WireError, match="not valid"):
            receive(theirs)


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(WireError, match="cannot be read"):
        list(Inbox().feed((1).to_bytes(4, "little") + (0).to_bytes(8, "little") + b"x"))


SOUND = b"".join(
    bytes(piece)
    for message in (Ready("1", "2", 1, 1, 0.0, (1,)), Failed(1, 1, "busy", "words"), Thinks("polish"), Pong(1))
    for piece in written(message)
)


@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=1_000, deadline=None)
def test_messages_with_other_bytes_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SOUND)
    for at, byte in changes:
        data[at] = byte

    with suppress(WireError):
        for message, body in Inbox().feed(data):
            assert written(message, body)


def test_a_head_that_nests_too_deep_is_refused() -> None:
    head = b"\x91" * 100_000 + b"\x00"

    with pytest.raises(WireError, match="cannot be read"):
        list(Inbox().feed(len(head).to_bytes(4, "little") + bytes(8) + head))


@pytest.mark.parametrize(("theirs", "is_proven"), [(b"secret", True), (b"guessed", False)])
def test_only_an_end_that_knows_the_secret_is_talked_to(theirs: bytes, *, is_proven: bool) -> None:
    here, there = socket.socketpair()
    found: list[bool] = []

    def other() -> None:
        try:
            prove(there, theirs, as_brain=True)
        except WireError:
            found.append(False)
        else:
            found.append(True)

    with here, there:
        thread = Thread(target=other)
        thread.start()
        try:
            prove(here, b"secret", as_brain=False)
        except WireError:
            found.append(False)
        else:
            found.append(True)
        thread.join()

    assert found == [is_proven, is_proven]


def test_a_proof_cannot_be_sent_back_to_where_it_came_from() -> None:
    """A mirror answers with the nonce and the proof that it receives."""
    here, mirror = socket.socketpair()

    def reflect() -> None:
        while data := mirror.recv(64):
            mirror.sendall(data)

    thread = Thread(target=reflect)
    thread.start()
    try:
        with pytest.raises(WireError):
            prove(here, b"secret", as_brain=False)
    finally:
        here.close()
        thread.join()
        mirror.close()


def test_a_message_is_sent_as_it_is_received() -> None:
    here, there = socket.socketpair()
    with here, there:
        send(here, Ping(7), b"abc")

        assert receive(there) == (Ping(7), b"abc")
