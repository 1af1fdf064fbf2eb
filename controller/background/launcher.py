"""Launcher of the driver of background work: a child of the operator, or of a server beside the head of a Ray cluster.

The operator's pod has the right to write to the cluster, so it must not be a node of a Ray cluster: a caller of Ray may
run code on all of its nodes. It connects to the server instead, proves that it knows the token, and gets a child of the
server at the other end of its stream. Data that comes back is only read as results.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, Thread
from typing import Protocol

import msgspec
import structlog

from controller.background.on_ray import DriverStart, environment
from controller.background.wire import prove

CONNECT_S = 3.0
KEEPER = """
import os, shutil, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.buffer.read()
session, folder = int(sys.argv[1]), sys.argv[2]
for _ in range(1000):
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.exists(folder):
        break
    time.sleep(0.02)
"""
"""Program of the process that outlives the launcher, by whatever signal that ends, and then removes all that the driver
has: the processes in its OS session (Ray's workers have process groups of their own), and its folder with the
token."""


class DriverPeer(Protocol):
    """Driver process, seen as one end of a stream."""

    def open(self) -> socket.socket:
        """A stream to a process that expects `Begin` as its first message. Raises OSError."""
        ...

    def close(self) -> None:
        """Ends the process and all that it started."""
        ...


@dataclass(slots=True)
class ChildDriver:
    """Child process in an OS session of its own, with a folder of its own that is deleted with it."""

    start: DriverStart = field(default_factory=DriverStart)
    process: "subprocess.Popen[bytes] | None" = None
    command: tuple[str, ...] = (sys.executable, "-m", "controller.background.driver")
    given: Mapping[str, str] = field(default_factory=os.environ.copy)
    folder: str = ""
    """Folder of the running child, for Ray's files."""
    _keeper: "subprocess.Popen[bytes] | None" = None

    def open(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                self.adopt(theirs)
            except OSError:
                mine.close()
                raise
        return mine

    def adopt(self, stream: socket.socket) -> None:
        """Gives a stream to a new child, in place of the present one. The caller still has to close the stream."""
        self.close()
        # Paths of Ray's sockets in it must stay under 107 characters, so it is directly in the temporary folder.
        self.folder = tempfile.mkdtemp(prefix="tng")
        start = replace(self.start, folder=self.folder)
        options = ["--socket", str(stream.fileno()), "--start", msgspec.json.encode(start).decode()]
        self.process = subprocess.Popen(  # noqa: S603 - our own module
            [*self.command, *options],
            pass_fds=[stream.fileno()],
            env=environment(start, self.given),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # Ray's own output is not needed; tracebacks go to our stderr
            start_new_session=True,
        )
        self._keeper = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", "-c", KEEPER, str(self.process.pid), self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.communicate()  # its input ends, and it removes all
            self._keeper = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass(slots=True)
class RemoteDriver:
    """Connection to a server (`DriverServer`), which starts a driver for each operator."""

    address: str
    """`host:port`."""
    token_file: Path
    """Read for each connection again, so that a Secret may be rotated."""
    stream: socket.socket | None = None

    def open(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        stream = socket.create_connection((host.strip("[]"), int(port)), CONNECT_S)
        try:
            prove(stream, secret_from(self.token_file), as_driver=False)
        except (OSError, EOFError) as error:
            stream.close()
            raise ConnectionError(f"the driver at {self.address}: {error}") from error
        keep_alive(stream)
        self.stream = stream
        return stream

    def close(self) -> None:
        """Ends the stream, and by that the driver."""
        if self.stream is not None:
            with suppress(OSError):
                self.stream.shutdown(socket.SHUT_RDWR)
            self.stream.close()
            self.stream = None


def keep_alive(stream: socket.socket) -> None:
    """Configures TCP keepalive, so that the loss of the other machine ends the stream within 20 s."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def secret_from(path: Path) -> bytes:
    """The token in a file, without the line end. Raises ConnectionError when there is none."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConnectionError(f"the driver's token cannot be read: {error}") from error
    if len(secret) < 16:
        raise ConnectionError(f"the driver's token in {path} has {len(secret)} bytes; it needs at least 16")
    return secret


log = structlog.get_logger(__name__)

PROOF_S = 5.0
AT_A_TIME = 32
"""Most connections that may be proving their token at once; more are refused, so that no client can exhaust this
process."""


@dataclass(slots=True)
class DriverServer:
    """Server of one driver at a time: an operator that connects replaces the previous one.

    There is one leader. The previous one has died, or has lost its Lease and its connection without noticing yet.
    """

    token_file: Path
    driver: ChildDriver
    _proving: int = 0
    _lock: Lock = field(default_factory=Lock)
    _starting: Lock = field(default_factory=Lock)

    def serve(self, listener: socket.socket) -> None:
        """Serves until the listener is closed; then ends the running driver."""
        while True:
            try:
                stream, peer = listener.accept()
            except OSError:
                break
            with self._lock:
                is_full = self._proving >= AT_A_TIME
                self._proving += not is_full
            if is_full:
                stream.close()
                continue
            Thread(target=self._welcome, args=(stream, f"{peer[0]}:{peer[1]}"), daemon=True).start()
        with self._starting:
            self.driver.close()

    def _welcome(self, stream: socket.socket, peer: str) -> None:
        """Starts a driver for an operator that has proven its token."""
        with stream:
            try:
                stream.settimeout(PROOF_S)
                prove(stream, secret_from(self.token_file), as_driver=True)
                stream.settimeout(None)
                keep_alive(stream)
            except (OSError, EOFError) as error:
                log.warning("an operator was refused", peer=peer, why=str(error))
                return
            finally:
                with self._lock:
                    self._proving -= 1
            log.info("an operator connected", peer=peer)
            with self._starting:
                try:
                    self.driver.adopt(stream)
                except OSError as error:
                    log.error("no driver could be started", why=str(error))
