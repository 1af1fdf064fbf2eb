"""Generic operations on objects of any resource: list, read, watch, apply and delete."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from cluster.errors import ObservationError
from controller.kube.api_server import ApiServer
from controller.kube.request import APPLY_PATCH, JSON, KubeReadError, Query, Refusal, Sleep, is_version_lost, refusal_in

Object = dict[str, Any]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""Media type of the server's own table columns, which kubectl prints; aggregated API servers may send plain objects."""
PAGE = "500"
"""Objects per page, as kubectl's."""
WATCH_IDLE_S = 150.0
"""Time without a line after which a watch is considered dead: two bookmarks, one a minute, were missed."""
FIELD_MANAGER = "tonnage-cli"
"""Field manager of `tonnage apply`."""


async def list_pages(
    connection: ApiServer, path: str, query: Query, accept: str = JSON
) -> AsyncGenerator[Object, None]:
    """Pages of a list. Raises KubeReadError."""
    token = ""
    while True:
        paging = {"limit": PAGE, **({"continue": token} if token else {})}
        page = decoded(path, await connection.read(path, {**query, **paging}, accept))
        yield page
        token = page.get("metadata", {}).get("continue", "")
        if not token:
            return


async def list_all(connection: ApiServer, path: str, query: Query | None = None) -> list[Object]:
    """All objects of a collection. Raises KubeReadError."""
    async with aclosing(list_pages(connection, path, query or {})) as pages:
        return [item async for page in pages for item in page.get("items") or ()]


async def read(connection: ApiServer, path: str) -> Object:
    """One object. Raises KubeReadError."""
    return decoded(path, await connection.read(path))


async def read_if_there(connection: ApiServer, path: str) -> Object | None:
    """One object, or None when it does not exist. Raises KubeReadError."""
    try:
        return await read(connection, path)
    except KubeReadError as error:
        if error.refusal.status == 404:
            return None
        raise


async def watched(
    connection: ApiServer, path: str, query: Query, accept: str = JSON
) -> AsyncGenerator[list[Object] | tuple[str, Object], None]:
    """The pages of a collection, then (type, object) of each event, without end.

    A watch that ends is resumed from its last version; where the server has lost that, the pages come again. Raises
    KubeReadError.
    """
    version: str | None = None
    while True:
        if version is None:
            async with aclosing(list_pages(connection, path, query, accept)) as pages:
                listed = [page async for page in pages]
            version = str(listed[-1].get("metadata", {}).get("resourceVersion", ""))
            yield listed
        resumed = {**query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        try:
            async with aclosing(connection.watch(path, resumed, idle_s=WATCH_IDLE_S, accept=accept)) as lines:
                async for line in lines:
                    event = decoded(path, line)
                    kind, obj = str(event.get("type")), event.get("object", {})
                    if kind == "ERROR":
                        raise KubeReadError(f"watching {path}", refusal_in(obj, 500))
                    version = version_of(obj) or version
                    if kind != "BOOKMARK":
                        yield kind, obj
        except KubeReadError as error:
            if not is_version_lost(error.refusal):
                raise
            version = None


def version_of(obj: Object) -> str:
    """resourceVersion of an object, or of the table row that represents it in an event."""
    rows = obj.get("rows") if obj.get("kind") == "Table" else None
    metadata = rows[0]["object"].get("metadata", {}) if rows else obj.get("metadata", {})
    return str(metadata.get("resourceVersion", ""))


async def apply(
    connection: ApiServer, path: str, manifest: Object, *, force: bool = False, dry_run: bool = False
) -> Object:
    """Server-side apply; returns the resulting object (with `dry_run`, the one that would result).

    Raises KubeWriteError.
    """
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    query |= {"force": "true"} if force else {}
    query |= {"dryRun": "All"} if dry_run else {}
    return decoded(path, await connection.write("PATCH", path, manifest, query, APPLY_PATCH))


async def until_gone(connection: ApiServer, path: str, uid: str, pause: Sleep) -> None:
    """Wait until the object of this uid is gone; a new object of the same name does not count. Raises KubeReadError."""
    wait_s = 0.05
    while (seen := await read_if_there(connection, path)) is not None and seen["metadata"]["uid"] == uid:
        await pause(wait_s)
        wait_s = min(1.0, wait_s * 1.5)


def refused(error: BaseException) -> Refusal | None:
    """Refusal of the server, or of a proxy before it, in an error; None for errors of another origin."""
    refusal = getattr(error, "refusal", None)
    return refusal if isinstance(refusal, Refusal) else None


def owners_in_conflict(refusal: Refusal) -> Iterator[tuple[str, str]]:
    """(manager, field) of each conflict for which a server-side apply was refused."""
    for cause in refusal.causes:
        if cause.reason == "FieldManagerConflict":
            yield cause.message.removeprefix("conflict with "), cause.field


def decoded(path: str, body: bytes) -> Object:
    """Decoded JSON body. Raises ObservationError."""
    try:
        return dict(json.loads(body))
    except (ValueError, TypeError) as error:
        raise ObservationError(f"reading {path}: cannot decode the response: {error}") from error
