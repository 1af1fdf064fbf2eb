"""Nodes that the filters of a real kube-scheduler allow for a pod, asked through an HTTP extender that binds nothing.

An extender is sent the nodes that passed all filters. This one refuses them all, so each pod stays where it waits, and
kube-scheduler says in the pod's condition why no other node passed.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import yaml

from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import MERGE_PATCH
from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import API_SERVER, ETCD, HOST, SCHEDULER, SERVER, ControlPlaneSettings, Folder
from simulator.controlplane.server import ControlPlane, is_ready, up
from tests.controlplane.oracle.random_clusters import CLASSES, RUNTIMES, RandomCluster
from tests.controlplane.oracle.random_pods import NAMESPACES, PREEMPTING, Object, RandomPod
from tests.controlplane.oracle.random_volumes import Volumes
from tests.controlplane.schedulers import fresh_log, wait_until
from tests.controlplane.testbed import items, pods_path, put, several_at_once

LOOK_EVERY_S = 0.02
ANSWER_WITHIN_S = 300.0
"""Time for an answer on a busy machine; some milliseconds are usual."""
NOMINATED_WITHIN_S = 3.0
STORAGE = "/apis/storage.k8s.io/v1"
KINDS = {
    "Node": ("v1", "/api/v1/nodes"),
    "Namespace": ("v1", "/api/v1/namespaces"),
    "PersistentVolume": ("v1", "/api/v1/persistentvolumes"),
    "PersistentVolumeClaim": ("v1", "/api/v1/persistentvolumeclaims"),
    "Pod": ("v1", "/api/v1/pods"),
    "StorageClass": ("storage.k8s.io/v1", f"{STORAGE}/storageclasses"),
    "CSINode": ("storage.k8s.io/v1", f"{STORAGE}/csinodes"),
    "PriorityClass": ("scheduling.k8s.io/v1", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    "RuntimeClass": ("node.k8s.io/v1", "/apis/node.k8s.io/v1/runtimeclasses"),
}
"""Version and path of each kind that a cluster's description has."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What kube-scheduler says about a pod."""

    allowed: frozenset[str]
    """Nodes that passed all of its filters."""
    words: str
    """Message of the condition PodScheduled."""


class Judged(msgspec.Struct, frozen=True):
    """A cluster as its API server returns it, and the verdict on each pod that waits."""

    seed: int
    objects: list[Object]
    kinds: dict[str, list[str]]
    """Kinds of constraints that concern each pod that waits."""
    verdicts: dict[str, Verdict]
    """By `namespace/name`."""

    @property
    def nodes(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.objects if each["kind"] == "Node"]


class _Extender:
    """Notes which nodes it is sent for each pod, and refuses them all."""

    def __init__(self) -> None:
        self.sent: dict[str, set[str]] = {}
        """By the pod's uid."""
        sent = self.sent

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                sent.setdefault(asked["Pod"]["metadata"]["uid"], set()).update(asked["NodeNames"] or ())
                body = json.dumps({"NodeNames": [], "FailedNodes": {}}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: an answer is no news."""

        self.server = ThreadingHTTPServer((HOST, 0), Handler)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()


class KubeFilters:
    """A server that holds one random cluster at a time, and its kube-scheduler."""

    def __init__(self, api: Connection, extender: _Extender) -> None:
        self.api = api
        self._extender = extender

    async def judge(self, cluster: RandomCluster) -> Judged:
        """Makes the cluster, asks about each pod that waits, and removes it again."""
        try:
            await self.make(cluster)
            await create_pods(self.api, cluster.pending)
            uids = {pod.name: await self.uid(pod.name) for pod in cluster.pending}
            verdicts = await self.verdicts(uids)
            kinds = {pod.name: [*pod.kinds, *cluster.kinds] for pod in cluster.pending}
            return Judged(cluster.seed, await self.objects(), kinds, verdicts)
        finally:
            await self.clear()

    async def make(self, cluster: RandomCluster) -> None:
        """Creates all but the pods to ask about, and waits until kube-scheduler has seen the nodes."""
        await self.clear()
        for name, labels in cluster.namespaces.items():
            patch = {"metadata": {"labels": {"team": labels.get("team")}}}
            await self.api.write("PATCH", f"/api/v1/namespaces/{name}", patch, content_type=MERGE_PATCH)
        await make_volumes(self.api, cluster.volumes)
        await create(self.api, KINDS["Node"][1], cluster.nodes)
        await self._until_seen({node["metadata"]["name"] for node in cluster.nodes})
        await create_pods(self.api, (pod for pod in cluster.running if not pod.nominated_to))
        for pod in cluster.running:
            if pod.nominated_to:
                await create_pods(self.api, [pod])
                await self._until_nominated(pod)

    async def verdicts(self, uids: Mapping[str, str]) -> dict[str, Verdict]:
        """Verdict on each of these pods by name, once all have one. uids: by name."""
        over_at_s = time.monotonic() + ANSWER_WITHIN_S
        while True:
            waiting = {
                f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": _why_it_waits(pod)
                for pod in await items(self.api, KINDS["Pod"][1], {"fieldSelector": "spec.nodeName="})
            }
            if all(waiting.get(name) for name in uids):
                return {
                    name: Verdict(frozenset(self._extender.sent.get(uid, ())), waiting[name])
                    for name, uid in uids.items()
                }
            if time.monotonic() > over_at_s:
                raise TimeoutError(f"no verdict on {sorted(name for name in uids if not waiting.get(name))}")
            await asyncio.sleep(LOOK_EVERY_S)

    async def verdict(self, pod: RandomPod) -> Verdict:
        """Verdict on one pod that is created now and stays."""
        await create_pods(self.api, [pod])
        return (await self.verdicts({pod.name: await self.uid(pod.name)}))[pod.name]

    async def objects(self) -> list[Object]:
        """All objects of the cluster that a plan of files reads."""
        found = []
        for kind, (version, path) in KINDS.items():
            for each in await items(self.api, path):
                meta = {key: value for key, value in each["metadata"].items() if key != "managedFields"}
                if meta.get("namespace", meta["name"]) in NAMESPACES or kind not in ("Namespace", "Pod"):
                    found.append({"apiVersion": version, "kind": kind, **each, "metadata": meta})
        return found

    async def clear(self) -> None:
        """Removes what `make` and others created."""
        for namespace in (*NAMESPACES, "default"):
            await self.api.write("DELETE", pods_path(namespace), {"gracePeriodSeconds": 0})
            await self.api.write("DELETE", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
        for kind in ("PersistentVolume", "StorageClass", "CSINode", "Node"):
            await self.api.write("DELETE", KINDS[kind][1])
        self._extender.sent.clear()

    async def _until_nominated(self, pod: RandomPod) -> None:
        """Waits until the pod has its node nominated; one that needs none, or finds none, is removed again."""
        await self.verdicts({pod.name: await self.uid(pod.name)})
        namespace, _, own = pod.name.partition("/")
        path = f"{pods_path(namespace)}/{own}"
        over_at_s = time.monotonic() + NOMINATED_WITHIN_S
        while time.monotonic() < over_at_s:
            found = msgspec.json.decode(await self.api.read(path))
            if found["status"].get("nominatedNodeName"):
                return
            await asyncio.sleep(LOOK_EVERY_S)
        await self.api.write("DELETE", path, {"gracePeriodSeconds": 0})

    async def uid(self, name: str) -> str:
        namespace, _, own = name.partition("/")
        found: str = msgspec.json.decode(await self.api.read(f"{pods_path(namespace)}/{own}"))["metadata"]["uid"]
        return found

    async def _until_seen(self, nodes: set[str]) -> None:
        """Waits until a pod that fits everywhere is offered exactly these nodes.

        kube-scheduler learns of nodes and of pods by different watches.
        """
        container = {"name": "main", "image": "example.com/none"}
        spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
        over_at_s, number = time.monotonic() + ANSWER_WITHIN_S, 0
        while time.monotonic() < over_at_s:
            meta = {"name": f"probe-{number}", "namespace": "default"}
            probe = RandomPod({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, ())
            offered = (await self.verdict(probe)).allowed
            path = f"{pods_path('default')}/probe-{number}"
            await self.api.write("DELETE", path, {"gracePeriodSeconds": 0})
            if offered == nodes:
                return
            number += 1
        raise TimeoutError(f"kube-scheduler does not see the nodes {sorted(nodes)}")


async def put_lasting(api: Connection) -> None:
    """Creates what all random clusters share: namespaces and the classes that admission looks up."""
    await put(api, KINDS["Namespace"][1], [{"metadata": {"name": name}} for name in NAMESPACES])
    await put(api, KINDS["PriorityClass"][1], [{"metadata": {"name": n}, **v} for n, v in CLASSES.items()])
    runtimes = [
        {"metadata": {"name": name}, "handler": name, "overhead": {"podFixed": dict(fixed)}}
        for name, fixed in RUNTIMES.items()
    ]
    await put(api, KINDS["RuntimeClass"][1], runtimes)


async def create(api: Connection, path: str, objects: Iterable[Object]) -> None:
    """Creates these objects, several at a time."""
    await several_at_once(objects, lambda each: api.write("POST", path, each))


async def create_pods(api: Connection, pods: Iterable[RandomPod]) -> None:
    """Creates these pods; what only their status says follows, and the deletion of those that end."""

    async def one(pod: RandomPod) -> None:
        path = pods_path(pod.object["metadata"]["namespace"])
        name = pod.object["metadata"]["name"]
        await api.write("POST", path, pod.object)
        if pod.status:
            status = {"status": pod.status}
            await api.write("PATCH", f"{path}/{name}/status", status, content_type=MERGE_PATCH)
        if pod.is_ending:
            await api.write("DELETE", f"{path}/{name}")

    await several_at_once(pods, one)


async def make_volumes(api: Connection, volumes: Volumes) -> None:
    """Creates classes, claims, volumes and limits, in the state in which controllers would have left them."""
    await create(api, KINDS["StorageClass"][1], volumes.classes)
    uids: dict[tuple[str, str], str] = {}

    async def claim(wanted: Object) -> None:
        namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        made = msgspec.json.decode(await api.write("POST", path, wanted))
        uids[namespace, name] = made["metadata"]["uid"]
        if "volumeName" in wanted["spec"]:
            status = {"status": {"phase": "Bound", "accessModes": wanted["spec"]["accessModes"]}}
            await api.write("PATCH", f"{path}/{name}/status", status, content_type=MERGE_PATCH)

    await several_at_once(volumes.claims, claim)

    async def volume(wanted: Object) -> None:
        spec, path = wanted["spec"], KINDS["PersistentVolume"][1]
        phase = "Available"
        if "claimRef" in spec:
            at = spec["claimRef"]
            spec = {**spec, "claimRef": {**at, "uid": uids[at["namespace"], at["name"]]}}
            phase = "Bound"
        await api.write("POST", path, {**wanted, "spec": spec})
        name = wanted["metadata"]["name"]
        await api.write("PATCH", f"{path}/{name}/status", {"status": {"phase": phase}}, content_type=MERGE_PATCH)

    await several_at_once(volumes.volumes, volume)
    await create(api, KINDS["CSINode"][1], volumes.limits)


def _why_it_waits(pod: Mapping[str, Any]) -> str:
    """Words of the pod's condition PodScheduled; "" while it has none."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled":
            return str(condition.get("message") or condition.get("reason", ""))
    return ""


@asynccontextmanager
async def kube_filters(folder: Folder, programs: Programs) -> AsyncIterator[KubeFilters]:
    """A new server in this folder, which the caller stops, with a kube-scheduler that ends with the context."""
    only = Programs({name: programs[name] for name in (ETCD, API_SERVER)}, {})
    off = "ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection"
    # The last would keep claims until a controller lets go of them, and no controller runs.
    server = up(folder, ControlPlaneSettings(api_flags=(f"--disable-admission-plugins={off}",)), only)
    extender = _Extender()
    with extender.serving():
        access = ApiAccess(kubeconfig=str(server.kubeconfig), request_timeout_s=ANSWER_WITHIN_S)
        async with await connect(access, time.monotonic) as api:
            await put_lasting(api)
            scheduler = _start_scheduler(server, programs, extender.port)
            try:
                yield KubeFilters(api, extender)
            finally:
                processes.stop(scheduler)


def _start_scheduler(server: ControlPlane, programs: Programs, port: int) -> processes.Process:
    folder = server.folder
    account = folder.kubeconfig_of(SCHEDULER)
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(account), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [
            # Nobody is preempted, so that an answer changes nothing for the next.
            {"schedulerName": "default-scheduler", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}},
            {"schedulerName": PREEMPTING},
        ],
        "extenders": [
            {
                "urlPrefix": f"http://{HOST}:{port}",
                "filterVerb": "filter",
                "nodeCacheCapable": True,
                "weight": 1,
                "httpTimeout": "30s",
            }
        ],
    }
    path = folder.path / "oracle.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    command: list[str | Path] = [
        programs["kube-scheduler"],
        f"--config={path}",
        *(f"--{role}-kubeconfig={account}" for role in ("authentication", "authorization")),
        f"--bind-address={HOST}",
        f"--secure-port={server.state.ports.scheduler}",
        f"--tls-cert-file={folder.pki / SERVER}.crt",
        f"--tls-private-key-file={folder.pki / SERVER}.key",
    ]
    log = fresh_log(folder, SCHEDULER)
    process = processes.start(SCHEDULER, command, log)
    processes.remember(process, folder.run)
    wait_until(lambda: is_ready(SCHEDULER, server.state.ports, folder), process, log)
    return process
