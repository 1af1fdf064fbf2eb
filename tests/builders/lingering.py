"""Descriptors whose last close takes as long as their maker likes."""

import socket
import struct


def lingering_socket(for_s: int) -> socket.socket:
    """Connected TCP socket with data that its peer never reads, and SO_LINGER: who closes it last waits so long."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = socket.create_connection(listener.getsockname())
    made.setblocking(False)
    try:
        while True:
            made.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, for_s))
    _kept.append(listener)  # closed, it would reset the connection
    return made


_kept: list[socket.socket] = []
