"""Messages on a stream: four bytes of length, then so many bytes. Nothing longer than a node can mean."""

import asyncio

LONGEST = 256 * 1024
"""A lease of 16 devices has 3 KiB."""


class FrameError(Exception):
    """The other side does not speak this protocol."""


async def read_frame(stream: asyncio.StreamReader) -> bytes:
    """The next message. Raises EOFError at the end of the stream, FrameError for a length that cannot be."""
    try:
        length = int.from_bytes(await stream.readexactly(4), "big")
        if not 0 < length <= LONGEST:
            raise FrameError(f"a message of {length} bytes")
        return await stream.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise EOFError from error


def write_frame(stream: asyncio.StreamWriter, message: bytes) -> None:
    """Queue a message; whoever cares for its way awaits `drain`."""
    stream.write(len(message).to_bytes(4, "big") + message)
