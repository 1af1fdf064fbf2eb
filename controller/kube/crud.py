"""Objects of any resource on an API server, one by one or many: read, applied, deleted, and confirmed by the answer."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from cluster.errors import ObservationError
from controller.kube.cache import is_version_lost
from controller.kube.connection import Connection
from controller.kube.errors import KubeReadError, Refusal, Status
from controller.kube.request import APPLY_PATCH, JSON, Query

Object = dict[str, Any]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""Columns as the server makes them, which is what kubectl prints; servers of other groups may send plain objects."""
PAGE = "500"
"""Objects per page; kubectl's."""
WATCH_IDLE_S = 150.0
"""A bookmark comes every minute, so over such a watch two were missed: it is dead."""
FIELD_MANAGER = "tonnage-cli"
"""Owner of the fields that `tonnage apply` sets."""


async def list_pages(
    connection: Connection, path: str, query: Query, accept: str = JSON
) -> AsyncGenerator[Object, None]:
    """The pages of a list. Raises KubeReadError."""
    token = ""
    while True:
        paging = {"limit": PAGE, **({"continue": token} if token else {})}
        page = decoded(path, await connection.read(path, {**query, **paging}, accept))
        yield page
        token = page.get("metadata", {}).get("continue", "")
        if not token:
            return


async def list_all(connection: Connection, path: str, query: Query | None = None) -> list[Object]:
    """All objects of a collection. Raises KubeReadError."""
    async with aclosing(list_pages(connection, path, query or {})) as pages:
        return [item async for page in pages for item in page.get("items") or ()]


async def list_with_version(
    connection: Connection, path: str, query: Query, accept: str = JSON
) -> tuple[list[Object], str]:
    """The pages of a list, and from which version on a watch goes on. Raises KubeReadError."""
    async with aclosing(list_pages(connection, path, query, accept)) as pages:
        listed = [page async for page in pages]
    return listed, list_version(listed[-1])


async def read(connection: Connection, path: str) -> Object:
    """One object. Raises KubeReadError."""
    return decoded(path, await connection.read(path))


async def read_if_there(connection: Connection, path: str) -> Object | None:
    """One object, None when there is none. Raises KubeReadError."""
    try:
        return await read(connection, path)
    except KubeReadError as error:
        if error.refusal.status == 404:
            return None
        raise


async def follow(
    connection: Connection, path: str, query: Query, version: str, accept: str = JSON
) -> AsyncGenerator[tuple[str, Object], None]:
    """(type, object) of each event after `version`, for ever: a watch that ends is taken up where it ended.

    Raises KubeReadError: `is_version_lost` of its refusal means that the collection must be listed anew.
    """
    while True:
        asked = {**query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with aclosing(connection.watch(path, asked, idle_s=WATCH_IDLE_S, accept=accept)) as lines:
            async for line in lines:
                event = decoded(path, line)
                kind, obj = str(event.get("type")), event.get("object", {})
                if kind == "ERROR":
                    raise KubeReadError(f"watching {path}", msgspec.convert(obj, Status).refusal(500))
                version = version_of(obj) or version
                if kind != "BOOKMARK":
                    yield kind, obj


def list_version(page: Object) -> str:
    """resourceVersion of a list, or of a table of one."""
    return str(page.get("metadata", {}).get("resourceVersion", ""))


def version_of(obj: Object) -> str:
    """resourceVersion of an object, or of the row of the table that an event is."""
    rows = obj.get("rows") if obj.get("kind") == "Table" else None
    metadata = rows[0]["object"].get("metadata", {}) if rows else obj.get("metadata", {})
    return str(metadata.get("resourceVersion", ""))


async def apply(
    connection: Connection, path: str, manifest: Object, *, force: bool = False, dry_run: bool = False
) -> Object:
    """Server-side apply; the object as it is now, or would be. Raises KubeWriteError."""
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    query |= {"force": "true"} if force else {}
    query |= {"dryRun": "All"} if dry_run else {}
    return decoded(path, await connection.write("PATCH", path, manifest, query, APPLY_PATCH))


async def delete(connection: Connection, path: str, *, cascade: str, grace_s: int | None, dry_run: bool) -> Object:
    """Ask for the end of an object: it, while finalizers or a grace period hold it, or a Status when it is gone.

    cascade: `Background`, `Foreground` or `Orphan`. Raises KubeWriteError.
    """
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": cascade}
    options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    options |= {"dryRun": ["All"]} if dry_run else {}
    return decoded(path, await connection.write("DELETE", path, options))


async def until_gone(
    connection: Connection, path: str, uid: str, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Returns once the object of this uid is no more; another of its name does not count. Raises KubeReadError."""
    wait_s = 0.05
    while (seen := await read_if_there(connection, path)) is not None and seen["metadata"]["uid"] == uid:
        await pause(wait_s)
        wait_s = min(1.0, wait_s * 1.5)


def must_list_again(error: KubeReadError) -> bool:
    """Whether a watch broke because its place in history is lost."""
    return is_version_lost(error.refusal)


def refused(error: BaseException) -> Refusal | None:
    """What the server, or the way to it, said; None for errors of another origin."""
    found = getattr(error, "refusal", None)
    return found if isinstance(found, Refusal) else None


def owners_in_conflict(refusal: Refusal) -> Iterator[tuple[str, str]]:
    """(manager, field) of each conflict that a server-side apply was refused for."""
    for cause in refusal.causes:
        if cause.reason == "FieldManagerConflict":
            yield cause.message.removeprefix("conflict with "), cause.field


def decoded(path: str, body: bytes) -> Object:
    """A JSON body. Raises ObservationError."""
    try:
        plain: Mapping[str, Any] = msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise ObservationError(f"reading {path}: an answer that cannot be read: {error}") from error
    return dict(plain)
