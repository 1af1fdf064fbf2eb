"""The client of Prometheus against a small server of the test's own, for what a real one rarely does."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.loops.autoscaler.prometheus import PrometheusClient, SourceError
from controller.settings import PrometheusSettings
from tests.clock import HandClock

EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _asked(respond: Respond, **access: Any) -> list[web.Request]:
    """Requests of one query; `respond` answers them."""
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        await request.read()
        return await respond(request)

    async def scenario() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.05)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        client = PrometheusClient(
            PrometheusSettings.model_construct(url=f"http://127.0.0.1:{port}", **access), HandClock()
        )
        try:
            await client.now("up", "team-a", 1000.0, 60.0)
        finally:
            await client.close()
            await runner.cleanup()

    asyncio.run(scenario())
    return seen


async def _empty(request: web.Request) -> web.StreamResponse:
    return web.Response(body=EMPTY)


def _refused(respond: Respond, **access: Any) -> str:
    with pytest.raises(SourceError) as caught:
        _asked(respond, **access)
    return caught.value.code


def test_a_query_names_its_instant_and_how_old_a_value_may_be() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        form = await request.post()
        assert form["query"] == "up"
        assert form["time"] == "1000.000"
        assert form["lookback_delta"] == "60000ms"
        return web.Response(body=EMPTY)

    assert _asked(respond)[0].path == "/api/v1/query"


def test_the_token_is_sent_and_the_namespace_where_a_proxy_enforces_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n", encoding="utf-8")

    request = _asked(_empty, token_file=str(token), namespace_parameter="namespace")[0]

    assert request.headers["Authorization"] == "Bearer secret"
    assert request.query == {"namespace": "team-a"}
    assert request.headers["Accept-Encoding"] == "identity"


def test_a_redirect_is_not_followed() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/query"
        raise web.HTTPTemporaryRedirect("/elsewhere")

    assert _refused(respond) == "PrometheusUnreachable"


def test_a_large_answer_is_not_read_to_its_end() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b" " * 100_000)

    assert _refused(respond, most_bytes=50_000) == "AnswerTooLarge"


def test_an_answer_that_does_not_come_is_given_up() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    assert _refused(respond, timeout_s=0.05) == "PrometheusUnreachable"


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_an_error_status_is_an_unreachable_server(status: int) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=EMPTY)

    assert _refused(respond) == "PrometheusUnreachable"


def test_a_server_that_is_gone_is_unreachable() -> None:
    async def scenario() -> None:
        client = PrometheusClient(PrometheusSettings(url="http://127.0.0.1:1"), HandClock())
        try:
            await client.now("up", "team-a", 1000.0, 60.0)
        finally:
            await client.close()

    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1"):
        asyncio.run(scenario())


def test_a_token_file_that_is_gone_is_an_error_of_the_source(tmp_path: Path) -> None:
    assert _refused(_empty, token_file=str(tmp_path / "none")) == "PrometheusUnreachable"
