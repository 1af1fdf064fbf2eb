"""Framing: a length that cannot be ends a connection before anything is read or reserved for it."""

import asyncio
from dataclasses import dataclass

import pytest

from power.leases.messages import LONGEST, MessageFrameError, framed, read_frame


@dataclass
class Stream:
    """Bytes that arrived."""

    data: bytes
    asked: int = 0
    """Bytes that were asked for."""

    async def readexactly(self, n: int, /) -> bytes:
        self.asked += n
        if n > len(self.data):
            raise EOFError
        taken, self.data = self.data[:n], self.data[n:]
        return taken


def test_messages_are_read_one_by_one() -> None:
    stream = Stream(framed(b"first") + framed(b"second"))

    assert [asyncio.run(read_frame(stream)) for _ in range(2)] == [b"first", b"second"]
    with pytest.raises(EOFError):
        asyncio.run(read_frame(stream))


@pytest.mark.parametrize("length", [0, LONGEST + 1, 2**32 - 1])
def test_an_impossible_length_is_refused_before_it_is_read(length: int) -> None:
    stream = Stream(length.to_bytes(4, "big") + bytes(10))

    with pytest.raises(MessageFrameError):
        asyncio.run(read_frame(stream))

    assert stream.asked == 4


def test_the_longest_message_is_read() -> None:
    assert len(asyncio.run(read_frame(Stream(framed(bytes(LONGEST)))))) == LONGEST
