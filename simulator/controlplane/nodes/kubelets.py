"""Simulated kubelets: pods bound to simulated nodes become Running, end, and are removed after deletion."""

import asyncio
import ipaddress
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from decimal import Decimal
from random import Random

import structlog

from controller.api.notation import quantity
from controller.kube.cache import Cache, Resource, WatchSurroundings, WatchTimes, reflect
from controller.kube.request import STRATEGIC_PATCH, Body
from simulator.controlplane.nodes import pod_lifecycle
from simulator.controlplane.nodes.client import InsistentClient
from simulator.controlplane.nodes.node_objects import Node, as_registered
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

    def __init__(self, client: InsistentClient, nodes: Sequence[Node]) -> None:
        self._client = client
        self._free: dict[str, dict[str, Decimal]] = {}
        for node in map(as_registered, nodes):
            allocatable = node["status"]["allocatable"].items()
            self._free[node["metadata"]["name"]] = {name: quantity(amount) for name, amount in allocatable}
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
        self._silent: set[str] = set()
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

    def silence(self, node: str) -> None:
        """The node starts no pod and removes none, as when its power is cut."""
        self._silent.add(node)
        for uid in [uid for uid, pod in self._pods.items() if pod.spec.node_name == node]:
            self._drop(uid)

    def revive(self, node: str) -> None:
        """Resumes its pods in their present state."""
        self._silent.discard(node)
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

    def _admit(self, pod: KubeletPod) -> Coroutine[None, None, None]:
        """Charges the resources at once; the returned coroutine runs the pod's later steps."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        wants, free = pod_lifecycle.demand(pod), self._free[node]
        try:
            life = life_of(pod.metadata.annotations)
        except AnnotationError as error:
            return self._refuse(pod, "BadAnnotation", str(error))
        if pod.status.phase == "Pending" and (no := pod_lifecycle.refusal(wants, free)):
            return self._refuse(pod, *no)
        self._holds[uid] = node, wants
        for name, amount in wants.items():
            free[name] = free.get(name, Decimal(0)) - amount
        return self._live(pod, life)

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
