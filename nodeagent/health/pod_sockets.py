"""Sockets that recorders write to, one per pod, so that a pod can fill, break or flood its own alone.

Each pod mounts its own folder, `FOLDER/<pod uid>` (docs/health.md); the agent binds a datagram socket in it. Mounting
another pod's folder helps nobody: the kernel attaches the sender's process to each datagram, and its cgroup names the
pod.
"""

import os
import re
import selectors
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cluster.clock import Clock
from nodeagent.health.processes import Senders
from nodeagent.socket_protection import MOST_PASSED, Allowance, Closer, passed_in
from tonnage import records

FOLDER = Path("/run/tonnage/pods")
SOCKET = "recorder.sock"
MOST_PODS = 256
"""Sockets at a time; more than twice the pods that a kubelet runs."""
BYTES_PER_S = 1 << 20
"""Of one pod: 16 ranks at 2,000 operations a second."""
BURST_S = 4.0
AT_ONCE = 32
"""Datagrams read from one socket before the others have their turn."""
_LONGEST = records.RECORD_BYTES * (records.FRAME_RECORDS + 1)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CREDENTIALS = struct.Struct("iII")
"""pid, uid, gid."""
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * MOST_PASSED)
"""Room for descriptors, too, that nobody asked for: what has no room the kernel closes in the reading thread."""
STUCK_S = 1.0
"""Pause of a pod that attached descriptors whose closing takes long."""

Deliver = Callable[[str, int, bytes], None]
"""Takes a frame: the pod's UID, the sender's process number, the frame."""


@dataclass(slots=True, eq=False)
class _Door:
    """Socket of one pod."""

    pod: str
    opened: socket.socket
    inode: int
    allowance: Allowance
    emptied_s: float
    """When it was last read to its end: what is read now came later."""
    heard_s: float
    paused_until_s: float | None = None
    closer: Closer = field(default_factory=Closer)


@dataclass(slots=True)
class PodSockets:
    """All sockets of the node. For one thread."""

    folder: Path
    senders: Senders
    deliver: Deliver
    clock: Clock
    bytes_per_s: float = BYTES_PER_S
    most_pods: int = MOST_PODS
    dropped: Counter[str] = field(default_factory=Counter)
    """Datagrams that were not delivered, by cause: `malformed`, `stranger`; and `full` for folders without a socket."""
    _doors: dict[str, _Door] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    @property
    def pods(self) -> frozenset[str]:
        """Pods with a socket."""
        return frozenset(self._doors)

    def look(self) -> None:
        """Opens sockets in new folders, closes those whose folder or file is gone."""
        found = self._folders()
        for pod, door in list(self._doors.items()):
            if pod not in found or _inode(self._path(pod)) != door.inode:
                self._close(door)
        for pod in sorted(found - self._doors.keys()):
            if len(self._doors) >= self.most_pods and not self._made_room():
                self.dropped["full"] += 1
                continue
            self._open(pod)

    def read(self, wait_s: float) -> None:
        """Delivers what arrives within this time; returns after the first datagrams."""
        now_s = self.clock()
        for door in self._doors.values():
            if door.paused_until_s is not None and door.paused_until_s <= now_s:
                door.paused_until_s = None
                self._selector.register(door.opened, selectors.EVENT_READ, door)
        ready = [key.data for key, _ in self._selector.select(wait_s)]
        for door in self._doors.values():
            if door not in ready and door.paused_until_s is None:
                door.emptied_s = now_s
        for door in ready:
            self._drain(door)

    def close(self) -> None:
        for door in list(self._doors.values()):
            self._close(door)
        self._selector.close()

    def _drain(self, door: _Door) -> None:
        for _ in range(AT_ONCE):
            now_s = self.clock()
            if (wait_s := STUCK_S if door.closer.is_stuck else door.allowance.wait_s(now_s)) > 0:
                # Its queue fills, and its own recorder drops and counts.
                self._selector.unregister(door.opened)
                door.paused_until_s = now_s + wait_s
                return
            try:
                datagram, ancillary, flags, _ = door.opened.recvmsg(_LONGEST, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                door.emptied_s = now_s
                return
            except OSError:
                self._close(door)
                return
            door.closer.close_all(passed_in(ancillary))
            door.allowance.spend(len(datagram), now_s)
            door.heard_s = now_s
            self._accept(door, datagram, _pid(ancillary), cut=bool(flags & socket.MSG_TRUNC))

    def _accept(self, door: _Door, datagram: bytes, pid: int, *, cut: bool) -> None:
        if cut or records.checked(datagram):
            self.dropped["malformed"] += 1
        elif self.senders.pod_of(pid, self.clock() - door.emptied_s) != door.pod:
            self.dropped["stranger"] += 1
        else:
            self.deliver(door.pod, pid, datagram)

    def _open(self, pod: str) -> None:
        path = self._path(pod)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            with suppress(FileNotFoundError):
                path.unlink()
            opened.bind(str(path))
            inode = _opened_to_all(path)
        except OSError:
            opened.close()  # the pod is just ending, or put something in the way; the next look tries again
            return
        now_s = self.clock()
        door = _Door(pod, opened, inode, Allowance(self.bytes_per_s, BURST_S, now_s), now_s, now_s)
        self._doors[pod] = door
        self._selector.register(opened, selectors.EVENT_READ, door)

    def _close(self, door: _Door) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(door.opened)
        with suppress(OSError):
            door.opened.shutdown(socket.SHUT_RDWR)
        door.closer.close(door.opened.close)
        door.closer.end()
        del self._doors[door.pod]

    def _made_room(self) -> bool:
        """Closes the socket that was silent longest, unless it was heard within a minute."""
        quiet = min(self._doors.values(), key=lambda door: door.heard_s)
        if self.clock() - quiet.heard_s < 60:
            return False
        self._close(quiet)
        return True

    def _folders(self) -> set[str]:
        try:
            with os.scandir(self.folder) as entries:
                return {
                    each.name for each in entries if _UID.fullmatch(each.name) and each.is_dir(follow_symlinks=False)
                }
        except OSError:
            return set()

    def _path(self, pod: str) -> Path:
        return self.folder / pod / SOCKET


def _pid(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(content) >= _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack_from(content)[0])
    return 0


def _opened_to_all(path: Path) -> int:
    """Lets every user write to a socket, returns its inode: ranks need not be root; the mount decides who comes.

    By a descriptor, since the pod may have put a link in its place meanwhile. Raises OSError.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISSOCK(found.st_mode):
            raise OSError(f"{path} is no socket")
        Path(f"/proc/self/fd/{descriptor}").chmod(0o666)
        return found.st_ino
    finally:
        os.close(descriptor)


def _inode(path: Path) -> int:
    """Inode of the socket file itself; -1 where there is none."""
    try:
        return path.lstat().st_ino
    except OSError:
        return -1
