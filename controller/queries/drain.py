"""Drain of a node: which pods leave it, which block it, where each would start again; and their eviction."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cluster import actions, changes, nodes, snapshot, workloads
from controller.api.labels import CHOSEN_NODE_ANNOTATION, GANG_LABEL, SERVICE_LABEL
from controller.kube import crud
from controller.kube.api_server import ApiServer
from controller.kube.request import MERGE_PATCH, KubeReadError, KubeWriteError, Sleep
from controller.queries.explain import PackerOf
from placement.packing.planner import pack

Object = dict[str, Any]

Fate = Literal["leaves", "stays", "blocks"]


MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a mirror pod, which represents a static pod of the kubelet and cannot be evicted."""


@dataclass(frozen=True, slots=True)
class Consent:
    """Losses that the user accepts, by kubectl's flags."""

    ignore_daemonsets: bool = False
    force: bool = False
    """Whether pods without a controller, which are not recreated, may be evicted."""
    delete_emptydir_data: bool = False


@dataclass(frozen=True, slots=True)
class NodePod:
    """Pod on the node that is drained."""

    namespace: str
    name: str
    uid: str
    fate: Fate
    why: str = ""
    """Reason why it stays, or the flag that lets it be evicted."""
    gang: str = ""
    """Gang, `namespace/name`."""
    service: str = ""
    is_pinned: bool = False
    """Whether Tonnage restricted it to its node by a node selector, which its replacement will not have."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NextPlace:
    """Node and devices on which an evicted pod would start again."""

    pod: str
    node: str | None
    """Node; None when no node can take it now."""
    devices: tuple[int, ...] = ()
    why: str = ""
    """Reason why no node can take it."""


def pods_of_node(objects: Iterable[Object], consent: Consent) -> tuple[NodePod, ...]:
    """Pods of the node with their fates by kubectl's rules, sorted by name."""
    found = []
    for obj in objects:
        metadata, (fate, why) = obj["metadata"], _fate(obj, consent)
        labels, namespace = metadata.get("labels") or {}, metadata.get("namespace", "default")
        gang, service = (labels.get(label) for label in (GANG_LABEL, SERVICE_LABEL))
        found.append(
            NodePod(
                namespace=namespace,
                name=metadata["name"],
                uid=metadata.get("uid", ""),
                fate=fate,
                why=why,
                gang=f"{namespace}/{gang}" if gang else "",
                service=f"{namespace}/{service}" if service else "",
                is_pinned=CHOSEN_NODE_ANNOTATION in (metadata.get("annotations") or {}),
            )
        )
    return tuple(sorted(found, key=lambda pod: pod.full_name))


def _fate(pod: Object, consent: Consent) -> tuple[Fate, str]:
    metadata = pod["metadata"]
    owner = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), None)
    if MIRROR in (metadata.get("annotations") or {}):
        return "stays", "the kubelet runs it from a file"
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return "leaves", ""
    if owner and owner["kind"] == "DaemonSet":
        if consent.ignore_daemonsets:
            return "stays", "its DaemonSet would start it again at once"
        return "blocks", "belongs to a DaemonSet: --ignore-daemonsets leaves it on the node"
    if owner is None and not consent.force:
        return "blocks", "no controller would recreate it: --force deletes it for good"
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    if any("emptyDir" in volume for volume in volumes) and not consent.delete_emptydir_data:
        return "blocks", "has data in an emptyDir: --delete-emptydir-data deletes it"
    return "leaves", "" if owner else "no controller recreates it"


def drain_preview(
    now: snapshot.Snapshot, node: str, leaving: Sequence[NodePod], packer_of: PackerOf
) -> tuple[list[NextPlace], list[str]]:
    """Where the packer would place the evicted pods, with the node cordoned and without preemption; and what that means
    for gangs and services, a sentence each.

    packer_of: creates the packing engine for a snapshot. Pods that are not in the snapshot, because they have ended,
    are ignored.
    """
    known = {pod.full_name for pod in leaving if pod.full_name in now.pods.names}
    pinned = [pod.full_name for pod in leaving if pod.is_pinned and pod.full_name in known]
    after = _unpinned(changes.cordoned(now, node), pinned).after(actions.Evict(name, node) for name in sorted(known))
    plan = pack(after, packer_of(after), preempt=False)
    binds = {step.action.pod: step.action for step in plan.steps() if isinstance(step.action, actions.Bind)}
    reasons = {each.workload: each.reason.words for each in plan.unplaced}
    seats = []
    for pod in leaving:
        if bind := binds.get(pod.full_name):
            seats.append(NextPlace(pod.full_name, bind.node, bind.devices))
        elif pod.full_name in known:
            why = reasons.get(f"Pod/{pod.full_name}") or reasons.get(f"Gang/{pod.gang}") or "no node has room for it"
            seats.append(NextPlace(pod.full_name, None, (), why))
    return seats, list(_concerned(now, leaving, seats))


def _unpinned(now: snapshot.Snapshot, names: Sequence[str]) -> snapshot.Snapshot:
    """The snapshot with these pods free to run on any node that their original specs allow."""
    pods, free = now.pods, dict[int, workloads.PodShape]()
    for name in names:
        row = pods.names.row(name)
        assert row is not None  # noqa: S101  # the caller has checked
        own = pods.shapes[pods.shape[row]]
        terms = tuple(tuple(r for r in term if r.key not in nodes.NAMING_LABELS) for term in own.node_terms)
        free[row] = replace(own, node_terms=terms if all(terms) else ())
    return replace(now, pods=pods.reshaped(free))


def _concerned(now: snapshot.Snapshot, leaving: Sequence[NodePod], seats: Sequence[NextPlace]) -> Iterator[str]:
    placed = {seat.pod for seat in seats if seat.node}
    for gang, count in sorted(Counter(pod.gang for pod in leaving if pod.gang).items()):
        again = sum(1 for pod in leaving if pod.gang == gang and pod.full_name in placed)
        row, present = next((n for n, each in enumerate(now.gangs) if each.name == gang), None), ""
        if row is not None:
            running = int(((now.pods.gang == row) & (now.pods.node != snapshot.PENDING)).sum())
            present = f" of {running} that run, {now.gangs[row].min_members} must run together"
        yield f"Gang/{gang} loses {count} members{present}; {again} of them can start elsewhere"
    runs = now.pods.node != snapshot.PENDING
    for service, count in sorted(Counter(pod.service for pod in leaving if pod.service).items()):
        running = sum(1 for owner, is_there in zip(now.pods.owner, runs, strict=True) if is_there and owner == service)
        again = sum(1 for pod in leaving if pod.service == service and pod.full_name in placed)
        meanwhile = f"runs {running - count} of {running} instances until they are replaced"
        yield f"ModelService/{service} {meanwhile}; {again} of {count} can start elsewhere"


Tell = Callable[[NodePod, str], None]
"""Called with a pod and its progress: `evicting`, `waits: ...`, `evicted`, `failed: ...`."""

AT_A_TIME = 8
"""Concurrent evictions. Chosen: a node's pods are gone in a few rounds, with little load on the API server."""
TRY_AGAIN_S = 5.0
"""Wait before a retry after the refusal by a budget, as kubectl's."""
TOO_MANY_REQUESTS, NOT_FOUND, CONFLICT = 429, 404, 409


async def cordon(connection: ApiServer, node: str, *, dry_run: bool) -> bool:
    """Cordon a node; False where it already is. Raises KubeReadError, KubeWriteError.

    dry_run: let the server check the write without storing it.
    """
    path = f"/api/v1/nodes/{node}"
    if (await crud.read(connection, path)).get("spec", {}).get("unschedulable"):
        return False
    query = {"fieldManager": crud.FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
    await connection.write("PATCH", path, {"spec": {"unschedulable": True}}, query, MERGE_PATCH)
    return True


async def evict_all(
    connection: ApiServer,
    leaving: Sequence[NodePod],
    tell: Tell,
    *,
    grace_s: int | None = None,
    dry_run: bool = False,
    pause: Sleep = asyncio.sleep,
) -> bool:
    """Evict these pods and wait until they are gone; returns whether all are. A failure does not stop the others.

    It waits while budgets refuse, so put a timeout around it. A dry run only asks the server, and does not wait.
    """
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one(pod: NodePod) -> bool:
        async with slots:
            return await _evict(connection, pod, tell, grace_s, dry_run=dry_run, pause=pause)

    return all(await asyncio.gather(*(one(pod) for pod in leaving)))


async def _evict(
    connection: ApiServer,
    pod: NodePod,
    tell: Tell,
    grace_s: int | None,
    *,
    dry_run: bool,
    pause: Sleep,
) -> bool:
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    options: Object = {"preconditions": {"uid": pod.uid}}
    options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    options |= {"dryRun": ["All"]} if dry_run else {}
    metadata = {"name": pod.name, "namespace": pod.namespace}
    body, reported = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}, ""
    while True:
        try:
            if not reported:
                tell(pod, "evicting")
            await connection.write("POST", f"{path}/eviction", body, {"dryRun": "All"} if dry_run else {})
        except KubeWriteError as error:
            refusal = error.refusal
            seen = await crud.read_if_there(connection, path)
            if refusal.status in (NOT_FOUND, CONFLICT) and (seen is None or seen["metadata"]["uid"] != pod.uid):
                break  # it ended otherwise; a new pod of the same name is not evicted
            if refusal.status not in (TOO_MANY_REQUESTS, CONFLICT) or dry_run:
                tell(pod, f"failed: {refusal.words}")
                return False
            if refusal.words != reported:
                reported = refusal.words
                tell(pod, f"waits: {reported}")
            await pause(max(refusal.retry_after_s or 0.0, TRY_AGAIN_S))
        else:
            break
    if dry_run:
        tell(pod, "would be evicted")
        return True
    try:
        await crud.until_gone(connection, path, pod.uid, pause)
    except KubeReadError as error:
        tell(pod, f"failed: {error.refusal.words}")
        return False
    tell(pod, "evicted")
    return True
