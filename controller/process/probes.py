"""Probe endpoint for the kubelet, /healthz (alive?) and /readyz (watches synced?), and for downloads."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import structlog

from cluster.errors import ConfigError, Mistake
from controller.cycle import Cycle
from controller.recording.bundle import Sink, about, files_of, shown, write_tar
from controller.recording.ring import Ring
from controller.settings import OperatorSettings

Probe = Callable[[], str | None]
"""Function that returns None when all is well, else the problem."""


@contextmanager
def probes_endpoint(host: str, port: int, probes: Mapping[str, Probe], recorder: "Recorder") -> Iterator[int]:
    """Answers these paths, and what was recorded, while the block runs; yields the port (a free one when it is 0).

    Raises ConfigError when the port cannot be opened.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == PATH and recorder.ring is not None:
                self.send_response(200)
                self.send_header("Content-Type", "application/x-tar")
                self.end_headers()
                with suppress(ConnectionError):  # the client has disconnected
                    recorder.send(self.wfile)
                return
            probe = probes.get(path)
            wrong = "there is no such path" if probe is None else probe()
            body = (wrong or "ok").encode() + b"\n"
            self.send_response(404 if probe is None else 503 if wrong else 200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing: a line for every probe would bury everything else."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise ConfigError(Mistake(f"probe address {host}:{port}", f"cannot be opened: {error}")) from error
    thread = Thread(target=server.serve_forever, name="probes", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


log = structlog.get_logger(__name__)

PATH = "/debug/bundle"
"""Path on the probe port under which a bundle of the recorded cycles is downloaded."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Recorder of an operator; without a ring where recording is off."""

    settings: OperatorSettings
    ring: Ring | None

    def put(self, cycle: Cycle) -> None:
        """Records a cycle. A failure to record is only logged: the cycle itself is complete."""
        if self.ring is None:
            return
        try:
            self.ring.put(cycle)
        except Exception:
            log.exception("a cycle was not recorded")

    def send(self, to: Sink) -> None:
        """Writes the files of a bundle as a tar stream."""
        if self.ring is None:
            return
        recording, at_s = self.ring.copy(), time.time()
        says = about(recording, shown(self.settings), self.settings.identity, at_s)
        write_tar(to, files_of(says, recording), at_s)


def recorder_of(settings: OperatorSettings) -> Recorder:
    """The recorder as the settings configure it."""
    asked = settings.record
    ring = Ring(asked.keep_s, asked.most_cycles, asked.most_bytes) if asked.enabled else None
    return Recorder(settings, ring)
