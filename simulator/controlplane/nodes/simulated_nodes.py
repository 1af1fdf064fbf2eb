"""Simulated nodes against a real API server: objects with heartbeats, their slices, and kubelets for their pods."""

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from random import Random

import msgspec
import structlog

from cluster.nodes import NodeTaint
from controller.api import structs
from controller.api.notation import quantity
from controller.dra.objects import API as RESOURCE_API
from controller.kube.cache import Cache, Resource, WatchSurroundings, WatchTimes, reflect
from controller.kube.request import MERGE_PATCH, STRATEGIC_PATCH, Body
from controller.snapshot.pod_rules import host_ports
from simulator.controlplane.nodes import node_objects, pod_lifecycle
from simulator.controlplane.nodes.client import InsistentClient, connected
from simulator.controlplane.nodes.node_objects import Node
from simulator.controlplane.nodes.pod_lifecycle import AnnotationError, KubeletPod, Life, PreparedClaims, life_of, now

FIRST_ADDRESS = int(ipaddress.ip_address("10.128.0.0"))

CLAIMS_EVERY_S = 1.0
"""Interval at which a kubelet checks whether the claims of a waiting pod are allocated."""

BOUND_PODS = Resource("pods", "/api/v1/pods", KubeletPod, selectors={"fieldSelector": "spec.nodeName!="})
"""Pods that have a node."""

TIMES = WatchTimes(watch_for_s=(600.0, 600.0), first_wait_s=0.1, longest_wait_s=5.0)

log = structlog.get_logger()


class Kubelets:
    """The kubelets of all simulated nodes, as far as pods are concerned.

    Each admits a pod only while its node has free resources: a scheduler's double allocation ends as Failed, as on a
    real node.
    """

    def __init__(self, client: InsistentClient, nodes: Sequence[Node], silent: Set[str]) -> None:
        """silent: nodes that start no pod and remove none, as when their power is cut; it may change."""
        self._client, self._silent = client, silent
        self._free: dict[str, dict[str, Decimal]] = {}
        self._nodes: dict[str, structs.Node] = {}
        """As they were seen last: at their registration, or when a pod did not suit one."""
        for node in nodes:
            name, allocatable = node["metadata"]["name"], node["status"]["allocatable"].items()
            self._free[name] = {resource: quantity(amount) for resource, amount in allocatable}
            self._nodes[name] = structs.object_from(node, structs.Node)
        self._claims = PreparedClaims(client)
        self._cache = Cache(BOUND_PODS, self._on_changes)
        self._uids: dict[str, str] = {}
        """Uid of each pod of the cache, by `namespace/name`."""
        self._holds: dict[str, tuple[str, Mapping[str, Decimal]]] = {}
        """Node and amounts of each admitted pod, by uid."""
        self._pods: dict[str, KubeletPod] = {}
        """Latest state from the server, by uid; pods of the simulated nodes alone."""
        self._admitted: set[str] = set()
        """Pods that were refused or admitted; each is decided once."""
        self._leaving: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Future steps of a pod, by uid."""
        self._addresses = 0

    async def run(self) -> None:
        """Runs every kubelet, until cancelled."""
        chance = Random()  # noqa: S311 - spreads reconnects, hides nothing
        try:
            await reflect(
                self._cache, self._client.connection, TIMES, WatchSurroundings(time.time, asyncio.sleep, chance)
            )
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self, node: str) -> None:
        """Ends what its pods were about to do."""
        for uid in [uid for uid, pod in self._pods.items() if pod.spec.node_name == node]:
            self._drop(uid)

    def resume(self, node: str) -> None:
        """Resumes its pods in their present state."""
        for pod in _running_first(pod for pod in self._pods.values() if pod.spec.node_name == node):
            self._on_change(pod)

    def _on_changes(self) -> None:
        changed = self._cache.drain()
        for name, pod in changed.items():
            before = self._uids.pop(name, None)
            if before is not None and (pod is None or pod.metadata.uid != before):
                self._pods.pop(before, None)
                self._drop(before)
            if pod is not None:
                self._uids[name] = pod.metadata.uid
        for pod in _running_first(pod for pod in changed.values() if pod is not None):
            self._on_change(pod)

    def _on_change(self, pod: KubeletPod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if node not in self._free:
            return
        self._pods[uid] = pod
        if node in self._silent:
            return
        if pod.is_ended:
            self._release(uid)
        if pod.metadata.deletion_timestamp is not None:
            if uid not in self._leaving:
                self._leaving.add(uid)
                self._begin(uid, self._leave(pod))
        elif uid not in self._admitted and not pod.is_ended:
            self._admitted.add(uid)
            self._begin(uid, self._admit(pod))

    def _drop(self, uid: str) -> None:
        """Ends the pod's steps and frees its resources."""
        self._release(uid)
        self._admitted.discard(uid)
        self._leaving.discard(uid)
        if steps := self._tasks.pop(uid, None):
            steps.cancel()

    def _admit(self, pod: KubeletPod, *, looked: bool = False) -> Coroutine[None, None, None]:
        """Charges the resources at once; the returned coroutine runs the pod's later steps.

        looked: whether its node was looked at for it; one that does not suit it as it was registered is, once.
        """
        uid, node = pod.metadata.uid, pod.spec.node_name
        wants, free = pod_lifecycle.demand(pod), self._free[node]
        try:
            life = life_of(pod.metadata.annotations)
        except AnnotationError as error:
            return self._refuse(pod, "BadAnnotation", str(error))
        if pod.status.phase == "Pending" and (no := pod_lifecycle.refusal(wants, free) or self._misfit(pod)):
            return self._refuse(pod, *no) if looked else self._look(pod)
        self._holds[uid] = node, wants
        for name, amount in wants.items():
            free[name] = free.get(name, Decimal(0)) - amount
        return self._live(pod, life)

    def _misfit(self, pod: KubeletPod) -> tuple[str, str] | None:
        node = self._nodes[pod.spec.node_name]
        there = (self._pods[uid] for uid, (name, _) in self._holds.items() if name == pod.spec.node_name)
        taken = (port for other in there for port in host_ports(other.spec))
        taints = [NodeTaint(each.key, each.value, each.effect) for each in node.spec.taints]
        return pod_lifecycle.misfit(pod, node.metadata.labels, taints, taken)

    async def _look(self, pod: KubeletPod) -> None:
        """Admits a pod if its node suits it as the node is now: labels and resources may have come since."""
        name = pod.spec.node_name
        answer = await self._client.insist("GET", f"/api/v1/nodes/{name}")
        if answer.is_ok:
            self._nodes[name] = node = msgspec.json.decode(answer.body, type=structs.Node)
            for resource, amount in node.status.allocatable.items():
                self._free[name].setdefault(resource, quantity(amount))
        if pod.metadata.uid in self._admitted:
            await self._admit(pod, looked=True)

    def _release(self, uid: str) -> None:
        self._claims.release(uid)
        if held := self._holds.pop(uid, None):
            node, wants = held
            for name, amount in wants.items():
                self._free[node][name] += amount

    async def _refuse(self, pod: KubeletPod, reason: str, message: str) -> None:
        log.warning("pod refused", pod=pod.name, node=pod.spec.node_name, reason=reason, message=message)
        await self._write(pod, pod_lifecycle.refused(pod, reason, message))

    async def _live(self, pod: KubeletPod, life: Life) -> None:
        self._addresses += 1
        address, restarts = str(ipaddress.ip_address(FIRST_ADDRESS + self._addresses)), 0
        while pod.spec.resource_claims and not await self._claims.prepare(self._pods.get(pod.metadata.uid, pod)):
            await asyncio.sleep(CLAIMS_EVERY_S)
        if pod.status.phase == "Pending":
            await asyncio.sleep(life.start_s)
            await self._write(pod, pod_lifecycle.running(pod, address, now()))
        while life.run_s is not None:
            await asyncio.sleep(life.run_s)
            if not pod_lifecycle.is_restarted(pod, life):
                await self._write(pod, pod_lifecycle.ended(pod, life.exit_code, now(), restarts=restarts))
                return
            restarts += 1
            await self._write(pod, pod_lifecycle.running(pod, address, now(), restarts=restarts))

    async def _leave(self, pod: KubeletPod) -> None:
        """Stops the containers within the pod's grace period, then deletes the object, as the kubelet does."""
        grace_s = pod.metadata.deletion_grace_period_seconds or 0
        if not pod.is_ended:
            try:
                stop_s = life_of(pod.metadata.annotations).stop_s
            except AnnotationError:
                stop_s = 0.0
            await asyncio.sleep(min(stop_s, grace_s))
        final = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        await self._client.insist("DELETE", pod.path, final)

    async def _write(self, pod: KubeletPod, patch: Body) -> None:
        answer = await self._client.insist("PATCH", f"{pod.path}/status", patch, STRATEGIC_PATCH)
        if not answer.is_ok:
            log.info("pod status not written", pod=pod.name, status=answer.status)

    def _begin(self, uid: str, steps: Coroutine[None, None, None]) -> None:
        """Runs these steps of the pod from now on, and cancels earlier ones."""
        if before := self._tasks.pop(uid, None):
            before.cancel()
        task = asyncio.get_running_loop().create_task(steps)
        self._tasks[uid] = task

        def end(done: asyncio.Task[None]) -> None:
            if self._tasks.get(uid) is done:
                del self._tasks[uid]
            if not done.cancelled() and (error := done.exception()):
                log.error("a pod's steps failed", uid=uid, exc_info=error)

        task.add_done_callback(end)


def _running_first(pods: Iterable[KubeletPod]) -> list[KubeletPod]:
    """Running pods first, since they already hold their devices: new ones are admitted after them."""
    return sorted(pods, key=lambda pod: pod.status.phase == "Pending")


LEASE_S = 40
"""The kubelet's own default."""

RENEWALS_PER_LEASE = 4

PARTS = 10
"""Number of parts of a renewal round: a thousand renewals at once would be a wave of load."""

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Heartbeats:
    """Registers nodes and renews their leases, as all their kubelets would."""

    def __init__(
        self, client: InsistentClient, nodes: Sequence[node_objects.Node], silent: Set[str], *, lease_s: int = LEASE_S
    ) -> None:
        """silent: nodes whose leases are not renewed; it may change."""
        self._client, self._silent = client, silent
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._lease_s = lease_s
        self._uid: dict[str, str] = {}

    async def register(self) -> None:
        """Creates the Node objects, and removes those of an earlier fleet."""
        answer = await self._client.insist("GET", f"/api/v1/nodes?labelSelector={node_objects.SIMULATED}%3Dtrue")
        earlier = {item["metadata"]["name"] for item in msgspec.json.decode(answer.body)["items"]} - self._nodes.keys()
        await asyncio.gather(*(self._client.insist("DELETE", f"/api/v1/nodes/{name}") for name in earlier))
        await asyncio.gather(*map(self._register, self._nodes))
        log.info("nodes registered", nodes=len(self._nodes), removed=len(earlier))

    async def renew_all(self) -> None:
        """Renews every lease in time, without end."""
        names, pause_s = list(self._nodes), self._lease_s / RENEWALS_PER_LEASE / PARTS
        while True:
            began_s = time.monotonic()
            for part in range(PARTS):
                await asyncio.gather(*(self._renew(name) for name in names[part::PARTS] if name not in self._silent))
                await asyncio.sleep(pause_s)
            if time.monotonic() - began_s > self._lease_s:
                # This process was frozen, or the server away, for longer than a lease: nodes may count as lost.
                log.warning("leases expired; nodes report again", for_s=round(time.monotonic() - began_s, 1))
                await asyncio.gather(*(self.report(name) for name in names if name not in self._silent))

    async def _register(self, name: str) -> None:
        node = self._nodes[name]
        status = {**node["status"], "conditions": node_objects.ready_conditions(now())}
        answer = await self._client.insist("POST", "/api/v1/nodes", {**node, "status": status})
        if answer.status == HTTPStatus.CONFLICT:  # exists since an earlier run
            labels = {"metadata": {"labels": node["metadata"]["labels"]}}
            answer = await self._client.insist("PATCH", f"/api/v1/nodes/{name}", labels, MERGE_PATCH)
            await self.report(name)
        if not answer.is_ok:
            log.error("node refused", node=name, status=answer.status, answer=answer.body.decode())
            return
        self._uid[name] = msgspec.json.decode(answer.body)["metadata"]["uid"]

    async def report(self, name: str) -> None:
        status = {"status": {**self._nodes[name]["status"], "conditions": node_objects.ready_conditions(now())}}
        await self._client.insist("PATCH", f"/api/v1/nodes/{name}/status", status, STRATEGIC_PATCH)

    async def _renew(self, name: str) -> None:
        if name not in self._uid:
            return
        spec = {"holderIdentity": name, "leaseDurationSeconds": self._lease_s, "renewTime": now()}
        answer = await self._client.insist("PATCH", f"{LEASES}/{name}", {"spec": spec}, MERGE_PATCH)
        if answer.status == HTTPStatus.NOT_FOUND:
            # With its owner, so that the garbage collector removes the lease when the node is deleted.
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._uid[name]}
            metadata = {"name": name, "ownerReferences": [owner]}
            await self._client.insist("POST", LEASES, {"metadata": metadata, "spec": spec})


@dataclass(frozen=True, slots=True)
class SimulatedNodes:
    """Registered fleet with its running kubelets."""

    heartbeats: Heartbeats
    kubelets: Kubelets
    silent: set[str]
    work: asyncio.Task[None]
    """Ends when it is cancelled, or with an internal error."""

    def silence(self, node: str) -> None:
        """Silences a node as when its power is cut: no lease renewed, no pod started, none removed."""
        self.silent.add(node)
        self.kubelets.stop(node)

    async def revive(self, node: str) -> None:
        """Restores the node's power."""
        self.silent.discard(node)
        await self.heartbeats.report(node)
        self.kubelets.resume(node)


async def publish(client: InsistentClient, nodes: Sequence[node_objects.Node]) -> None:
    """Publishes the slices of registered nodes, and the class of each driver. Existing ones stay."""
    publishing = [node for node in nodes if node_objects.driver_of(node)]

    async def create(resource: str, body: node_objects.Node) -> None:
        answer = await client.insist("POST", f"{RESOURCE_API}/{resource}", body)
        if not answer.is_ok and answer.status != HTTPStatus.CONFLICT:
            name = body["metadata"]["name"]
            log.error("not published", resource=resource, name=name, answer=answer.body.decode()[:200])

    async def publish_slice(node: node_objects.Node) -> None:
        answer = await client.insist("GET", f"/api/v1/nodes/{node['metadata']['name']}")
        if answer.is_ok:
            await create(
                "resourceslices", node_objects.slice_of(node, msgspec.json.decode(answer.body)["metadata"]["uid"])
            )

    for driver in sorted({node_objects.driver_of(node) for node in publishing}):
        await create("deviceclasses", node_objects.class_of(driver))
    await asyncio.gather(*map(publish_slice, publishing))


@asynccontextmanager
async def simulated_nodes(
    kubeconfig: Path, nodes: Sequence[node_objects.Node], *, lease_s: int = LEASE_S
) -> AsyncIterator[SimulatedNodes]:
    """Simulated nodes that run while the context lasts; their objects stay."""
    # A connection for each, as real kubelets have: a thousand starting pods must not delay the heartbeats.
    async with connected(kubeconfig) as for_leases, connected(kubeconfig) as for_pods:
        silent: set[str] = set()
        registered = [node_objects.as_registered(node) for node in nodes]
        heartbeats = Heartbeats(for_leases, registered, silent, lease_s=lease_s)
        kubelets = Kubelets(for_pods, registered, silent)
        await heartbeats.register()
        await publish(for_leases, nodes)

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(heartbeats.renew_all())
                group.create_task(kubelets.run())

        work = asyncio.create_task(both())
        try:
            yield SimulatedNodes(heartbeats, kubelets, silent, work)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
