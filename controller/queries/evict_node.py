"""Cordon, and evictions through the Eviction API, which honours PodDisruptionBudgets; each is followed to its end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from controller.kube import crud
from controller.kube.api_server import ApiServer
from controller.kube.request import MERGE_PATCH, KubeReadError, KubeWriteError
from controller.queries.drain import NodePod

Object = dict[str, Any]
Tell = Callable[[NodePod, str], None]
"""Called with a pod and its progress: `evicting`, `waits: ...`, `evicted`, `failed: ...`."""

AT_A_TIME = 8
"""Concurrent evictions. Chosen: a node's pods are gone in a few rounds, with little load on the API server."""
TRY_AGAIN_S = 5.0
"""Wait before a retry after the refusal by a budget, as kubectl's."""
TOO_MANY_REQUESTS, NOT_FOUND, CONFLICT = 429, 404, 409


async def set_unschedulable(
    connection: ApiServer, node: str, *, closed: bool, dry_run: Literal["none", "client", "server"] = "none"
) -> bool:
    """Cordon a node, or open it again; False when nothing had to change. Raises KubeReadError, KubeWriteError.

    dry_run: `client` writes nothing, `server` lets the server check the write without storing it.
    """
    path = f"/api/v1/nodes/{node}"
    if bool((await crud.read(connection, path)).get("spec", {}).get("unschedulable")) is closed:
        return False
    if dry_run != "client":
        query = {"fieldManager": crud.FIELD_MANAGER, **({"dryRun": "All"} if dry_run == "server" else {})}
        # null removes the field, as kubectl does
        await connection.write("PATCH", path, {"spec": {"unschedulable": closed or None}}, query, MERGE_PATCH)
    return True


async def evict_all(
    connection: ApiServer,
    leaving: Sequence[NodePod],
    tell: Tell,
    *,
    grace_s: int | None = None,
    dry_run: bool = False,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
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
    pause: Callable[[float], Awaitable[None]],
) -> bool:
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    body, reported = _eviction(pod, grace_s, dry_run=dry_run), ""
    while True:
        try:
            if not reported:
                tell(pod, "evicting")
            await connection.write("POST", f"{path}/eviction", body, {"dryRun": "All"} if dry_run else {})
        except KubeWriteError as error:
            refusal = error.refusal
            if refusal.status in (NOT_FOUND, CONFLICT) and await _is_gone(connection, path, pod):
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


async def _is_gone(connection: ApiServer, path: str, pod: NodePod) -> bool:
    seen = await crud.read_if_there(connection, path)
    return seen is None or seen["metadata"]["uid"] != pod.uid


def _eviction(pod: NodePod, grace_s: int | None, *, dry_run: bool) -> Object:
    options: Object = {"preconditions": {"uid": pod.uid}}
    options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    options |= {"dryRun": ["All"]} if dry_run else {}
    metadata = {"name": pod.name, "namespace": pod.namespace}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
