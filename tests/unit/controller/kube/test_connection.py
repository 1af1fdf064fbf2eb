"""Requests to an API server: reads, writes, watches and their errors, against a fake server on loopback."""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import aclosing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from aiohttp import web

from cluster.errors import ActionError, ConfigError, ObservationError
from controller.kube.api_server import RequestListener
from controller.kube.connection import connect, lines
from controller.kube.credentials import ApiAccess, proxy_to
from controller.kube.request import APPLY_PATCH, ApiRequest, KubeReadError, KubeWriteError, resource_of
from tests.builders.certificates import Authority
from tests.clock import HandClock
from tests.unit.controller.kube.fake_api_server import kubeconfig, talking_to


def status(code: int, reason: str, message: str, **details: object) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response({**body, "details": details}, status=code)


def test_a_read_sends_the_token_and_gives_the_bytes(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response([request.method, request.path_qs, request.headers["Authorization"]])

    async def test() -> bytes:
        async with talking_to(answer, tmp_path) as connection:
            return await connection.read("/api/v1/pods", {"limit": "5", "fieldSelector": "a!=b"})

    assert json.loads(asyncio.run(test())) == ["GET", "/api/v1/pods?limit=5&fieldSelector=a!%3Db", "Bearer secret"]


def test_a_write_sends_its_body_as_the_type_that_it_is(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response([request.method, request.headers["Content-Type"], await request.json()])

    async def test() -> bytes:
        async with talking_to(answer, tmp_path) as connection:
            return await connection.write("PATCH", "/x", {"a": 1}, {"force": "true"}, APPLY_PATCH)

    assert json.loads(asyncio.run(test())) == ["PATCH", "application/apply-patch+yaml", {"a": 1}]


def test_who_acts_as_somebody_says_so_with_every_request_and_each_group_by_itself(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        asked = ("Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Authorization")
        return web.json_response({name: request.headers.getall(name, []) for name in asked})

    async def test(**access: Any) -> Any:
        async with talking_to(answer, tmp_path, **access) as connection:
            return json.loads(await connection.read("/x"))

    told = asyncio.run(test(impersonate="jo", impersonate_groups=("dev", "ops"), impersonate_uid="7"))

    assert told == {
        "Impersonate-User": ["jo"],
        "Impersonate-Group": ["dev", "ops"],
        "Impersonate-Uid": ["7"],
        "Authorization": ["Bearer secret"],
    }
    assert asyncio.run(test())["Impersonate-User"] == []


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (lambda: status(409, "Conflict", "the object has been modified"), (409, "Conflict", None)),
        (lambda: status(429, "TooManyRequests", "later", retryAfterSeconds=7), (429, "TooManyRequests", 7.0)),
        (lambda: web.Response(status=503, text="upstream is away"), (503, "Unknown", None)),
        (lambda: web.Response(status=429, headers={"Retry-After": "3"}), (429, "Unknown", 3.0)),
        (lambda: web.Response(status=429, headers={"Retry-After": "3²"}), (429, "Unknown", None)),
        (lambda: web.Response(status=404, text="404 page not found\n"), (404, "NotFound", None)),
    ],
    ids=["a status", "with a wait", "of a proxy", "with a header", "with a garbled header", "of a path not served"],
)
def test_what_the_server_refuses_is_an_error_of_ours_with_its_words(
    tmp_path: Path, response: Callable[[], web.Response], said: tuple[int, str, float | None]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return response()

    async def test() -> None:
        async with talking_to(answer, tmp_path) as connection:
            with pytest.raises(KubeReadError, match="reading /api/v1/pods") as read:
                await connection.read("/api/v1/pods")
            with pytest.raises(KubeWriteError, match="patching /api/v1/pods/p") as written:
                await connection.write("PATCH", "/api/v1/pods/p", {})
            for caught in (read, written):
                refusal = caught.value.refusal
                assert (refusal.status, refusal.reason, refusal.retry_after_s) == said

    asyncio.run(test())


def test_no_answer_is_an_error_of_ours_and_its_cause_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        where = kubeconfig(tmp_path, "http://127.0.0.1:1", token="t")  # noqa: S106  # nobody listens there
        async with await connect(ApiAccess(kubeconfig=where), time.monotonic) as connection:
            with pytest.raises(ObservationError) as read:
                await connection.read("/api/v1/pods")
            with pytest.raises(ActionError) as written:
                await connection.write("POST", "/api/v1/pods", {})
            for caught in (read, written):
                assert isinstance(caught.value.__cause__, OSError)

    asyncio.run(test())


def test_an_answer_that_takes_too_long_is_no_answer(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def test() -> None:
        async with talking_to(answer, tmp_path, request_timeout_s=0.05) as connection:
            with pytest.raises(KubeReadError) as caught:
                await connection.read("/api/v1/pods")
            assert (caught.value.refusal.status, caught.value.refusal.reason) == (0, "NoAnswer")

    asyncio.run(test())


def test_a_watch_gives_line_by_line_and_ends_when_the_server_ends_it(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["watch"] == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"a"', b":1}\n{", b'"b":2}\n'):
            await response.write(piece)
        return response

    async def test() -> list[bytes]:
        async with (
            talking_to(answer, tmp_path) as connection,
            aclosing(connection.watch("/api/v1/pods", {}, idle_s=30.0)) as found,
        ):
            return [line async for line in found]

    assert asyncio.run(test()) == [b'{"a":1}', b'{"b":2}']


def test_a_watch_over_which_nothing_comes_is_broken_off(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}\n")
        await asyncio.Event().wait()
        return response

    async def test() -> None:
        async with (
            talking_to(answer, tmp_path) as connection,
            aclosing(connection.watch("/api/v1/pods", {}, idle_s=0.05)) as found,
        ):
            assert await anext(found) == b"{}"
            with pytest.raises(KubeReadError, match="watching /api/v1/pods: no answer"):
                await anext(found)

    asyncio.run(test())


def test_a_watch_that_is_left_ends_its_line_at_once_though_the_server_is_busy(tmp_path: Path) -> None:
    """A server that says its last word over TLS late, as a busy one does, must not keep the line open."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = Authority(tmp_path / "pki").vouches_for("localhost")
    tls.load_cert_chain(server.certificate, server.key)
    ended = Future[bytes]()

    def serve(listening: socket.socket) -> None:
        plain, _ = listening.accept()
        under = socket.fromfd(plain.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        line = tls.wrap_socket(plain, server_side=True)
        line.recv(65_536)
        line.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
        under.settimeout(10.0)
        try:
            while under.recv(65_536):  # without answering a word of it
                pass
            ended.set_result(b"")
        except ConnectionError:
            ended.set_result(b"")
        except TimeoutError as error:
            ended.set_exception(error)
        finally:
            under.close()
            line.close()

    async def talk(port: int) -> None:
        where = Path(kubeconfig(tmp_path, f"https://localhost:{port}", token="secret"))  # noqa: S106
        config = yaml.safe_load(where.read_text(encoding="utf-8"))
        config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        where.write_text(yaml.safe_dump(config), encoding="utf-8")
        async with await connect(ApiAccess(kubeconfig=str(where)), time.monotonic) as connection:
            async with aclosing(connection.watch("/api/v1/pods", {}, idle_s=5.0)) as events:
                assert await anext(events) == b"{}"
            await asyncio.wait_for(asyncio.wrap_future(ended), 5.0)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = Thread(target=serve, args=(listening,), daemon=True)
        serving.start()
        asyncio.run(talk(listening.getsockname()[1]))
        serving.join(5.0)


def test_a_watch_that_is_refused_says_why(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return status(410, "Expired", "too old resource version")

    async def test() -> None:
        async with talking_to(answer, tmp_path) as connection:
            with pytest.raises(KubeReadError, match="too old") as caught:
                await anext(connection.watch("/api/v1/pods", {}, idle_s=30.0))
            assert caught.value.refusal.status == 410

    asyncio.run(test())


def test_a_token_file_is_read_again_a_minute_later(tmp_path: Path) -> None:
    """Tokens of a pod's volume are replaced while the process runs."""
    token, clock = tmp_path / "token", HandClock()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.headers["Authorization"])

    async def test() -> list[bytes]:
        token.write_text("first", encoding="utf-8")
        user: dict[str, object] = {"tokenFile": str(token)}
        async with talking_to(answer, tmp_path, user=user, clock=clock) as connection:
            said = [await connection.read("/x")]
            token.write_text("second", encoding="utf-8")
            for clock.now_s in (59.0, 60.0):
                said.append(await connection.read("/x"))
            return said

    assert asyncio.run(test()) == [b"Bearer first", b"Bearer first", b"Bearer second"]


def test_every_request_is_counted_by_verb_resource_and_status(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({}) if request.method == "GET" else status(409, "Conflict", "no")

    counted: list[ApiRequest] = []

    class Counting(RequestListener):
        def requested(self, request: ApiRequest) -> None:
            counted.append(request)

    async def test() -> None:
        async with talking_to(answer, tmp_path, listener=Counting()) as connection:
            await connection.read("/api/v1/pods")
            await connection.read("/api/v1/nodes/n")
            with pytest.raises(KubeWriteError):
                await connection.write("POST", "/api/v1/namespaces/ns/pods/p/binding", {})

    asyncio.run(test())

    assert [(r.verb, r.resource, r.status) for r in counted] == [
        ("list", "pods", 200),
        ("get", "nodes", 200),
        ("create", "pods/binding", 409),
    ]


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/pods", "pods"),
        ("/api/v1/namespaces/ns/pods/p", "pods"),
        ("/api/v1/namespaces/ns/pods/p/binding", "pods/binding"),
        ("/api/v1/namespaces/ns", "namespaces"),
        ("/api/v1/nodes/n/status", "nodes/status"),
        ("/apis/tonnage.dev/v1alpha1/gputypes", "gputypes"),
        ("/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", "leases"),
        ("/readyz", "readyz"),
    ],
)
def test_a_path_names_its_resource(path: str, resource: str) -> None:
    assert resource_of(path) == resource


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_whole_however_the_stream_was_cut(size: int) -> None:
    stream = b"one\ntwo\n\nthree\nunfin"

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    async def test() -> list[bytes]:
        return [line async for line in lines(chunks())]

    assert asyncio.run(test()) == [b"one", b"two", b"", b"three"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "current-context: x", "apiVersion: v1\ncontexts: []\nclusters: []\nusers: []"]
)
def test_a_kubeconfig_that_cannot_be_used_is_a_mistake_in_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"kubeconfig: cannot be used: .*kubectl config view"):
        asyncio.run(connect(ApiAccess(kubeconfig=str(file)), time.monotonic))


def test_a_context_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    where = kubeconfig(tmp_path, "http://127.0.0.1:1")

    with pytest.raises(ConfigError, match="name nowhere"):
        asyncio.run(connect(ApiAccess(kubeconfig=where, context="nowhere"), time.monotonic))


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        ("https://api.example.com:6443", "http://proxy.example.com:3128"),
        ("https://10.0.0.1:6443", None),
        ("https://api.internal", None),
        ("http://api.example.com", None),
    ],
)
def test_the_proxy_that_the_environment_names_is_taken_but_where_it_says_not_to(
    server: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", "10.0.0.1,.internal")

    assert proxy_to(server) == proxy


def test_a_server_that_is_not_there_is_named_without_the_names_of_a_library(tmp_path: Path) -> None:
    async def read() -> str:
        access = ApiAccess(kubeconfig=str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
        async with await connect(access, time.monotonic) as connection:
            with pytest.raises(KubeReadError) as caught:
                await connection.read("/version")
        return caught.value.refusal.words

    assert asyncio.run(read()) == "no answer from 127.0.0.1:1: Connection refused"
