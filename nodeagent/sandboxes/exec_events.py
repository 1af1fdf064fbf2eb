"""Starts of programs in a container, as the kernel reports them (fanotify). Touches the kernel."""

import ctypes
import os
import struct
from contextlib import suppress

FAN_CLOEXEC, FAN_NONBLOCK = 0x1, 0x2
FAN_MARK_ADD, FAN_MARK_FILESYSTEM = 0x1, 0x100
FAN_OPEN_EXEC = 0x1000
"""Linux 5.0. All of sys/fanotify.h."""
_EVENT = struct.Struct("=IBBHQii")
"""struct fanotify_event_metadata: length, version, a byte to spare, its own length, mask, descriptor, pid."""
AT_ONCE = 64
"""Events in one reading: each opens the program's file here."""
_libc = ctypes.CDLL(None, use_errno=True)


class ExecEvents:
    """Events of the file system that a process has as its root: all that its container starts from its own image.

    What is missed, such as a program in a volume, is found by the next look at the container's processes.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError where the process is gone, or this one may not: it takes SYS_ADMIN."""
        root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.descriptor: int = _libc.fanotify_init(FAN_CLOEXEC | FAN_NONBLOCK, os.O_RDONLY | os.O_CLOEXEC)
            flags, mask = FAN_MARK_ADD | FAN_MARK_FILESYSTEM, ctypes.c_uint64(FAN_OPEN_EXEC)
            if self.descriptor < 0 or _libc.fanotify_mark(self.descriptor, flags, mask, root, None):
                error = ctypes.get_errno()
                if self.descriptor >= 0:
                    self.close()
                raise OSError(error, f"watching what a container starts: {os.strerror(error)}")
        finally:
            os.close(root)

    def drain(self) -> None:
        """Takes the oldest events, each of which holds an open file here: that something starts is all that counts."""
        with suppress(OSError):  # nothing there, or a file that cannot be opened any more
            for *_, descriptor, _ in _EVENT.iter_unpack(os.read(self.descriptor, AT_ONCE * _EVENT.size)):
                if descriptor >= 0:
                    os.close(descriptor)

    def close(self) -> None:
        os.close(self.descriptor)
