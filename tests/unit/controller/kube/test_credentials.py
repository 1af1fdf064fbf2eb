"""Credentials that change while the process runs: a pod's service account, and plugins of a kubeconfig."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from cluster.errors import ConfigError
from controller.kube.connection import Connection, LoopThread, connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import KubeReadError
from simulator.controlplane.commands import AUTHORITY, SERVER
from simulator.controlplane.pki import write_pki
from tests.clock import HandClock
from tests.unit.controller.kube.fake_api_server import kubeconfig, talking_to

PLUGIN = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with (folder / "asked").open("a") as asked:
    asked.write("x")
told = json.loads((folder / "status").read_text())
if told is None:
    sys.exit("you have to log in")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": told}))
"""


async def says_who(request: web.Request) -> web.Response:
    return web.Response(text=request.headers["Authorization"])


class Plugin:
    """A plugin of a kubeconfig that says what a test tells it to say, and counts how often it was asked."""

    def __init__(self, folder: Path, status: object) -> None:
        self.folder = folder
        (folder / "plugin.py").write_text(PLUGIN, encoding="utf-8")
        self.says(status)

    def says(self, status: object) -> None:
        (self.folder / "status").write_text(json.dumps(status), encoding="utf-8")

    @property
    def asked(self) -> int:
        return len((self.folder / "asked").read_text())

    @property
    def user(self) -> dict[str, object]:
        command = {"command": sys.executable, "args": [str(self.folder / "plugin.py"), str(self.folder)]}
        return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", **command}}


def test_a_plugin_that_tells_no_expiry_is_asked_again_a_minute_later(tmp_path: Path) -> None:
    plugin, clock = Plugin(tmp_path, {"token": "first"}), HandClock()

    async def test() -> list[bytes]:
        async with talking_to(says_who, tmp_path, user=plugin.user, clock=clock) as connection:
            said = [await connection.read("/x")]
            plugin.says({"token": "second"})
            for clock.now_s in (59.0, 60.0):
                said.append(await connection.read("/x"))
            return said

    loop = LoopThread("kubernetes")  # as in the operator, where it is not the main thread that starts the plugin
    try:
        assert loop.run(test()) == [b"Bearer first", b"Bearer first", b"Bearer second"]
    finally:
        loop.close()
    assert plugin.asked == 2


def test_a_plugin_is_not_asked_before_its_credential_expires(tmp_path: Path) -> None:
    plugin, clock = Plugin(tmp_path, {"token": "first", "expirationTimestamp": "2100-01-01T00:00:00Z"}), HandClock()

    async def test() -> bytes:
        async with talking_to(says_who, tmp_path, user=plugin.user, clock=clock) as connection:
            clock.now_s = 3600.0
            return await connection.read("/x")

    assert asyncio.run(test()) == b"Bearer first"
    assert plugin.asked == 1


@pytest.mark.parametrize("status", [None, {}], ids=["it fails", "it says nothing"])
def test_a_plugin_without_a_credential_stops_the_start_instead_of_acting_as_nobody(
    tmp_path: Path, status: object
) -> None:
    where = kubeconfig(tmp_path, "http://127.0.0.1:1", **Plugin(tmp_path, status).user)

    async def test() -> None:
        async with await connect(ApiAccess(kubeconfig=where), lambda: 0.0):
            pass

    with pytest.raises(ConfigError, match=r"plugin gave no credential.*plugin\.py"):
        asyncio.run(test())


def test_a_plugin_that_fails_later_leaves_the_credential_that_it_gave(tmp_path: Path) -> None:
    plugin, clock = Plugin(tmp_path, {"token": "first"}), HandClock()

    async def test() -> bytes:
        async with talking_to(says_who, tmp_path, user=plugin.user, clock=clock) as connection:
            plugin.says(None)
            clock.now_s = 60.0
            return await connection.read("/x")

    assert asyncio.run(test()) == b"Bearer first"


@asynccontextmanager
async def in_a_pod(folder: Path, monkeypatch: pytest.MonkeyPatch, clock: object) -> AsyncIterator[Connection]:
    """As in a pod: an API server with a certificate of its own, and a folder as the kubelet mounts it."""
    write_pki(folder, datetime.now(UTC))
    (folder / f"{AUTHORITY}.crt").rename(folder / "ca.crt")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / f"{SERVER}.crt", folder / f"{SERVER}.key")
    app = web.Application()
    app.router.add_get("/{rest:.*}", says_who)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(runner.addresses[0][1]))
    try:
        async with await connect(ApiAccess(service_account=str(folder)), clock) as connection:  # type: ignore[arg-type]
            yield connection
    finally:
        await runner.cleanup()


def test_the_token_of_a_pod_is_read_again_a_minute_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, clock = tmp_path / "token", HandClock()
    token.write_text("first", encoding="utf-8")

    async def test() -> list[bytes]:
        async with in_a_pod(tmp_path, monkeypatch, clock) as connection:
            said = [await connection.read("/x")]
            token.write_text("second", encoding="utf-8")
            for clock.now_s in (59.0, 60.0):
                said.append(await connection.read("/x"))
            return said

    assert asyncio.run(test()) == [b"Bearer first", b"Bearer first", b"Bearer second"]


def test_a_token_that_is_empty_for_a_moment_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, clock = tmp_path / "token", HandClock()
    token.write_text("first", encoding="utf-8")

    async def test() -> bytes:
        async with in_a_pod(tmp_path, monkeypatch, clock) as connection:
            token.write_text("", encoding="utf-8")
            clock.now_s = 60.0
            with pytest.raises(KubeReadError):
                await connection.read("/x")
            token.write_text("second", encoding="utf-8")
            return await connection.read("/x")

    assert asyncio.run(test()) == b"Bearer second"


def test_a_pod_without_its_token_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with in_a_pod(tmp_path, monkeypatch, lambda: 0.0):
            pass

    with pytest.raises(ConfigError, match="token"):
        asyncio.run(test())
