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
from nodeagent.socket_protection import MOST_PASSED, Closer, TokenBucket, passed_in
from tonnage import records

FOLDER = Path("/run/tonnage/pods")
SOCKET = "recorder.sock"
MOST_PODS = 256
"""Sockets at a time; more than twice the pods that a kubelet runs."""
BYTES_PER_S = 1 << 20
"""Of one pod: 16 ranks at 2,000 operations a second."""
BURST_S = 4.0
DATAGRAM_BYTES = 1024
"""A datagram costs at least as much, since reading a small one takes as long as reading this."""
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
class _PodSocket:
    """Socket of one pod."""

    pod: str
    opened: socket.socket
    inode: int
    bucket: TokenBucket
    """Bytes that may be read from it."""
    emptied_s: float
    """When it was last read to its end: what is read now came later."""
    read_s: float
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
    _sockets: dict[str, _PodSocket] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    @property
    def pods(self) -> frozenset[str]:
        """Pods with a socket."""
        return frozenset(self._sockets)

    def look(self) -> None:
        """Opens sockets in new folders, closes those whose folder or file is gone."""
        found: set[str] = set()
        with suppress(OSError), os.scandir(self.folder) as entries:
            found = {each.name for each in entries if _UID.fullmatch(each.name) and each.is_dir(follow_symlinks=False)}
        for pod, open_one in list(self._sockets.items()):
            inode = -1
            with suppress(OSError):
                inode = self._path(pod).lstat().st_ino
            if pod not in found or inode != open_one.inode:
                self._close(open_one)
        for pod in sorted(found - self._sockets.keys()):
            if len(self._sockets) >= self.most_pods:
                # The one that was silent longest makes room, unless something came within a minute.
                quiet = min(self._sockets.values(), key=lambda each: each.read_s)
                if self.clock() - quiet.read_s < 60:
                    self.dropped["full"] += 1
                    continue
                self._close(quiet)
            self._open(pod)

    def read(self, wait_s: float) -> None:
        """Delivers what arrives within this time; returns after the first datagrams."""
        now_s = self.clock()
        for each in self._sockets.values():
            if each.paused_until_s is not None and each.paused_until_s <= now_s:
                each.paused_until_s = None
                self._selector.register(each.opened, selectors.EVENT_READ, each)
        ready = [key.data for key, _ in self._selector.select(wait_s)]
        for each in self._sockets.values():
            if each not in ready and each.paused_until_s is None:
                each.emptied_s = now_s
        for each in ready:
            self._drain(each)

    def close(self) -> None:
        for each in list(self._sockets.values()):
            self._close(each)
        self._selector.close()

    def _drain(self, source: _PodSocket) -> None:
        for _ in range(AT_ONCE):
            now_s = self.clock()
            if (wait_s := STUCK_S if source.closer.is_stuck else source.bucket.wait_s(0, now_s)) > 0:
                # Its queue fills, and its own recorder drops and counts.
                self._selector.unregister(source.opened)
                source.paused_until_s = now_s + wait_s
                return
            try:
                datagram, ancillary, flags, _ = source.opened.recvmsg(_LONGEST, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                source.emptied_s = now_s
                return
            except OSError:
                self._close(source)
                return
            source.closer.close_all(passed_in(ancillary))
            source.bucket.take(max(len(datagram), DATAGRAM_BYTES), now_s)
            source.read_s = now_s
            pid = 0
            for level, kind, content in ancillary:
                is_sender = (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
                if is_sender and len(content) >= _CREDENTIALS.size:
                    pid = int(_CREDENTIALS.unpack_from(content)[0])
                    break
            if flags & socket.MSG_TRUNC or records.checked(datagram):
                self.dropped["malformed"] += 1
            elif self.senders.pod_of(pid, self.clock() - source.emptied_s) != source.pod:
                self.dropped["stranger"] += 1
            else:
                self.deliver(source.pod, pid, datagram)

    def _open(self, pod: str) -> None:
        path = self._path(pod)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            with suppress(FileNotFoundError):
                path.unlink()
            opened.bind(str(path))
            # Every user may write: ranks need not be root, and the mount decides who comes. By a descriptor, since the
            # pod may have put a link in its place meanwhile.
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISSOCK(status.st_mode):
                    raise OSError(f"{path} is no socket")
                Path(f"/proc/self/fd/{descriptor}").chmod(0o666)
            finally:
                os.close(descriptor)
        except OSError:
            opened.close()  # the pod is just ending, or put something in the way; the next look tries again
            return
        now_s = self.clock()
        bucket = TokenBucket(self.bytes_per_s, self.bytes_per_s * BURST_S, now_s)
        self._sockets[pod] = _PodSocket(pod, opened, status.st_ino, bucket, now_s, now_s)
        self._selector.register(opened, selectors.EVENT_READ, self._sockets[pod])

    def _close(self, closed: _PodSocket) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(closed.opened)
        with suppress(OSError):
            closed.opened.shutdown(socket.SHUT_RDWR)
        closed.closer.close(closed.opened.close)
        closed.closer.end()
        del self._sockets[closed.pod]

    def _path(self, pod: str) -> Path:
        return self.folder / pod / SOCKET
