"""Sockets of pods, their clients and messages: one Unix socket per pod, in a folder mounted into that pod alone.

A pod may own its folder and plant links or folders in it. Nothing is followed and no mode is changed by name: at worst
that pod has no socket. Nothing that a client writes is believed: it names no path, no pid, no priority and no call.
Which process asks, and for which sandbox, the kernel says. A pid may be reused as soon as its process is reaped; a
pidfd never is. A message is one JSON object a packet, at most 4 KiB.
"""

import math
import os
import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cluster.errors import UNREADABLE
from isolation.orders import CallVerdict
from isolation.state import Reason
from nodeagent.process_files import visible_group_in

SOCKET = "agent.sock"
BACKLOG = 32
"""Connections that wait to be accepted; more of them wait in connect(2), which costs their pod alone."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def listening_socket(folder: Path, uid: str) -> socket.socket:
    """Listening socket of a pod, in `<folder>/<uid>/agent.sock`. Raises OSError where the pod blocks its own folder.

    Packets keep their borders (SOCK_SEQPACKET), so that no client can leave half a message behind. Every user of the
    pod may connect.
    """
    parent = os.open(folder, FOLDER_FLAGS)
    try:
        with suppress(FileExistsError):
            os.mkdir(uid, 0o755, dir_fd=parent)
        own = os.open(uid, FOLDER_FLAGS, dir_fd=parent)
    finally:
        os.close(parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    before = os.umask(0o111)
    try:
        with suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=own)
        listener.bind(f"/proc/self/fd/{own}/{SOCKET}")  # bind(2) follows no link at the end of a path
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
        os.close(own)
    return listener


def remove_socket(folder: Path, uid: str) -> None:
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


SO_PEERPIDFD = 77
"""Linux 6.5; the same number on every architecture but hppa and sparc."""
_CREDENTIALS = struct.Struct("iII")
"""struct ucred: pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class ConnectedProcess:
    """Process that connected."""

    pid: int
    """As this process's pid namespace has it."""
    pidfd: int

    def is_alive(self) -> bool:
        """Whether the process has not ended, so that its pid is its own still."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        os.close(self.pidfd)


def peer_of(connection: socket.socket) -> ConnectedProcess | None:
    """The process that called connect(2); None where it has ended, or lies in another pid namespace.

    Before Linux 6.5 the pidfd is opened by the pid, which may be another process's by then: its cgroup, which is read
    after this, is what decides.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid = _CREDENTIALS.unpack(raw)[0]
    if pid <= 0:
        return None
    pidfd = -1
    with suppress(OSError):
        pidfd = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    if pidfd < 0:
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
    return ConnectedProcess(pid, pidfd) if pidfd >= 0 else None


def group_of(peer: ConnectedProcess, proc: Path = Path("/proc")) -> str | None:
    """Group of the peer, below the root of the cgroup tree; None where it has ended or lies elsewhere."""
    text = proc_text(peer.pid, "cgroup", proc)
    return visible_group_in(text) if peer.is_alive() else None


def pid_of(pidfd: int) -> int:
    """Pid of a pidfd that a client passed; 0 where it is none, or its process was reaped."""
    text = proc_text(os.getpid(), f"fdinfo/{pidfd}")
    found = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:")), 0)
    return max(0, found)


def proc_text(pid: int, file: str, proc: Path = Path("/proc")) -> str:
    """Text of a file of a process; empty where it has ended."""
    with suppress(OSError):
        return (proc / str(pid) / file).read_text(encoding="utf-8", errors="replace")
    return ""


def parent_of(pid: int, proc: Path = Path("/proc")) -> int:
    """Parent of a process; 0 where it has ended."""
    status = proc_text(pid, "status", proc)
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), 0)


LONGEST_BYTES = 4096
Word = Annotated[str, Meta(max_length=256)]


class CallRequest(msgspec.Struct, tag="ask", forbid_unknown_fields=True):
    """The connected process wants to become a tool call."""

    command: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()
    """First words of its command, of which only the class is kept."""
    mem: str | int | float | None = None
    """Most memory that it will hold."""
    wait_s: float | None = None
    """Time after which it is refused; 0: at once."""


class Resume(msgspec.Struct, tag="resume", forbid_unknown_fields=True):
    """The connected process had a call with a node agent that is gone; a pidfd of the call's process comes with it."""


class Exited(msgspec.Struct, tag="exited", forbid_unknown_fields=True):
    """The call's main process ended; its client asks for the verdict."""

    code: Annotated[int, Meta(ge=-128, le=255)]
    """As Python's subprocess has it: negative for a signal."""


class End(msgspec.Struct, tag="end", forbid_unknown_fields=True):
    """The client wants all of its own call to be killed."""


Message = CallRequest | Resume | Exited | End
_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class BadMessageError(Exception):
    """A packet is none of these messages."""


def message_from(packet: bytes) -> Message:
    """The message in a packet. Raises BadMessageError."""
    if len(packet) > LONGEST_BYTES:
        raise BadMessageError(f"packets have at most {LONGEST_BYTES} bytes")
    try:
        return _DECODER.decode(packet)
    except UNREADABLE as error:
        raise BadMessageError(str(error)[:200]) from error


def bounded_wait_s(wait_s: float | None, longest_s: float) -> float:
    """Time in the queue that a client asked for, within the node's bound; no number means the bound."""
    if wait_s is None or math.isnan(wait_s):
        return longest_s
    return min(max(0.0, wait_s), longest_s)


def state_packet(state: str, reason: Reason, **figures: Any) -> bytes:
    """One state of a call: queued, admitted, frozen, thawed, killed."""
    return msgspec.json.encode({"state": state, "reason": reason, **figures})


def verdict_packet(verdict: CallVerdict, left: int = 0) -> bytes:
    """Last word on a call. left: processes that it left behind, which its client may still end."""
    return msgspec.json.encode({"state": "ended", "verdict": verdict, "left": left})
