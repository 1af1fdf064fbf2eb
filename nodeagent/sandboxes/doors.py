"""Doors: one Unix socket per pod, in a folder that is mounted into that pod alone. Touches the file system.

A pod may own its folder and plant links or folders in it. Nothing is followed and no mode is changed by name: at worst
that pod has no socket.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

SOCKET = "agent.sock"
BACKLOG = 32
"""Connections that wait to be accepted; more of them wait in connect(2), which costs their pod alone."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_door(folder: Path, uid: str) -> socket.socket:
    """Listening socket of a pod, in `<folder>/<uid>/agent.sock`. Raises OSError where the pod blocks its own folder.

    Packets keep their borders (SOCK_SEQPACKET), so that no client can leave half a message behind.
    """
    parent = os.open(folder, FOLDER_FLAGS)
    try:
        with suppress(FileExistsError):
            os.mkdir(uid, 0o755, dir_fd=parent)
        own = os.open(uid, FOLDER_FLAGS, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        with suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=own)
        return _bound(f"/proc/self/fd/{own}/{SOCKET}")
    finally:
        os.close(own)


def _bound(path: str) -> socket.socket:
    """Socket at a path that every user of the pod may connect to. bind(2) follows no link at the end of a path."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    before = os.umask(0o111)
    try:
        door.bind(path)
        door.listen(BACKLOG)
    except OSError:
        door.close()
        raise
    finally:
        os.umask(before)
    return door


def remove_door(folder: Path, uid: str) -> None:
    """Removes the socket's file and the pod's folder, if the kubelet has not yet, and the pod left nothing in it."""
    with suppress(OSError):
        parent = os.open(folder, FOLDER_FLAGS)
        try:
            own = os.open(uid, FOLDER_FLAGS, dir_fd=parent)
            try:
                os.unlink(SOCKET, dir_fd=own)
            finally:
                os.close(own)
            os.rmdir(uid, dir_fd=parent)
        finally:
            os.close(parent)
