"""Prometheus servers of the operator's settings, one client for each that a policy asks."""

from dataclasses import replace

from cluster.clock import Clock
from controller.loops.autoscaler.sources.prometheus import PrometheusAccess, PrometheusClient
from controller.loops.autoscaler.sources.prometheus_answer import SourceError


class PrometheusServers:
    """Clients by URL. They live in one event loop; close them there."""

    def __init__(self, access: PrometheusAccess, clock: Clock) -> None:
        """access: of the operator's own server. clock: monotonic, seconds."""
        self._access, self._clock = access, clock
        self._clients: dict[str, PrometheusClient] = {}

    def of(self, url: str) -> PrometheusClient:
        """Client of a server; only the operator's own one is shown the token. Raises SourceError."""
        if url not in self._clients:
            own = url == self._access.url
            access = self._access if own else replace(self._access, url=url, token_file="", ca_file="")
            try:
                self._clients[url] = PrometheusClient(access, self._clock)
            except OSError as error:  # ssl.SSLError is one
                raise SourceError("PrometheusUnreachable", f"{access.ca_file}: {error}") from error
        return self._clients[url]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
