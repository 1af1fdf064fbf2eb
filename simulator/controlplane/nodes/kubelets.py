"""Simulated kubelets: pods that are bound to simulated nodes become Running, end, and go when they are deleted."""

import asyncio
import ipaddress
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from decimal import Decimal

import structlog

from controller.api.quantity import quantity
from simulator.controlplane.nodes import pod_lifecycle
from simulator.controlplane.nodes.connection import STRATEGIC_PATCH, Body, Connection
from simulator.controlplane.nodes.heartbeats import now
from simulator.controlplane.nodes.node_objects import Node
from simulator.controlplane.nodes.pod_lifecycle import AnnotationError, Life, Pod, life_of
from simulator.controlplane.nodes.prepared_claims import PreparedClaims
from simulator.controlplane.nodes.reflector import Listener, reflect
from simulator.controlplane.nodes.resource_slices import as_registered

FIRST_ADDRESS = int(ipaddress.ip_address("10.128.0.0"))

CLAIMS_EVERY_S = 1.0
"""How often a kubelet looks again whether the claims of a pod that waits on its node are allocated."""

BOUND_PODS = "fieldSelector=spec.nodeName!%3D"
"""Pods that have a node."""

log = structlog.get_logger()


class Kubelets:
    """The kubelets of all simulated nodes, as far as pods are concerned.

    Each admits a pod only while its node has room: what a scheduler allocates twice ends as Failed, as on a real node.
    """

    def __init__(self, connection: Connection, nodes: Sequence[Node]) -> None:
        self._connection = connection
        self._free = {node["metadata"]["name"]: _allocatable(as_registered(node)) for node in nodes}
        self._claims = PreparedClaims(connection)
        self._holds: dict[str, tuple[str, Mapping[str, Decimal]]] = {}
        """Of each admitted pod, by uid: its node, and what it has of it."""
        self._pods: dict[str, Pod] = {}
        """As the server last told of them, by uid; those of our nodes alone."""
        self._admitted: set[str] = set()
        """Once refused or let in, a pod is not looked at again."""
        self._leaving: set[str] = set()
        self._stories: dict[str, asyncio.Task[None]] = {}
        """What is yet to happen to a pod, by uid."""
        self._silent: set[str] = set()
        self._addresses = 0

    async def run(self) -> None:
        """Is every kubelet, until cancelled."""
        listener = Listener(Pod, on_list=self._on_list, on_change=self._on_change, on_gone=self._on_gone)
        try:
            await reflect(self._connection, "/api/v1/pods", BOUND_PODS, listener)
        finally:
            stories = list(self._stories.values())
            for story in stories:
                story.cancel()
            await asyncio.gather(*stories, return_exceptions=True)

    def silence(self, node: str) -> None:
        """The node starts no pod and lets none go, as when its power is cut."""
        self._silent.add(node)
        for uid in [uid for uid, pod in self._pods.items() if pod.spec.node_name == node]:
            self._lay_down(uid)

    def revive(self, node: str) -> None:
        """It takes up its pods again, as they are now."""
        self._silent.discard(node)
        for pod in _running_first(pod for pod in self._pods.values() if pod.spec.node_name == node):
            self._on_change(pod)

    def _on_list(self, pods: list[Pod]) -> None:
        for uid in self._pods.keys() - {pod.metadata.uid for pod in pods}:
            self._forget(uid)
        for pod in _running_first(pods):
            self._on_change(pod)

    def _on_change(self, pod: Pod) -> None:
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

    def _on_gone(self, pod: Pod) -> None:
        self._forget(pod.metadata.uid)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._lay_down(uid)

    def _lay_down(self, uid: str) -> None:
        """Nothing more happens to it, and its node's room is free."""
        self._release(uid)
        self._admitted.discard(uid)
        self._leaving.discard(uid)
        if story := self._stories.pop(uid, None):
            story.cancel()

    def _admit(self, pod: Pod) -> Coroutine[None, None, None]:
        """Room is taken at once; the story that is returned is told over time."""
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

    async def _refuse(self, pod: Pod, reason: str, message: str) -> None:
        log.warning("pod refused", pod=pod.name, node=pod.spec.node_name, reason=reason, message=message)
        await self._write(pod, pod_lifecycle.refused(pod, reason, message))

    async def _live(self, pod: Pod, life: Life) -> None:
        address, restarts = self._next_address(), 0
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

    async def _leave(self, pod: Pod) -> None:
        """Containers stop within the grace that the pod is given; then the object goes, as the kubelet removes it."""
        grace_s = pod.metadata.deletion_grace_period_seconds or 0
        if not pod.is_ended:
            await asyncio.sleep(min(_stop_s(pod), grace_s))
        final = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        await self._connection.insist("DELETE", pod.path, final)

    async def _write(self, pod: Pod, patch: Body) -> None:
        answer = await self._connection.insist("PATCH", f"{pod.path}/status", patch, STRATEGIC_PATCH)
        if not answer.is_ok:
            log.info("pod status not written", pod=pod.name, status=answer.status)

    def _begin(self, uid: str, story: Coroutine[None, None, None]) -> None:
        """Tells this story of the pod from now on, in place of one that is under way."""
        if before := self._stories.pop(uid, None):
            before.cancel()
        task = asyncio.get_running_loop().create_task(story)
        self._stories[uid] = task
        task.add_done_callback(lambda done: self._end(uid, done))

    def _end(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._stories.get(uid) is task:
            del self._stories[uid]
        if not task.cancelled() and (error := task.exception()):
            log.error("a pod's story broke off", uid=uid, exc_info=error)

    def _next_address(self) -> str:
        self._addresses += 1
        return str(ipaddress.ip_address(FIRST_ADDRESS + self._addresses))


def _running_first(pods: Iterable[Pod]) -> list[Pod]:
    """Those that run already hold their devices: new ones are admitted after them."""
    return sorted(pods, key=lambda pod: pod.status.phase == "Pending")


def _allocatable(node: Node) -> dict[str, Decimal]:
    return {name: quantity(amount) for name, amount in node["status"]["allocatable"].items()}


def _stop_s(pod: Pod) -> float:
    try:
        return life_of(pod.metadata.annotations).stop_s
    except AnnotationError:
        return 0.0
