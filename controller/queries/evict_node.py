"""Cordons, and evictions through the Eviction API, which keeps PodDisruptionBudgets; each seen through to its end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from controller.kube import crud
from controller.kube.connection import Connection
from controller.kube.errors import KubeReadError, KubeWriteError
from controller.kube.request import MERGE_PATCH
from controller.queries.drain import Guest

Object = dict[str, Any]
Tell = Callable[[Guest, str], None]
"""Called with a pod and what happened to it: `evicting`, `waits: ...`, `evicted`, `failed: ...`."""

AT_A_TIME = 8
"""Evictions under way. Chosen: a node's pods are gone in a few rounds, and the API server hardly notices."""
TRY_AGAIN_S = 5.0
"""After a budget refused; kubectl's."""
TOO_MANY_REQUESTS, NOT_FOUND, CONFLICT = 429, 404, 409


async def cordon(connection: Connection, node: str, *, dry_run: bool = False) -> bool:
    """Close a node; False when it was closed already. Raises KubeReadError, KubeWriteError."""
    path = f"/api/v1/nodes/{node}"
    if (await crud.read(connection, path)).get("spec", {}).get("unschedulable"):
        return False
    query = {"fieldManager": crud.FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
    await connection.write("PATCH", path, {"spec": {"unschedulable": True}}, query, MERGE_PATCH)
    return True


async def evict_all(
    connection: Connection,
    leaving: Sequence[Guest],
    tell: Tell,
    *,
    grace_s: int | None = None,
    dry_run: bool = False,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:
    """Evict these pods and wait until they are gone; whether all are. What fails does not stop the others.

    Waits as long as budgets refuse: put a time limit around it. A dry run has the server judge, and waits for nothing.
    """
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one(guest: Guest) -> bool:
        async with slots:
            return await _evict(connection, guest, tell, grace_s, dry_run=dry_run, pause=pause)

    return all(await asyncio.gather(*(one(guest) for guest in leaving)))


async def _evict(
    connection: Connection,
    guest: Guest,
    tell: Tell,
    grace_s: int | None,
    *,
    dry_run: bool,
    pause: Callable[[float], Awaitable[None]],
) -> bool:
    path = f"/api/v1/namespaces/{guest.namespace}/pods/{guest.name}"
    body, said = _eviction(guest, grace_s, dry_run=dry_run), ""
    while True:
        try:
            if not said:
                tell(guest, "evicting")
            await connection.write("POST", f"{path}/eviction", body, {"dryRun": "All"} if dry_run else {})
        except KubeWriteError as error:
            refusal = error.refusal
            if refusal.status in (NOT_FOUND, CONFLICT) and await _is_gone(connection, path, guest):
                break  # somebody else ended it; of another pod of its name nothing was asked
            if refusal.status not in (TOO_MANY_REQUESTS, CONFLICT) or dry_run:
                tell(guest, f"failed: {refusal.words}")
                return False
            if refusal.words != said:
                said = refusal.words
                tell(guest, f"waits: {said}")
            await pause(max(refusal.retry_after_s or 0.0, TRY_AGAIN_S))
        else:
            break
    if dry_run:
        tell(guest, "would be evicted")
        return True
    try:
        await crud.until_gone(connection, path, guest.uid, pause)
    except KubeReadError as error:
        tell(guest, f"failed: {error.refusal.words}")
        return False
    tell(guest, "evicted")
    return True


async def _is_gone(connection: Connection, path: str, guest: Guest) -> bool:
    seen = await crud.read_if_there(connection, path)
    return seen is None or seen["metadata"]["uid"] != guest.uid


def _eviction(guest: Guest, grace_s: int | None, *, dry_run: bool) -> Object:
    options: Object = {"preconditions": {"uid": guest.uid}}
    options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    options |= {"dryRun": ["All"]} if dry_run else {}
    metadata = {"name": guest.name, "namespace": guest.namespace}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
