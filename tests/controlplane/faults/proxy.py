"""A proxy in front of a real API server that delays, refuses, loses, holds and expires what an operator asks of it."""

import asyncio
import base64
import json
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, TypeVar

import aiohttp
import yaml
from aiohttp import web

T = TypeVar("T")

PLACING = re.compile(r"POST /api/v1/namespaces/[^/]+/pods/[^/]+/binding$|PATCH /api/v1/namespaces/[^/]+/pods/[^/]+$")
REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError"}
EXPIRED = {
    "type": "ERROR",
    "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: injected"},
}
PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")


@dataclass
class Faults:
    """What goes wrong; changed while it runs. Nothing does by default."""

    refused_share: float = 0.0
    """Of all requests but watches: answered 429, 500 or 409 by chance."""
    lost_share: float = 0.0
    """Of all writes: carried out, and then answered 500, or not at all."""
    delay_s: float = 0.0
    """Delay of every write that places a pod, so that faults can strike in the middle of a plan."""
    on_placing: Callable[[int], None] = lambda _: None
    """Called before the n-th placing write is passed on, n from 1."""


@dataclass
class Proxy:
    """Listens on loopback without TLS; the token that comes in is passed on."""

    kubeconfig: Path
    seed: int
    faults: Faults = field(default_factory=Faults)
    counted: Counter[str] = field(default_factory=Counter)
    """What was done to requests, by kind."""
    answered: Counter[int] = field(default_factory=Counter)
    """Answers of the real server to placing writes that were held, by status."""
    placing: int = 0

    def __post_init__(self) -> None:
        self._config = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        cluster = self._config["clusters"][0]["cluster"]
        self._target = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._trust = ssl.create_default_context(cadata=authority)
        self._chance = Random(self.seed)  # noqa: S311 - faults, not secrets
        self._passing = asyncio.Event()
        self._watches: set[asyncio.Task[Any]] = set()
        self._expiring: set[asyncio.Event] = set()
        self._held: set[asyncio.Task[Any]] = set()

    # What a scenario does, in the proxy's loop (`ProxyThread.call`).

    def hold(self) -> None:
        """Placing writes wait here, also when their sender has given up."""
        self._passing.clear()

    async def release(self) -> None:
        """They go on to the server; returns when it has answered all."""
        held = set(self._held)
        self._passing.set()
        await asyncio.gather(*held, return_exceptions=True)

    def cut(self) -> None:
        """Every watch breaks without a word."""
        for task in tuple(self._watches):
            task.cancel()
        self.counted["watches cut"] += len(self._watches)

    def expire(self) -> None:
        """Ends every watch with 410 Gone."""
        for each in tuple(self._expiring):
            each.set()
        self.counted["watches expired (410)"] += len(self._expiring)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Its port."""
        self._passing.set()
        unlimited = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        async with aiohttp.ClientSession(connector=unlimited, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            assert site._server is not None
            try:
                yield site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
            finally:
                self._passing.set()
                self.cut()
                connections = list(runner.server.connections) if runner.server is not None else []
                await runner.cleanup()
                # A client that is frozen or dead never reads what waits for it, and its connection would stay open.
                for connection in connections:
                    if (transport := connection.transport) is not None:
                        transport.abort()
                await asyncio.sleep(0)

    def kubeconfig_for(self, port: int, token: str, folder: Path) -> Path:
        cluster = {"server": f"http://127.0.0.1:{port}"}
        config = {
            **self._config,
            "clusters": [{"name": "tonnage", "cluster": cluster}],
            "users": [{"name": self._config["users"][0]["name"], "user": {"token": token}}],
        }
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return file

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        body = await request.read()
        is_placing = bool(PLACING.match(f"{request.method} {request.path}"))
        if is_placing:
            self.placing += 1
            self.faults.on_placing(self.placing)
        if self._chance.random() < self.faults.refused_share:
            return self._refusal(self._chance.choice(tuple(REASONS)))
        # A task of its own: what is on its way goes on when its sender has given up or was killed.
        sending = asyncio.create_task(self._sent(request, body, is_placing=is_placing))
        self._held.add(sending)
        sending.add_done_callback(self._held.discard)
        try:
            status, headers, answer = await asyncio.shield(sending)
        except (aiohttp.ClientError, OSError):
            self._abort(request)
            return web.Response(status=502)
        if request.method != "GET" and self._chance.random() < self.faults.lost_share:
            self.counted["answers lost"] += 1
            if self._chance.random() < 0.5:
                return self._refusal(500, counted=False)
            self._abort(request)
        return web.Response(status=status, body=answer, headers=headers)

    async def _sent(self, request: web.Request, body: bytes, *, is_placing: bool) -> tuple[int, dict[str, str], bytes]:
        was_held = is_placing and not self._passing.is_set()
        if is_placing:
            await asyncio.sleep(self.faults.delay_s)
            await self._passing.wait()
        async with self._session.request(
            request.method, self._target + request.path_qs, data=body or None, headers=_headers(request)
        ) as far:
            answer = await far.read()
            if was_held:
                self.answered[far.status] += 1
            kept = {name: far.headers[name] for name in ("Content-Type", "Retry-After") if name in far.headers}
            return far.status, kept, answer

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        task, expiring = asyncio.current_task(), asyncio.Event()
        assert task is not None
        near = web.StreamResponse()
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with self._session.get(
                self._target + request.path_qs, headers=_headers(request), timeout=timeout
            ) as far:
                near.set_status(far.status)
                near.content_type = "application/json"
                await near.prepare(request)
                self._watches.add(task)
                self._expiring.add(expiring)
                await self._copied(far, near, expiring)
        except (aiohttp.ClientError, OSError, asyncio.CancelledError):
            self._abort(request)
        finally:
            self._watches.discard(task)
            self._expiring.discard(expiring)
        return near

    async def _copied(self, far: aiohttp.ClientResponse, near: web.StreamResponse, expiring: asyncio.Event) -> None:
        told = asyncio.ensure_future(expiring.wait())
        reading = asyncio.ensure_future(far.content.readline())
        try:
            while True:
                await asyncio.wait((reading, told), return_when=asyncio.FIRST_COMPLETED)
                if told.done():
                    await near.write(json.dumps(EXPIRED).encode() + b"\n")
                    return
                if not (line := reading.result()):
                    return
                await near.write(line)
                reading = asyncio.ensure_future(far.content.readline())
        finally:
            told.cancel()
            reading.cancel()
            await asyncio.gather(told, reading, return_exceptions=True)

    def _refusal(self, status: int, *, counted: bool = True) -> web.Response:
        if counted:
            self.counted[f"refused {status}"] += 1
        body = {"kind": "Status", "code": status, "reason": REASONS[status], "message": "injected"}
        return web.json_response(body, status=status, headers={"Retry-After": "1"} if status == 429 else {})

    def _abort(self, request: web.Request) -> None:
        if request.transport is not None:
            request.transport.abort()


def _headers(request: web.Request) -> dict[str, str]:
    kept = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    return {**kept, "Accept-Encoding": "identity"}  # what comes back is passed on without a look at it


class ProxyThread:
    """A proxy in a thread of its own, so that a scenario may wait while it works."""

    def __init__(self, proxy: Proxy, token: str, folder: Path) -> None:
        self.proxy = proxy
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._listening = proxy.listening()
        port = self.run(self._listening.__aenter__())
        self.kubeconfig = proxy.kubeconfig_for(port, token, folder)

    def run(self, work: Coroutine[Any, Any, T], within_s: float = 60.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within_s)

    def call(self, deed: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(deed)

    def close(self) -> None:
        with suppress(Exception):
            self.run(self._ended(), 15.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _ended(self) -> None:
        await self._listening.__aexit__(None, None, None)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.3)  # connections close over some turns of the loop
