"""Fake API server on loopback that answers every request as a test defines, and a connection to it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from controller.kube.api_server import IGNORING, RequestListener
from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def kubeconfig(folder: Path, server: str, **user: object) -> str:
    """Path of a kubeconfig for this server and user."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(file)


@asynccontextmanager
async def talking_to(
    answer: Answer,
    folder: Path,
    *,
    user: dict[str, object] | None = None,
    clock: Callable[[], float] = time.monotonic,
    listener: RequestListener = IGNORING,
    **access: Any,
) -> AsyncIterator[Connection]:
    """A connection to a server that answers every request with `answer`."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    where = kubeconfig(folder, f"http://127.0.0.1:{port}", **(user or {"token": "secret"}))
    try:
        async with await connect(ApiAccess(kubeconfig=where, **access), clock, listener) as connection:
            yield connection
    finally:
        await runner.cleanup()
