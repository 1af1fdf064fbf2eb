"""Messages on a stream of bytes: four bytes of length, then so many bytes. Nothing longer than a node can mean."""

from typing import Protocol

LONGEST = 256 * 1024
"""A lease of 16 devices has 3 KiB."""


class FrameError(Exception):
    """The other side does not speak this protocol."""


class Reader(Protocol):
    """Such as asyncio.StreamReader."""

    async def readexactly(self, n: int, /) -> bytes:
        """Raises EOFError (asyncio's IncompleteReadError is one) when the stream ends before."""
        ...


async def read_frame(stream: Reader, longest: int = LONGEST) -> bytes:
    """The next message. Raises EOFError at the end of the stream, FrameError for a length that cannot be."""
    length = int.from_bytes(await stream.readexactly(4), "big")
    if not 0 < length <= longest:
        raise FrameError(f"a message of {length} bytes")
    return await stream.readexactly(length)


def framed(message: bytes) -> bytes:
    """As it goes over the stream."""
    return len(message).to_bytes(4, "big") + message
