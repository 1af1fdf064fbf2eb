"""Metrics endpoint: answers `GET /metrics` on its own port, in its own thread."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server

from cluster.errors import ConfigError, Mistake
from controller.metrics.registry import Meter


@contextmanager
def metrics_endpoint(meter: Meter, host: str, port: int) -> Iterator[int]:
    """Serve the meter while the block runs; yields the port (a free one when `port` is 0).

    It has its own thread, so that a scrape succeeds even during a long cycle. Raises ConfigError when the port cannot
    be opened.
    """
    try:
        server, thread = start_http_server(port, host, registry=meter.registry)
    except OSError as error:
        remedy = "free the port or set another one"
        raise ConfigError(Mistake(f"metrics address {host}:{port}", f"cannot be opened: {error}", remedy)) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
