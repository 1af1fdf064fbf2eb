"""HTTP endpoint of the agent: its metrics and its liveness, served by separate threads."""

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
        """Logs nothing: scrapes are frequent and unremarkable."""


def serve(host: str, port: int, registry: CollectorRegistry, is_alive: Callable[[], bool]) -> WSGIServer:
    """Server that answers /metrics and /healthz until it is shut down. Raises OSError when the address is not
    available.
    """
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/healthz":
            scraped: Iterable[bytes] = metrics(environ, start)
            return scraped
        alive = is_alive()
        start("200 OK" if alive else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok\n" if alive else b"the devices have not been read for long\n"]

    server = make_server(host, port, answer, _Server, handler_class=_Quiet)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
