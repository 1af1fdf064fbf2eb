"""What a kubelet asks the process: /healthz (is it alive?) and /readyz (has it seen the cluster?)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from cluster.errors import ConfigError, Mistake

Probe = Callable[[], str | None]
"""None when all is well, else what is not."""


@contextmanager
def probes_endpoint(host: str, port: int, probes: dict[str, Probe]) -> Iterator[int]:
    """Answer these paths while the block runs; yields the port (a free one when `port` is 0).

    Raises ConfigError when the port cannot be had.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            probe = probes.get(self.path.partition("?")[0])
            wrong = "there is no such path" if probe is None else probe()
            body = (wrong or "ok").encode() + b"\n"
            self.send_response(404 if probe is None else 503 if wrong else 200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A line for every probe would bury everything else."""

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
