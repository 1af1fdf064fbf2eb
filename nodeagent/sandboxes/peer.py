"""Peer of a socket: which process connected, by the kernel's word, and in which cgroup it is. Touches the kernel.

Nothing that a client writes is believed. A pid may be reused as soon as its process is reaped; a pidfd never is.
"""

import os
import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodeagent.process_cgroups import visible_group_in

SO_PEERPIDFD = 77
"""Linux 6.5; the same number on every architecture but hppa and sparc."""
_CREDENTIALS = struct.Struct("iII")
"""struct ucred: pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class Peer:
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


def peer_of(connection: socket.socket) -> Peer | None:
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
    return Peer(pid, pidfd) if pidfd >= 0 else None


def group_of(peer: Peer, proc: Path = Path("/proc")) -> str | None:
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
