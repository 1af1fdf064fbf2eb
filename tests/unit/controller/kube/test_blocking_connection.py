"""Requests of commands: the same words, headers and errors as the operator's client, without an event loop."""

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from controller.kube.blocking_connection import BlockingConnection, connect_blocking, run_to_end
from controller.kube.connection import LoopThread, connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import APPLY_PATCH, KubeReadError, KubeWriteError
from tests.builders.certificates import Authority
from tests.unit.controller.kube.fake_api_server import kubeconfig

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that gives every request this answer; returns its URL."""
    loop = LoopThread("fake API server")

    async def start(answer: Answer, tls: ssl.SSLContext | None) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.01)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        return runner, f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"

    with ExitStack() as stack:
        stack.callback(loop.close)

        def started(answer: Answer, tls: ssl.SSLContext | None = None) -> str:
            runner, url = loop.run(start(answer, tls))
            stack.callback(lambda: loop.run(runner.cleanup()))
            return url

        yield started


def to(server: str, folder: Path, within_s: float | None = None, **access: Any) -> BlockingConnection:
    where = kubeconfig(folder, server, token="secret")  # noqa: S106
    connection = connect_blocking(ApiAccess(kubeconfig=where, **access), within_s=within_s)
    assert connection is not None
    return connection


async def echo(request: web.Request) -> web.Response:
    names = ("Authorization", "Impersonate-Group", "Content-Type", "Accept-Encoding")
    heads = {name: request.headers.getall(name, []) for name in names}
    return web.json_response([request.method, request.path, dict(request.query), await request.text(), heads])


def test_a_request_is_the_same_as_the_operators(serve: Serve, tmp_path: Path) -> None:
    access = {"impersonate": "jo", "impersonate_groups": ("dev", "ops")}
    server = f"{serve(echo)}/k8s/clusters/c"  # as behind a gateway
    query = {"limit": "5", "fieldSelector": "a!=b"}
    ours = to(server, tmp_path, **access)

    async def operators() -> list[bytes]:
        where = kubeconfig(tmp_path, server, token="secret")  # noqa: S106
        async with await connect(ApiAccess(kubeconfig=where, **access), time.monotonic) as connection:  # type: ignore[arg-type]
            return [
                await connection.read("/api/v1/pods", query),
                await connection.write("PATCH", "/x", {"a": "ä"}, {"force": "true"}, APPLY_PATCH),
            ]

    read, written = (json.loads(each) for each in asyncio.run(operators()))

    assert json.loads(run_to_end(ours.read("/api/v1/pods", query))) == read
    assert json.loads(run_to_end(ours.write("PATCH", "/x", {"a": "ä"}, {"force": "true"}, APPLY_PATCH))) == written
    assert read[4]["Impersonate-Group"] == ["dev", "ops"]
    ours.close()


def test_a_refusal_is_an_error_of_ours_with_the_servers_words(serve: Serve, tmp_path: Path) -> None:
    async def refuse(_: web.Request) -> web.Response:
        body = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed meanwhile"}
        return web.json_response(body, status=409, headers={"Retry-After": "3", "Warning": '299 - "old"'})

    connection = to(serve(refuse), tmp_path)

    with pytest.raises(KubeReadError, match="reading /api/v1/pods: changed meanwhile") as read:
        run_to_end(connection.read("/api/v1/pods"))
    with pytest.raises(KubeWriteError, match="patching /x"):
        run_to_end(connection.write("PATCH", "/x", {}))
    refusal = read.value.refusal
    assert (refusal.status, refusal.reason, refusal.retry_after_s) == (409, "Conflict", 3.0)
    connection.close()


def test_a_read_on_a_connection_that_the_server_ended_is_sent_again(serve: Serve, tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) == 2:
            assert request.transport is not None
            request.transport.close()
        return web.Response(text=request.path)

    connection = to(serve(answer), tmp_path)

    assert [run_to_end(connection.read(path)) for path in ("/a", "/b")] == [b"/a", b"/b"]
    assert asked == ["/a", "/b", "/b"]
    connection.close()


def test_a_write_is_never_sent_again(serve: Serve, tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.method == "POST":
            assert request.transport is not None
            request.transport.close()
        return web.Response()

    connection = to(serve(answer), tmp_path)
    run_to_end(connection.read("/a"))

    with pytest.raises(KubeWriteError, match="no answer"):
        run_to_end(connection.write("POST", "/b", {}))
    assert asked == ["/a", "/b"]
    connection.close()


def test_requests_together_end_when_their_time_is_up(serve: Serve, tmp_path: Path) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    connection = to(serve(never), tmp_path, within_s=0.05)

    for _ in range(2):
        with pytest.raises(KubeReadError, match="no answer within the time limit"):
            run_to_end(connection.read("/x"))
    connection.close()


def test_a_watch_gives_whole_lines_and_leaves_a_broken_one(serve: Serve, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["watch"] == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"a"', b":1}\n{", b'"b":2}\n{"c'):
            await response.write(piece)
        return response

    connection = to(serve(answer), tmp_path)

    async def lines() -> list[bytes]:
        async with aclosing(connection.watch("/api/v1/pods", {}, idle_s=30.0)) as found:
            return [line async for line in found]

    assert run_to_end(lines()) == [b'{"a":1}', b'{"b":2}']


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeReadError) as caught:
        run_to_end(to("http://127.0.0.1:1", tmp_path).read("/version"))

    assert caught.value.refusal.words == "no answer from 127.0.0.1:1: Connection refused"


@pytest.fixture
def pki(tmp_path: Path) -> tuple[Authority, ssl.SSLContext]:
    """Authority, and a server for `localhost` that wants a client certificate of it."""
    authority = Authority(tmp_path / "pki")
    own = authority.vouches_for("localhost")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    tls.load_cert_chain(own.certificate, own.key)
    tls.verify_mode = ssl.CERT_REQUIRED
    return authority, tls


def test_certificates_of_both_sides_and_the_servers_name_are_heeded(
    serve: Serve, tmp_path: Path, pki: tuple[Authority, ssl.SSLContext]
) -> None:
    authority, tls = pki
    client = authority.vouches_for("client")
    where = Path(kubeconfig(tmp_path, serve(echo, tls)))
    config = yaml.safe_load(where.read_text(encoding="utf-8"))
    relative = authority.certificate.relative_to(tmp_path)
    config["clusters"][0]["cluster"] |= {"certificate-authority": str(relative), "tls-server-name": "localhost"}
    config["users"][0]["user"] = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    where.write_text(yaml.safe_dump(config), encoding="utf-8")

    def read() -> list[Any]:
        connection = connect_blocking(ApiAccess(kubeconfig=str(where)))
        assert connection is not None
        try:
            return list(json.loads(run_to_end(connection.read("/x"))))
        finally:
            connection.close()

    assert read()[1] == "/x"
    config["clusters"][0]["cluster"]["certificate-authority"] = str(Authority(tmp_path / "other").certificate)
    where.write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(KubeReadError, match=r"no answer from 127\.0\.0\.1:\d+: TLS: .*certificate"):
        read()


def test_work_that_needs_an_event_loop_is_refused() -> None:
    async def work() -> None:
        await asyncio.sleep(1.0)

    with pytest.raises(RuntimeError):
        run_to_end(work())


def test_a_proxy_that_only_the_operators_client_speaks_is_left_to_it(tmp_path: Path) -> None:
    where = Path(kubeconfig(tmp_path, "https://10.0.0.1", token="t"))  # noqa: S106
    config = yaml.safe_load(where.read_text(encoding="utf-8"))
    for proxy, is_ours in (("http://proxy:3128", True), ("https://proxy:3128", False)):
        config["clusters"][0]["cluster"]["proxy-url"] = proxy
        where.write_text(yaml.safe_dump(config), encoding="utf-8")

        assert (connect_blocking(ApiAccess(kubeconfig=str(where))) is not None) is is_ours
