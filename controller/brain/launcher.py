"""How a controller comes to a brain process: a child of its own, or a server beside the head of a Ray cluster."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from controller.brain.on_ray.ray_start import RayStart, environment
from controller.brain.wire import prove

CONNECT_S = 3.0
FAREWELL_S = 5.0
"""For a child to end after its stream was closed; then it is killed with all that it started."""


class Peer(Protocol):
    """A brain process as one end of a stream."""

    def open(self) -> socket.socket:
        """A stream to a process that expects to be told how to begin. Raises OSError."""
        ...

    def close(self, *, kindly: bool) -> None:
        """Let the process go; not kindly: kill it, for it does not listen any more."""
        ...


@dataclass(slots=True)
class ChildBrain:
    """A child process in a session of its own, with a folder of its own that goes with it."""

    start: RayStart = field(default_factory=lambda: RayStart(folder=""))
    process: "subprocess.Popen[bytes] | None" = None
    command: tuple[str, ...] = (sys.executable, "-m", "controller.brain.on_ray.process")
    given: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: str = ""
    """Where the child that runs keeps Ray's files."""

    def open(self) -> socket.socket:
        self.close(kindly=False)
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = self._born(theirs)
            except OSError:
                mine.close()
                raise
        return mine

    def adopt(self, stream: socket.socket) -> Callable[[], None]:
        """Give a stream to a new child; what comes back ends it. The stream stays the caller's to close."""
        self.process = self._born(stream)
        return lambda: self.close(kindly=False)

    def _born(self, stream: socket.socket) -> "subprocess.Popen[bytes]":
        # The path of Ray's sockets in it must stay under 107 characters, so it lies directly in the temporary folder.
        self.folder = tempfile.mkdtemp(prefix="tng")
        start = replace(self.start, folder=self.folder)
        words = ["--socket", str(stream.fileno()), "--parent", str(os.getpid())]
        words += ["--start", msgspec.json.encode(start).decode()]
        return subprocess.Popen(  # noqa: S603 - our own module
            [*self.command, *words],
            pass_fds=[stream.fileno()],
            env=environment(start, self.given),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # Ray writes there what nobody asked for; tracebacks go to ours
            start_new_session=True,
        )

    def close(self, *, kindly: bool) -> None:
        if self.process is not None:
            if kindly:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(FAREWELL_S)
            # Also when it has ended: what it started is in its session, and nothing of it may stay behind.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""


@dataclass(slots=True)
class RemoteBrain:
    """A brain server (controller/brain/server.py); it starts a brain for each controller that connects."""

    address: str
    """`host:port`."""
    secret: Callable[[], bytes]
    """Read anew for each connection, so that a Secret may be rotated."""
    stream: socket.socket | None = None

    def open(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        stream = socket.create_connection((host.strip("[]"), int(port)), CONNECT_S)
        try:
            prove(stream, self.secret(), as_brain=False)
        except (OSError, EOFError) as error:
            stream.close()
            raise ConnectionError(f"the brain at {self.address}: {error}") from error
        keep_alive(stream)
        self.stream = stream
        return stream

    def close(self, *, kindly: bool) -> None:  # noqa: ARG002 - the end of the stream ends the brain either way
        if self.stream is not None:
            with suppress(OSError):
                self.stream.shutdown(socket.SHUT_RDWR)
            self.stream.close()
            self.stream = None


def keep_alive(stream: socket.socket) -> None:
    """Let the end of a peer's machine show as the end of the stream, within 20 s."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def secret_from(path: Path) -> bytes:
    """The token of a file, without the line's end. Raises ConnectionError when there is none."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConnectionError(f"the brain's token cannot be read: {error}") from error
    if len(secret) < 16:
        raise ConnectionError(f"the brain's token in {path} has {len(secret)} bytes; 16 are the least")
    return secret
