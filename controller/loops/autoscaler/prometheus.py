"""Answers of Prometheus' query API, checked: a value that is not finite is missing, never zero."""

import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE
from controller.fair_shares import FairTurns
from controller.settings import PrometheusSettings

REFUSALS = (400, 422)
"""HTTP status codes of refused queries, whose answers say why."""


class SourceError(Exception):
    """A source could not be read."""

    def __init__(self, code: str, words: str) -> None:
        """code: CamelCase, as in a condition's reason."""
        super().__init__(words)
        self.code = code


@dataclass(frozen=True, slots=True)
class Series:
    """Series of an answer: its labels, and its finite values as (instant, value), oldest first."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class _Result(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the API's name
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


_ANSWER = msgspec.json.Decoder(_Answer)
_RESULTS = msgspec.json.Decoder(tuple[_Result, ...])
_SCALAR = msgspec.json.Decoder(tuple[float, str])


def series_in(body: bytes) -> tuple[Series, ...]:
    """Series of an answer, of an instant query or of one over a range. Raises SourceError.

    A warning is an error: an answer in which a store is missing would look like less load.
    """
    try:
        answer = _ANSWER.decode(body)
        if answer.status != "success" or answer.data is None:
            raise SourceError("QueryRefused", f"Prometheus refused the query: {_short(answer.error or answer.status)}")
        if answer.warnings:
            raise SourceError("PartialAnswer", f"Prometheus warned: {_short(answer.warnings[0])}")
        data = answer.data
        if data.resultType == "scalar":
            return (Series({}, _finite([_SCALAR.decode(data.result)])),)
        if data.resultType not in ("vector", "matrix"):
            raise SourceError("AnswerMalformed", f"the result is a {_short(data.resultType)}, not numbers")
        results = _RESULTS.decode(data.result)
        return tuple(Series(each.metric, _finite([each.value] if each.value else each.values)) for each in results)
    except UNREADABLE as error:
        raise SourceError("AnswerMalformed", f"this is no answer of Prometheus: {_short(str(error))}") from error


def _finite(values: Any) -> tuple[tuple[float, float], ...]:
    points = []
    for at_s, text in values:
        try:
            value = float(text)
        except ValueError as error:
            raise SourceError("AnswerMalformed", f"{_short(text)!r} is no number") from error
        if math.isfinite(value):
            points.append((float(at_s), value))
    return tuple(points)


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


MOST_POINTS = 10_000
"""Most points of one series in an answer. Source: Prometheus refuses more than 11,000."""
TOKEN_FOR_S = 60.0
"""Time after which a token is read again from its file; the kubelet replaces one minutes before it expires."""


class PrometheusClient:
    """Queries to one server. One instance per event loop; close it when done."""

    def __init__(self, access: PrometheusSettings, clock: Callable[[], float]) -> None:
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
        body = bytearray()
        async with self._turns.turn(namespace):
            try:
                # Uncompressed: the limit on the answer's size also bounds what it would expand to.
                headers = {"Accept-Encoding": "identity"}
                if access.token_file:
                    if self._clock() - self._token_at_s >= TOKEN_FOR_S:
                        self._token = Path(access.token_file).read_text(encoding="utf-8").strip()
                        self._token_at_s = self._clock()
                    headers["Authorization"] = f"Bearer {self._token}"
                async with self._session.post(
                    f"{access.url.rstrip('/')}/api/v1/{path}",
                    data=sent,
                    params=parameters,
                    headers=headers,
                    # A redirect would carry the token, and the tenant's query, to another server.
                    allow_redirects=False,
                ) as answer:
                    async for chunk in answer.content.iter_chunked(65_536):
                        body += chunk
                        if len(body) > access.most_bytes:
                            answer.close()
                            words = f"the answer has more than {access.most_bytes} bytes"
                            raise SourceError("AnswerTooLarge", words)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                words = f"{type(error).__name__} {error}".strip()
                raise SourceError("PrometheusUnreachable", f"asking {access.url}: {words}") from error
        if answer.status not in (200, *REFUSALS):
            raise SourceError("PrometheusUnreachable", f"asking {access.url}: status {answer.status}")
        return bytes(body)


def _duration(length_s: float) -> str:
    return f"{round(length_s * 1000)}ms"


class PrometheusServers:
    """Clients by URL. They live in one event loop; close them there."""

    def __init__(self, access: PrometheusSettings, clock: Clock) -> None:
        """access: of the operator's own server. clock: monotonic, seconds."""
        self._access, self._clock = access, clock
        self._clients: dict[str, PrometheusClient] = {}

    def of(self, url: str) -> PrometheusClient:
        """Client of a server; only the operator's own one is shown the token. Raises SourceError."""
        if url not in self._clients:
            access = self._access
            if url != access.url:
                access = access.model_copy(update={"url": url, "token_file": "", "ca_file": ""})
            try:
                self._clients[url] = PrometheusClient(access, self._clock)
            except OSError as error:  # ssl.SSLError is one
                raise SourceError("PrometheusUnreachable", f"{access.ca_file}: {error}") from error
        return self._clients[url]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
