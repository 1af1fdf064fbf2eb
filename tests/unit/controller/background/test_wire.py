"""Messages between operator and driver: whole, in order, bounded, and only from an end that knows the secret."""

import socket
from contextlib import suppress
from threading import Thread

import pytest
from hypothesis import given, settings, strategies as st

from controller.background.wire import (
    LARGEST_BODY,
    LARGEST_HEAD,
    Done,
    Drop,
    Message,
    Part,
    Ready,
    Submit,
    WireError,
    prove,
    receive,
    send,
)

SENT: tuple[Message, ...] = (Part("p"), Ready("Ray"), Submit("load_fits", "t", ("p",)), Done("t", "why"), Drop("p"))


def received(data: bytes) -> list[tuple[Message, bytes]]:
    """Messages in these bytes, up to their end. Raises WireError."""
    here, there = socket.socketpair()
    found = []
    with here, there:
        here.sendall(data)
        here.shutdown(socket.SHUT_WR)
        with suppress(EOFError):
            while True:
                found.append(receive(there))
    return found


def sent(*messages: Message) -> bytes:
    here, there = socket.socketpair()
    with here, there:
        for message in messages:
            send(here, message, b"body")
        here.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: there.recv(1 << 16), b""))


def test_messages_are_read_as_they_were_sent() -> None:
    assert received(sent(*SENT)) == [(message, b"body") for message in SENT]


@pytest.mark.parametrize(("head", "body"), [(LARGEST_HEAD + 1, 0), (1, LARGEST_BODY + 1), (2**32 - 1, 2**64 - 1)])
def test_a_message_that_is_too_long_is_refused_before_it_is_read(head: int, body: int) -> None:
    with pytest.raises(WireError, match="not valid"):
        received(head.to_bytes(4, "little") + body.to_bytes(8, "little"))


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(WireError, match="cannot be read"):
        received((1).to_bytes(4, "little") + (0).to_bytes(8, "little") + b"x")


SOUND = sent(*SENT)


@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_messages_with_other_bytes_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SOUND)
    for at, byte in changes:
        data[at] = byte

    with suppress(WireError):
        received(bytes(data))


def test_a_head_that_nests_too_deep_is_refused() -> None:
    head = b"\x91" * 50_000 + b"\x00"

    with pytest.raises(WireError, match="cannot be read"):
        received(len(head).to_bytes(4, "little") + bytes(8) + head)


@pytest.mark.parametrize(("theirs", "is_proven"), [(b"secret", True), (b"guessed", False)])
def test_only_an_end_that_knows_the_secret_is_talked_to(theirs: bytes, *, is_proven: bool) -> None:
    here, there = socket.socketpair()
    found: list[bool] = []

    def other() -> None:
        try:
            prove(there, theirs, as_driver=True)
        except WireError:
            found.append(False)
        else:
            found.append(True)

    with here, there:
        thread = Thread(target=other)
        thread.start()
        try:
            prove(here, b"secret", as_driver=False)
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
            prove(here, b"secret", as_driver=False)
    finally:
        here.close()
        thread.join()
        mirror.close()
