"""Framing of messages on a byte stream: four bytes of length, then the message; implausible lengths are refused."""

from typing import Protocol

LONGEST = 256 * 1024
"""Longest message in bytes; a lease of 16 devices has 3 KiB."""


class FrameError(Exception):
    """Error when the other process does not speak this protocol."""


class Reader(Protocol):
    """Byte stream to read from, such as asyncio.StreamReader."""

    async def readexactly(self, n: int, /) -> bytes:
        """Exactly n bytes. Raises EOFError (asyncio's IncompleteReadError is one) when the stream ends earlier."""
        ...


async def read_frame(stream: Reader, longest: int = LONGEST) -> bytes:
    """The next message. Raises EOFError at the end of the stream, FrameError for an impossible length."""
    length = int.from_bytes(await stream.readexactly(4), "big")
    if not 0 < length <= longest:
        raise FrameError(f"message length of {length} bytes is not allowed")
    return await stream.readexactly(length)


def framed(message: bytes) -> bytes:
    """The message with its length prefix, as it is sent."""
    return len(message).to_bytes(4, "big") + message
