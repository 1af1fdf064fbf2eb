"""HTTP endpoint of the agent: its metrics, its liveness and its readiness, served by separate threads."""

from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from cluster.clock import Clock
from nodeagent.agent import Agent

LATELY_S = 60.0
"""Time without a reading of the devices, or without an accepted lease, after which a probe fails: a driver may take
15 s for a call."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Logs nothing: scrapes are frequent and unremarkable."""


def serve(
    host: str, port: int, registry: CollectorRegistry, probes: Mapping[str, Callable[[], str | None]]
) -> WSGIServer:
    """Server that answers /metrics and probes until it is shut down. Raises OSError when the address is not available.

    probes: by path, each returns what is wrong, or None when all is well.
    """
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        probe = probes.get(environ.get("PATH_INFO", ""))
        if probe is None:
            scraped: Iterable[bytes] = metrics(environ, start)
            return scraped
        wrong = probe()
        start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{wrong or 'ok'}\n".encode()]

    server = make_server(host, port, answer, _Server, handler_class=_Quiet)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def probes(agent: Agent, clock: Clock) -> Mapping[str, Callable[[], str | None]]:
    """Liveness: the devices are read. Readiness: leases are accepted, so that an update with a wrong key or address
    stops at its first nodes.
    """

    def is_lately(at_s: float) -> bool:
        return clock() - at_s < LATELY_S

    def unleased() -> str:
        refused = ", ".join(f"{count} {code}" for code, count in sorted(agent.counts.refused.items()))
        return f"no lease was accepted for a minute; refused since the start: {refused or 'none'}"

    return {
        "/healthz": lambda: None if is_lately(agent.looked_at_s) else "the devices have not been read for a minute",
        "/readyz": lambda: None if is_lately(agent.leased_at_s) else unleased(),
    }
