"""Client of a Prometheus server, or of any server with its query API: bounded in time, bytes and concurrency."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from controller.loops.autoscaler.sources.fair_turns import FairTurns
from controller.loops.autoscaler.sources.prometheus_answer import REFUSALS, Series, SourceError, series_in

MOST_POINTS = 10_000
"""Most points of one series in an answer. Source: Prometheus refuses more than 11,000."""
TOKEN_FOR_S = 60.0
"""Time after which a token is read again from its file; the kubelet replaces one minutes before it expires."""


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """Where a server is, and how it is asked."""

    url: str
    """`https://prometheus.monitoring:9090`, with a path prefix where there is one."""
    ca_file: str = ""
    """PEM file of the CA certificates that the server's one is checked with; empty: those of the system."""
    token_file: str = ""
    """File with a bearer token; empty: none."""
    namespace_parameter: str = ""
    """URL parameter with the policy's namespace, as prom-label-proxy enforces it; empty: none."""
    timeout_s: float = 10.0
    most_bytes: int = 8 * 2**20
    """Largest answer that is read."""
    concurrency: int = 8
    """Most queries at once."""


class PrometheusClient:
    """Queries to one server. One instance per event loop; close it when done."""

    def __init__(self, access: PrometheusAccess, clock: Callable[[], float]) -> None:
        """clock: monotonic, seconds. Raises OSError and ssl.SSLError for a CA file that cannot be used."""
        self._access, self._clock = access, clock
        self._turns = FairTurns(access.concurrency)
        context = ssl.create_default_context(cafile=access.ca_file or None)
        # No cookies, no .netrc and no proxy of the environment: nothing but the address of the settings is asked.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=access.concurrency, ssl=context),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=access.timeout_s),
        )
        self._token, self._token_at_s = "", -TOKEN_FOR_S

    async def close(self) -> None:
        await self._session.close()

    async def now(self, query: str, namespace: str, at_s: float, max_age_s: float) -> tuple[Series, ...]:
        """Results of a query at an instant, without values older than `max_age_s`. Raises SourceError."""
        # Prometheus otherwise repeats a gauge for five minutes after its server has gone away.
        form = {"query": query, "time": f"{at_s:.3f}", "lookback_delta": _duration(max_age_s)}
        return series_in(await self._answer("query", form, namespace))

    async def over(
        self, query: str, namespace: str, start_s: float, end_s: float, step_s: float, max_age_s: float
    ) -> tuple[Series, ...]:
        """Results of a query at each step of a time span, at most MOST_POINTS. Raises SourceError."""
        form = {
            "query": query,
            "start": f"{start_s:.3f}",
            "end": f"{end_s:.3f}",
            "step": _duration(step_s),
            "lookback_delta": _duration(max_age_s),
        }
        return series_in(await self._answer("query_range", form, namespace))

    async def _answer(self, path: str, form: Mapping[str, str], namespace: str) -> bytes:
        """Body of the answer to a query."""
        access = self._access
        parameters = {access.namespace_parameter: namespace} if access.namespace_parameter else {}
        sent = {**form, "timeout": _duration(access.timeout_s), "partial_response": "false"}
        async with self._turns.turn(namespace):
            try:
                async with self._session.post(
                    f"{access.url.rstrip('/')}/api/v1/{path}",
                    data=sent,
                    params=parameters,
                    headers=self._headers(),
                    # A redirect would carry the token, and the tenant's query, to another server.
                    allow_redirects=False,
                ) as answer:
                    return await self._body(answer)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                words = f"{type(error).__name__} {error}".strip()
                raise SourceError("PrometheusUnreachable", f"asking {access.url}: {words}") from error

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in answer.content.iter_chunked(65_536):
            body += chunk
            if len(body) > self._access.most_bytes:
                answer.close()
                raise SourceError("AnswerTooLarge", f"the answer has more than {self._access.most_bytes} bytes")
        if answer.status in (200, *REFUSALS):
            return bytes(body)
        raise SourceError("PrometheusUnreachable", f"asking {self._access.url}: status {answer.status}")

    def _headers(self) -> dict[str, str]:
        # Uncompressed: the limit on the answer's size also bounds what it would expand to.
        headers = {"Accept-Encoding": "identity"}
        if self._access.token_file:
            headers["Authorization"] = f"Bearer {self._current_token()}"
        return headers

    def _current_token(self) -> str:
        if self._clock() - self._token_at_s >= TOKEN_FOR_S:
            self._token = Path(self._access.token_file).read_text(encoding="utf-8").strip()
            self._token_at_s = self._clock()
        return self._token


def _duration(length_s: float) -> str:
    return f"{round(length_s * 1000)}ms"
