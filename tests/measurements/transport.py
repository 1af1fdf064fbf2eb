"""CPU of reading a cluster through our connection and through kubernetes.aio, under the same cache.

`python -m tests.measurements.transport` lists 20,000 pods, watches 5,000 events, and sends 1,000 writes to a local
server, each transport in a process of its own. `--in FOLDER` measures the connection of another checkout.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

PODS, EVENTS, WRITES = 20_000, 5_000, 1_000
ROUNDS = 3


def pod(number: int, version: int) -> dict[str, Any]:
    """Pod of about the size that an API server sends, with its managed fields."""
    resources = {"requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    managed = {f"f:field{n}": {"f:inner": {}, "f:other": {}} for n in range(24)}
    env = [{"name": f"VARIABLE_{n}", "value": "value" * 4} for n in range(12)]
    return {
        "metadata": {
            "name": f"pod-{number:05}",
            "namespace": "team",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(version),
            "labels": {"app": "train", "tonnage.dev/gang": f"gang-{number % 500}"},
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": managed}],
        },
        "spec": {
            "containers": [{"name": "c", "image": "registry/image:1", "env": env, "resources": resources}],
            "nodeName": f"node-{number % 1000}",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }


async def serve() -> None:
    """Answers lists, watches and writes of pods on a free port, which it prints, until it is killed."""
    from aiohttp import web

    items = [pod(number, number + 1) for number in range(PODS)]
    listed = json.dumps({"metadata": {"resourceVersion": str(PODS)}, "items": items}).encode()
    events = b"".join(
        json.dumps({"type": "MODIFIED", "object": pod(number, PODS + number + 1)}).encode() + b"\n"
        for number in range(EVENTS)
    )

    async def pods(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=listed, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(events), 16_384):
            await response.write(events[start : start + 16_384])
        await response.write_eof()
        return response

    async def bind(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"kind": "Status", "status": "Success"})

    server = web.Application(client_max_size=2**24)
    server.router.add_get("/api/v1/pods", pods)
    server.router.add_post("/api/v1/namespaces/team/pods/{name}/binding", bind)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201
    await asyncio.Event().wait()


class LibraryTransport:
    """The part of our connection that is measured, by the HTTP client of kubernetes.aio."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig

    async def __aenter__(self) -> "LibraryTransport":
        from kubernetes.aio import config
        from kubernetes.aio.client import ApiClient, Configuration

        found = Configuration()
        await config.load_kube_config(self._kubeconfig, client_configuration=found, persist_config=False)
        self._client = ApiClient(found)
        self._host, self._token = found.host, found.api_key.get("BearerToken", "")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _send(self, method: str, path: str, query: Mapping[str, str], body: object = None) -> Any:
        from urllib.parse import urlencode

        headers = {"Accept": "application/json", "Content-Type": "application/json", "Authorization": self._token}
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        answer = await self._client.rest_client.request(method, url, headers=headers, body=body)
        return answer.response

    async def read(self, path: str, query: Mapping[str, str]) -> bytes:
        body: bytes = await (await self._send("GET", path, query)).read()
        return body

    async def write(self, method: str, path: str, body: object) -> bytes:
        answer: bytes = await (await self._send(method, path, {}, body)).read()
        return answer

    async def watch(self, path: str, query: Mapping[str, str], *, idle_s: float) -> AsyncGenerator[bytes, None]:
        del idle_s
        answer = await self._send("GET", path, {**query, "watch": "true"})
        rest = b""
        async for chunk in answer.content.iter_any():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line


async def measure(which: str, kubeconfig: str) -> dict[str, float]:
    """CPU seconds of each part, with the import of what it needs, and the memory of the process, MB."""
    from controller.kube.cache import Cache
    from controller.kube_world.observer import PODS as RESOURCE

    before_s, before_mb = time.process_time(), _memory_mb()
    if which == "ours":
        from controller.kube.connection import connect
        from controller.kube.credentials import ApiAccess

        made: Any = await connect(ApiAccess(kubeconfig=kubeconfig), time.monotonic)
    else:
        made = LibraryTransport(kubeconfig)
    async with made as transport:
        found = {"start": time.process_time() - before_s, "start MB": _memory_mb() - before_mb}
        cache = Cache(RESOURCE)
        before_s = time.process_time()
        cache.take_page(await transport.read(cache.path, cache.list_query()), 0.0, is_first=True)
        found["list"] = time.process_time() - before_s
        before_s = time.process_time()
        async with aclosing(transport.watch(cache.path, cache.watch_query(60.0), idle_s=60.0)) as lines:
            async for line in lines:
                cache.take_line(line, 0.0)
        found["watch"] = time.process_time() - before_s
        assert (len(cache), cache.events) == (PODS, EVENTS)
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "node-1"}}
        before_s = time.process_time()
        for number in range(WRITES):
            await transport.write("POST", f"/api/v1/namespaces/team/pods/pod-{number}/binding", body)
        found["writes"] = time.process_time() - before_s
    return found


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in", dest="folder", default=".", help="checkout whose connection is measured")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--measure", nargs=2, metavar=("WHICH", "KUBECONFIG"))
    given = parser.parse_args()
    if given.serve:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve())
        return
    if given.measure:
        print(json.dumps(asyncio.run(measure(*given.measure))))  # noqa: T201
        return
    me = [sys.executable, __file__]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*me, "--serve"], stdout=subprocess.PIPE, text=True) as server,  # noqa: S603
    ):
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            path = Path(folder, "kubeconfig")
            entry = {"server": f"http://127.0.0.1:{port}"}
            kubeconfig = {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": entry}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
            path.write_text(json.dumps(kubeconfig), encoding="utf-8")
            for which in ("ours", "kubernetes.aio"):
                rounds = [
                    json.loads(
                        subprocess.run(  # noqa: S603
                            [*me, "--measure", which, str(path)],
                            check=True,
                            capture_output=True,
                            text=True,
                            env={"PYTHONPATH": str(Path(given.folder).resolve())},
                        ).stdout
                    )
                    for _ in range(ROUNDS)
                ]
                least = {part: min(each[part] for each in rounds) for part in rounds[0]}
                words = ", ".join(f"{part} {value:.2f}" for part, value in least.items())
                print(f"{which}: {words} (least of {ROUNDS}, CPU seconds)")  # noqa: T201
        finally:
            server.kill()


if __name__ == "__main__":
    main()
