"""Observing a real cluster through failures of a real network and a real API server."""

import asyncio
import base64
import http.client
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from cluster.errors import ObservationError
from cluster.snapshot import PENDING
from controller.kube.api_server import RequestListener
from controller.kube.cache import WatchSurroundings, WatchTimes
from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import APPLY_PATCH, MERGE_PATCH, ApiRequest, KubeWriteError
from controller.kube_world.observer import Caches, Observer, empty_caches, follow
from controller.objects.manifests import read_manifests
from controller.snapshot.from_manifests import snapshot_from
from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane, up
from tests.builders.manifests import Object, gang, gpu_type, node, pod, profile, service
from tests.builders.snapshot_content import content
from tests.controlplane.processes import process_of
from tests.controlplane.servers import StartServer
from tests.controlplane.severed import Line
from tests.generated.crd_files import FOLDER

pytestmark = pytest.mark.controlplane

SETTINGS = ControlPlaneSettings()
WITHIN_S = 120.0
"""A busy machine is not a failure."""
PODS = "/api/v1/namespaces/default/pods"
OURS = "/apis/tonnage.dev/v1alpha1"


@dataclass
class Eyes:
    """An observer of a server, and what a test needs beside it."""

    line: Line
    api: Connection
    """Not through the line."""
    caches: Caches
    observer: Observer
    stirred: asyncio.Event
    requests: list[ApiRequest] = field(default_factory=list)
    ahead_s: float = 0.0

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Returns once the claim holds. Checks whenever a request was made or failed, and when an object came."""
        async with asyncio.timeout(WITHIN_S):
            while not is_so():
                self.stirred.clear()
                await self.stirred.wait()

    def seats(self) -> dict[str, str | None]:
        """Pod → its node."""
        seen = self.observer.observe()
        rows = zip(seen.pods.names, seen.pods.node.tolist(), strict=True)
        return {name: None if row == PENDING else seen.nodes.names[row] for name, row in rows}

    async def create(self, name: str) -> None:
        await self.api.write("POST", PODS, real(pod(name)))

    async def delete(self, name: str) -> None:
        await self.api.write("DELETE", f"{PODS}/{name}", query={"gracePeriodSeconds": "0"})


def real(obj: Object) -> Object:
    """A pod that the server accepts, and that only a test binds."""
    spec = {**obj["spec"], "schedulerName": "nobody"}
    spec.pop("nodeName", None)
    spec["containers"] = [{**container, "image": "example.com/none"} for container in spec["containers"]]
    return {**obj, "spec": spec}


@asynccontextmanager
async def eyes(server: ControlPlane, folder: Path, *, times: WatchTimes | None = None) -> AsyncIterator[Eyes]:
    """Opened on a server that has been listed whole."""
    line, stirred = Line(server.kubeconfig), asyncio.Event()

    async def pause(for_s: float) -> None:
        stirred.set()
        await asyncio.sleep(min(for_s, 0.2))

    requests: list[ApiRequest] = []

    class Counting(RequestListener):
        def requested(self, request: ApiRequest) -> None:
            requests.append(request)
            stirred.set()

    through = await line.start(folder)
    caches = empty_caches(stirred.set, groups=())
    async with (
        await connect(
            ApiAccess(kubeconfig=str(through), request_timeout_s=10.0), time.monotonic, Counting()
        ) as watching,
        await connect(ApiAccess(kubeconfig=str(server.kubeconfig)), time.monotonic) as api,
    ):
        made: Eyes
        observer = Observer(caches, lambda: time.time() + made.ahead_s, freezes_heap=False)
        made = Eyes(line, api, caches, observer, stirred, requests)
        around = WatchSurroundings(time.time, pause, Random(1))  # noqa: S311  # jitter
        following = asyncio.create_task(follow(caches.each, watching, around, times))
        try:
            async with asyncio.timeout(WITHIN_S):
                for cache in caches.each:
                    await cache.synced.wait()
            yield made
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await line.stop()


Test = Callable[[Eyes], Awaitable[None]]


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> ControlPlane:
    """A server of this module's own, with our kinds and a small fleet."""
    made = start_server(SETTINGS)
    asyncio.run(populate(made))
    return made


async def populate(server: ControlPlane) -> None:
    async with await connect(ApiAccess(kubeconfig=str(server.kubeconfig)), time.monotonic) as api:
        for file in sorted((Path(__file__).parents[2] / FOLDER).glob("*.yaml")):
            definition = yaml.safe_load(file.read_text(encoding="utf-8"))
            where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
            query = {"fieldManager": "tests", "force": "true"}
            await api.write("PATCH", where, definition, query, APPLY_PATCH)
        for plural, obj in (
            ("gputypes", gpu_type()),
            ("modelprofiles", profile()),
            ("namespaces/default/modelservices", service()),
            ("namespaces/default/gangs", gang()),
        ):
            await once_served(lambda plural=plural, obj=obj: api.write("POST", f"{OURS}/{plural}", obj))
        for name in ("n1", "n2"):
            made = node(name)
            await api.write("POST", "/api/v1/nodes", made)
            status = {"status": {**made["status"], "conditions": [{"type": "Ready", "status": "True"}]}}
            await api.write("PATCH", f"/api/v1/nodes/{name}/status", status, {}, MERGE_PATCH)


async def once_served(work: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
    """A kind is served a moment after its definition was taken."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await work()
            except KubeWriteError as error:
                if error.refusal.status != 404:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


def run(server: ControlPlane, folder: Path, test: Test, times: WatchTimes | None = None) -> None:
    async def whole() -> None:
        async with eyes(server, folder, times=times) as opened:
            await test(opened)

    asyncio.run(whole())


def test_what_is_seen_is_what_the_same_objects_mean_as_manifests(server: ControlPlane, tmp_path: Path) -> None:
    async def test(opened: Eyes) -> None:
        await opened.api.write("POST", PODS, real(pod("same", gpus=2, labels={"tonnage.dev/gang": "train"})))
        await opened.until(lambda: "default/same" in opened.seats())
        items = []
        for cache in opened.caches.each:
            listed = json.loads(await opened.api.read(cache.resource.path))
            kind = listed["kind"].removesuffix("List")
            items += [{"apiVersion": listed["apiVersion"], "kind": kind, **item} for item in listed["items"]]
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")

        seen = opened.observer.see()

        assert content(seen.snapshot) == content(snapshot_from(read_manifests([str(file)])).snapshot)
        assert seen.mistakes == ()
        assert [s.name for s in seen.snapshot.services] == ["default/chat"]
        await opened.delete("same")

    run(server, tmp_path, test)


def test_changes_arrive(server: ControlPlane, tmp_path: Path) -> None:
    async def test(opened: Eyes) -> None:
        await opened.create("comes")
        await opened.until(lambda: opened.seats().get("default/comes", "") is None)

        target = {"apiVersion": "v1", "kind": "Node", "name": "n2"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "comes"}, "target": target}
        await opened.api.write("POST", f"{PODS}/comes/binding", binding)
        await opened.until(lambda: opened.seats().get("default/comes") == "n2")

        await opened.delete("comes")
        await opened.until(lambda: "default/comes" not in opened.seats())
        assert opened.caches.pods.lists == 1

    run(server, tmp_path, test)


def test_after_a_cut_line_what_happened_meanwhile_is_seen_without_a_list(server: ControlPlane, tmp_path: Path) -> None:
    async def test(opened: Eyes) -> None:
        for name in ("cut-1", "cut-2", "cut-3"):
            opened.line.cut()
            await opened.create(name)
            await opened.until(lambda name=name: f"default/{name}" in opened.seats())
        assert opened.caches.pods.failures >= 1
        assert opened.caches.pods.lists == 1
        for name in ("cut-1", "cut-2", "cut-3"):
            await opened.delete(name)

    run(server, tmp_path, test)


def test_a_line_that_went_silent_is_given_up_for_another(server: ControlPlane, tmp_path: Path) -> None:
    async def test(opened: Eyes) -> None:
        opened.line.hold()
        await opened.create("unheard")
        await opened.until(lambda: opened.caches.pods.failures >= 1)
        opened.line.release()

        await opened.until(lambda: "default/unheard" in opened.seats())
        await opened.delete("unheard")

    run(server, tmp_path, test, WatchTimes(idle_s=2.0))


def test_a_server_that_is_not_heard_of_for_too_long_is_not_planned_on(server: ControlPlane, tmp_path: Path) -> None:
    async def test(opened: Eyes) -> None:
        opened.observer.observe()

        opened.ahead_s = 181.0

        with pytest.raises(ObservationError, match=r"nothing was heard of nodes for 18\d s"):
            opened.observer.observe()

    run(server, tmp_path, test)


def test_a_restarted_server_is_found_again(server: ControlPlane, tmp_path: Path, programs: Programs) -> None:
    async def test(opened: Eyes) -> None:
        await asyncio.to_thread(restart, server, programs)
        await opened.create("after-restart")
        await opened.until(lambda: "default/after-restart" in opened.seats())
        await opened.delete("after-restart")

    run(server, tmp_path, test)


def test_in_a_storm_of_lost_versions_nothing_is_missed(
    server: ControlPlane, tmp_path: Path, programs: Programs
) -> None:
    """etcd forgets the versions that the watches stand at, and a fresh server has none of them in memory either."""

    async def test(opened: Eyes) -> None:
        for number in range(2):
            opened.line.hold()
            opened.line.cut()
            await opened.create(f"storm-{number}")
            if number:
                await opened.delete(f"storm-{number - 1}")
            await asyncio.to_thread(compact, server)
            await asyncio.to_thread(restart, server, programs)
            opened.line.release()
            await opened.until(lambda number=number: list(opened.seats()) == [f"default/storm-{number}"])
        assert opened.caches.pods.lists > 1
        await opened.delete("storm-1")

    run(server, tmp_path, test)


def test_an_account_that_may_not_read_is_told_so(server: ControlPlane, tmp_path: Path) -> None:
    async def test() -> None:
        access = ApiAccess(kubeconfig=str(server.kubeconfig), impersonate="system:serviceaccount:default:nobody")
        stirred = asyncio.Event()

        async def pause(_: float) -> None:
            stirred.set()
            await asyncio.Event().wait()

        caches = empty_caches(groups=())
        async with await connect(access, time.monotonic) as nobody:
            around = WatchSurroundings(time.time, pause, Random(1))  # noqa: S311  # jitter
            following = asyncio.create_task(follow([caches.pods], nobody, around))
            async with asyncio.timeout(WITHIN_S):
                await stirred.wait()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        with pytest.raises(ObservationError, match=r"pods .*is forbidden"):
            Observer(caches, time.time).observe()

    asyncio.run(test())


def test_requests_are_counted_by_verb_and_resource(server: ControlPlane, tmp_path: Path) -> None:
    async def test(opened: Eyes) -> None:
        await opened.until(lambda: sum(r.verb == "watch" for r in opened.requests) == len(opened.caches.each))

        made = {(r.verb, r.resource, r.status) for r in opened.requests}
        assert {("list", "pods", 200), ("watch", "pods", 200), ("list", "gputypes", 200)} <= made

    run(server, tmp_path, test)


def restart(server: ControlPlane, programs: Programs) -> None:
    killed = process_of(server.folder, "kube-apiserver")
    os.kill(killed.pid, signal.SIGKILL)
    assert processes.ended_within(killed, 30)
    up(server.folder, SETTINGS, programs)


def compact(server: ControlPlane) -> None:
    """Let etcd forget all versions but the newest, as its own upkeep does every few minutes."""
    line = http.client.HTTPConnection("127.0.0.1", server.state.ports.etcd, timeout=30)
    newest = etcd(line, "/v3/kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
    etcd(line, "/v3/kv/compaction", {"revision": newest, "physical": True})
    line.close()


def etcd(line: http.client.HTTPConnection, path: str, body: Object) -> Any:
    line.request("POST", path, json.dumps(body))
    answer = line.getresponse()
    told = answer.read()
    assert answer.status == 200, told
    return json.loads(told)
