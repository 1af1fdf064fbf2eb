"""Kubernetes for the contract of a world: a real API server and its controllers, objects made of a snapshot, and a
simulated owner that recreates evicted pods under the same name, as a StatefulSet does."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from cluster.actions import Move
from cluster.snapshot import PENDING, Snapshot, device_numbers
from controller.api import model_service
from controller.api.crds import crd
from controller.api.kinds import OWN_KINDS
from controller.kube.cache import Cache, WatchSurroundings
from controller.kube.connection import Connection, LoopThread, connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import KubeWriteError
from controller.kube.sender import Applier
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView, is_ours
from controller.kube_world.observer import Caches, Observer, empty_caches, follow
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.world import KubernetesWorld
from controller.placers import NodePool
from tests.builders import manifests
from tests.builders.leading import Leading, Unreported
from tests.contracts.stage import Stage
from tests.until import until

NAMESPACE = "ns"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OURS = "/apis/tonnage.dev/v1alpha1"
WITHIN_S = 60.0
"""A busy machine is not a failure."""

Object = dict[str, Any]


@dataclass(frozen=True)
class KubernetesStages:
    """Stages on one server, one after the other."""

    loop: LoopThread
    api: Connection
    caches: Caches
    view: CachedView

    def start(self, snapshot: Snapshot) -> Stage:
        """The server's cluster, made equal to a snapshot of the kind that the contract uses."""
        self._empty()
        self._put("/api/v1/nodes", [_node(snapshot, row) for row in range(len(snapshot.nodes))])
        for service in snapshot.services:
            template = {"spec": {"containers": [{"name": "server", "image": "example.com/none"}]}}
            chat = manifests.service(service.name.partition("/")[2], template=template)
            self._put(f"{OURS}/namespaces/{NAMESPACE}/modelservices", [chat])
        pods = {name: _pod(snapshot, row) for row, name in enumerate(snapshot.pods.names)}
        self._put(PODS, list(pods.values()))
        world = KubernetesWorld(
            PlanningView(self.view, [NodePool("bind", {})], clock=time.monotonic),
            Applier(self.api, Leading()),
            self.loop.run,
            Unreported(1),
        )
        stage = Stage(world, lambda: self._settled(world, pods), declines=frozenset({Move}))
        stage.settled()
        return stage

    def _settled(self, world: KubernetesWorld, owned: Mapping[str, Object]) -> Snapshot:
        def at_rest() -> bool:
            there = self._items(PODS)
            names = {f"{NAMESPACE}/{pod['metadata']['name']}" for pod in there}
            missing = [pod for name, pod in owned.items() if name not in names]
            self._put(PODS, [_unbound(pod) for pod in missing])
            asked = [each["spec"]["replicas"] for each in self._items(_DEPLOYMENTS)]
            return not missing and len(there) == len(owned) + sum(asked) and self._has_caught_up(there)

        until(at_rest, "the cluster comes to rest", WITHIN_S)
        return world.observe()

    def _has_caught_up(self, there: list[Object]) -> bool:
        """Whether the watches have seen the pods just as the server lists them, and all the rest that is listed."""
        listed = {f"{NAMESPACE}/{pod['metadata']['name']}": pod["metadata"]["resourceVersion"] for pod in there}
        seen = {name: pod.metadata.resource_version for name, pod in self.caches.pods.all().items()}
        services, nodes = self._items(f"{OURS}/modelservices"), self._items("/api/v1/nodes")
        deployments = {each.content for each in self.view.deployments()}
        return (
            {name: version for name, version in seen.items() if name.startswith(f"{NAMESPACE}/")} == listed
            and len(services) == len(self.caches.own[model_service.KIND].all())
            and len(nodes) == len(self.caches.nodes.all())
            and len(deployments) == len(self._items(_DEPLOYMENTS))
        )

    def _empty(self) -> None:
        """Without pods and services, and seen to be so."""
        for service in self._items(f"{OURS}/modelservices"):
            name = service["metadata"]["name"]
            self.loop.run(self.api.write("DELETE", f"{OURS}/namespaces/{NAMESPACE}/modelservices/{name}"))
        self.loop.run(self.api.write("DELETE", _DEPLOYMENTS, {"propagationPolicy": "Background"}))

        def is_empty() -> bool:
            self.loop.run(self.api.write("DELETE", PODS, {"gracePeriodSeconds": 0}))
            left = [*self._items(PODS), *self._items(_DEPLOYMENTS), *self._items(_REPLICA_SETS)]
            return not left and self._has_caught_up([])

        until(is_empty, "the cluster is empty", WITHIN_S)

    def _items(self, path: str) -> list[Object]:
        found: list[Object] = msgspec.json.decode(self.loop.run(self.api.read(path)))["items"] or []
        return found

    def _put(self, path: str, objects: list[Object]) -> None:
        """Create what is not there."""
        for each in objects:
            try:
                self.loop.run(self.api.write("POST", path, each))
            except KubeWriteError as error:
                if error.refusal.status != 409:
                    raise


@contextmanager
def kubernetes_stages(kubeconfig: Path) -> Iterator[KubernetesStages]:
    """Watches on a server without other users, with the kinds of Tonnage installed."""
    with ExitStack() as stack:
        loop = LoopThread("kubernetes")
        stack.callback(loop.close)
        api = loop.run(connect(ApiAccess(kubeconfig=str(kubeconfig)), time.monotonic))
        stack.callback(lambda: loop.run(api.close()))
        caches, deployments = empty_caches(), Cache(DEPLOYMENTS)
        observer = Observer(caches, time.time, is_ours=is_ours, freezes_heap=False)
        view = CachedView(observer, deployments)
        stages = KubernetesStages(loop, api, caches, view)
        stages._put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", [crd(kind) for kind in OWN_KINDS])
        stages._put("/api/v1/namespaces", [{"metadata": {"name": NAMESPACE}}])
        until(lambda: _serves_our_kinds(stages), "the API server serves our kinds", WITHIN_S)
        stages._put(f"{OURS}/gputypes", [manifests.gpu_type("a100")])
        stages._put(f"{OURS}/modelprofiles", [manifests.profile()])
        around = WatchSurroundings(time.time, _pause, Random(1))  # noqa: S311  # jitter
        stack.callback(loop.begin(follow((*caches.each, deployments), api, around)).cancel)
        until(lambda: all(cache.is_synced for cache in (*caches.each, deployments)), "the watches are synced", WITHIN_S)
        yield stages


_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_REPLICA_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"


def _serves_our_kinds(stages: KubernetesStages) -> bool:
    served = msgspec.json.decode(
        stages.loop.run(stages.api.read("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))
    )
    said = [each.get("status", {}).get("conditions") or () for each in served["items"]]
    return all(any(c["type"] == "Established" and c["status"] == "True" for c in conditions) for conditions in said)


async def _pause(for_s: float) -> None:
    await asyncio.sleep(min(for_s, 0.2))


def _node(snapshot: Snapshot, row: int) -> Object:
    nodes = snapshot.nodes
    spec = {} if nodes.schedulable[row] else {"unschedulable": True}
    return manifests.node(nodes.names[row], int(nodes.gpus[row]), "A100", **spec)


def _pod(snapshot: Snapshot, row: int) -> Object:
    """Bound to its node from the start, as if it had been placed before."""
    pods, name = snapshot.pods, snapshot.pods.names[row].partition("/")[2]
    where, devices = int(pods.node[row]), device_numbers(int(pods.devices[row]))
    on = "" if where == PENDING else snapshot.nodes.names[where]
    said = {"tonnage.dev/devices": ",".join(map(str, devices))} if devices else {}
    made = manifests.pod(name, pods.shapes[int(pods.shape[row])].gpus, on=on, annotations=said)
    made["spec"] |= {"schedulerName": "tonnage", "terminationGracePeriodSeconds": 0}
    made["spec"]["containers"] = [_runnable(container) for container in made["spec"]["containers"]]
    return made if on else _unbound(made)


def _runnable(container: Object) -> Object:
    limits = {name: str(amount) for name, amount in container["resources"]["limits"].items()}
    return {**container, "image": "example.com/none", "resources": {**container["resources"], "limits": limits}}


def _unbound(pod: Object) -> Object:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": {"name": pod["metadata"]["name"]}, "spec": spec}
