"""What is asked of the agent over HTTP: its metrics, and whether it is alive. In threads of its own."""

from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """A scrape is nothing to write home about."""


def serve(host: str, port: int, registry: CollectorRegistry, is_alive: Callable[[], bool]) -> WSGIServer:
    """Answers /metrics and /healthz until it is shut down. Raises OSError when the address cannot be had."""
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/healthz":
            scraped: Iterable[bytes] = metrics(environ, start)
            return scraped
        alive = is_alive()
        start("200 OK" if alive else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok\n" if alive else b"the devices were not looked at for long\n"]

    server = make_server(host, port, answer, _Server, handler_class=_Quiet)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
