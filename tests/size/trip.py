"""The trip of one pod from its watch event to its Binding: which files and functions of ours the operator enters.

`python -m tests.size.trip` prints them. The operator runs whole, at its default settings in mode bind, against an API
server on loopback that lists four nodes and one GPU type. Once it rests, one plain pod with one GPU arrives (no
service, gang, claim or policy).
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Any

import click
import yaml
from aiohttp import web

from controller.process.main import operate
from controller.settings import OperatorSettings

ROOT = Path(__file__).parents[2]
BESIDE = ("lease.py", "leader_election.py")
"""Files of the Lease, which is renewed beside the trip whenever its time comes."""
PATIENCE_S = 60.0
TRIPS = 5
QUIET_S = 1.0
"""How long the operator must not write before it counts as resting."""
COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
"""Parts of the function around them, which later releases of Python do not enter either."""


@dataclass
class ApiServer:
    """An API server on loopback: it lists and watches what it was given and accepts every write."""

    objects: dict[str, list[dict[str, Any]]]
    """Objects by their collection's last path segment, such as `nodes`."""
    bound: Event = field(default_factory=Event)
    writes: int = 0
    watches: dict[str, list[asyncio.Queue[dict[str, Any]]]] = field(default_factory=dict)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    port: int = 0
    lease: dict[str, Any] = field(default_factory=dict)
    """The Lease, once somebody holds it."""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rstrip("/").rpartition("/")[2]
        if request.method != "GET":
            self.writes += 1
            if plural == "binding":
                self.bound.set()
            body = json.loads(await request.read() or b"{}")
            body.setdefault("metadata", {}).setdefault("resourceVersion", "1")
            if "/leases" in request.path:
                self.lease = body
            return web.json_response(body, status=201 if request.method == "POST" else 200)
        if plural == "tonnage" and self.lease:
            return web.json_response(self.lease)
        if plural == "tonnage":
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if request.query.get("watch") not in ("true", "1", "True"):
            items = self.objects.get(plural, [])
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        stream = web.StreamResponse()
        await stream.prepare(request)
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.watches.setdefault(plural, []).append(queue)
        while True:
            await stream.write(json.dumps(await queue.get()).encode() + b"\n")

    def send(self, plural: str, event: dict[str, Any]) -> None:
        for queue in self.watches.get(plural, []):
            self.loop.call_soon_threadsafe(queue.put_nowait, event)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serves from a thread of its own; the address."""
        ready = Event()

        async def serve() -> None:
            app = web.Application()
            app.router.add_route("*", "/{rest:.*}", self.respond)
            runner = web.AppRunner(app, shutdown_timeout=0.01)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            ready.set()
            try:
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()

        def run() -> None:
            asyncio.set_event_loop(self.loop)
            self.task = self.loop.create_task(serve())
            try:
                self.loop.run_until_complete(self.task)
            except asyncio.CancelledError:
                pass
            finally:
                self.loop.close()

        thread = Thread(target=run, name="api server")
        thread.start()
        ready.wait()
        yield f"http://127.0.0.1:{self.port}"
        self.loop.call_soon_threadsafe(self.task.cancel)
        thread.join()


@dataclass
class Trace:
    """Functions of ours that are entered while it is on, in all threads that start after `follow`."""

    is_on: bool = False
    entered: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often, by file and qualified name."""

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(str(ROOT)) and code.co_name not in COMPREHENSIONS
        if self.is_on and event == "call" and is_ours:
            file = code.co_filename.removeprefix(f"{ROOT}/")
            self.entered[file, f"{code.co_qualname}:{code.co_firstlineno}"] += 1

    @contextmanager
    def follow(self) -> Iterator[None]:
        before = sys.getprofile()
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)


def entered_by_one_pod() -> Counter[tuple[str, str]]:
    """How often each function of ours is entered from a pod's watch event to its Binding, by (file, qualified name).

    Several pods travel one after the other, and what not all of them enter is left out: it ran beside them.
    """
    server = ApiServer({"nodes": [_node(n) for n in range(4)], "gputypes": [_gpu_type()]})
    trace, stop = Trace(), Event()
    failures: list[str] = []
    trips: list[Counter[tuple[str, str]]] = []

    def travel() -> None:
        try:
            for number in range(TRIPS):
                _rest(server)
                trace.entered, trace.is_on = Counter(), True
                server.send("pods", {"type": "ADDED", "object": _pod(number)})
                if not server.bound.wait(PATIENCE_S):
                    failures.append(f"the pod was not bound within {PATIENCE_S:g} s")
                    return
                trace.is_on = False
                server.bound.clear()
                trips.append(trace.entered)
        finally:
            trace.is_on = False
            stop.set()

    with tempfile.TemporaryDirectory() as folder, server.served() as address:
        kubeconfig = Path(folder, "kubeconfig")
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(address)), encoding="utf-8")
        settings = OperatorSettings.model_validate(
            {
                "kubeconfig": str(kubeconfig),
                "pools": [{"placer": "bind"}],
                "fenced": False,
                "host": "127.0.0.1",
                "probe_port": 0,
                "metrics_port": 0,
            }
        )
        with trace.follow():
            traveller = Thread(target=travel)
            operate(settings, stop, lambda _: traveller.start())
            traveller.join()
    assert not failures, failures[0]
    always = set.intersection(*(set(trip) for trip in trips))
    ours = {
        place: trips[0][place]
        for place in always
        if not place[0].startswith(("tests/", ".venv/")) and Path(place[0]).name not in BESIDE
    }
    return Counter(ours)


def _rest(server: ApiServer) -> None:
    """Waits until the operator watches pods and has written nothing for a while."""
    seen = -1
    for _ in range(int(PATIENCE_S / QUIET_S)):
        Event().wait(QUIET_S)
        if server.watches.get("pods") and server.writes == seen:
            return
        seen = server.writes if server.watches.get("pods") else -1
    raise AssertionError(f"the operator did not come to rest within {PATIENCE_S:g} s")


def _kubeconfig(address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }


def _node(n: int) -> dict[str, Any]:
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "metadata": {
            "name": f"node-{n}",
            "uid": f"node-uid-{n}",
            "resourceVersion": "1",
            "labels": {"kubernetes.io/hostname": f"node-{n}", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        },
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _gpu_type() -> dict[str, Any]:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "GPUType",
        "metadata": {"name": "h100", "uid": "type-uid", "resourceVersion": "1", "generation": 1},
        "spec": {"memory": "80Gi", "pricePerHour": 4.0, "productLabels": ["NVIDIA-H100-80GB-HBM3"]},
    }


def _pod(number: int) -> dict[str, Any]:
    resources = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    return {
        "metadata": {
            "name": f"notebook-{number}",
            "namespace": "default",
            "uid": f"pod-uid-{number}",
            "resourceVersion": str(number + 2),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": "tonnage",
            "containers": [{"name": "main", "resources": {"requests": resources, "limits": resources}}],
        },
        "status": {"phase": "Pending"},
    }


def main() -> None:
    entered = entered_by_one_pod()
    by_file: dict[str, list[str]] = {}
    for file, name in entered:
        by_file.setdefault(file, []).append(name)
    for file, names in sorted(by_file.items()):
        click.echo(f"{file}: {len(names)}: {' '.join(sorted(names))}")
    click.echo(f"{len(by_file)} files, {len(entered)} functions")


if __name__ == "__main__":
    main()
